//! What an operation and a timer cost: start and stop, park and complete, on one thread and on two.
//!
//! `cargo bench -p purgatory-benches --bench hot_path` (append `-- --quick` for a first look).
//! Times are per operation and thread, harness included; each loop checks that what it parked was
//! completed and what it scheduled was cancelled.
#![allow(missing_docs, reason = "criterion's macros")]

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use criterion::{Criterion, criterion_group, criterion_main};
use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory, Watches};
use timer_core::{Clock, SystemClock, SystemTimer, Timer, TimingWheel, WheelSize};

const TIMEOUT: Duration = Duration::from_secs(30);
const KEYS: u64 = 1000;

/// Runs `work(thread, iterations)` on each of `threads` at once; the longest takes.
fn together(threads: u64, iterations: u64, work: impl Fn(u64, u64) + Sync) -> Duration {
    let clock = SystemClock::new();
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    start.wait();
                    let begin = clock.now_ns();
                    work(thread, iterations);
                    clock.now_ns() - begin
                })
            })
            .collect();
        let elapsed = running.into_iter().map(|thread| thread.join().expect("a bench thread"));
        Duration::from_nanos(elapsed.max().unwrap_or(0))
    })
}

fn schedule_cancel(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule+cancel");
    for (threads, pending) in [(1, 0), (1, 100_000), (1, 1_000_000), (2, 100_000)] {
        let timer = SystemTimer::new().expect("threads");
        for number in 0..pending {
            let delay = Duration::from_millis(60_000 + number % 60_000);
            timer.schedule(delay, || ()).expect("room");
        }
        group.bench_function(format!("{threads} threads, {pending} pending"), |b| {
            b.iter_custom(|iterations| {
                together(threads, iterations, |_, iterations| {
                    for _ in 0..iterations {
                        let handle = timer.schedule(TIMEOUT, || ()).expect("room");
                        assert!(timer.cancel(black_box(handle)));
                    }
                })
            });
        });
    }
    group.finish();
}

/// One of a million pending timers, picked at random, is cancelled and another one scheduled.
fn random_replace(c: &mut Criterion) {
    let timer = SystemTimer::new().expect("threads");
    let mut random = fastrand::Rng::with_seed(7);
    let delay =
        |random: &mut fastrand::Rng| Duration::from_millis(600_000 + random.u64(0..600_000));
    let mut handles: Vec<_> =
        (0..1_000_000).map(|_| timer.schedule(delay(&mut random), || ()).expect("room")).collect();
    c.bench_function("replace a random one of 1M timers", |b| {
        b.iter(|| {
            let at = random.usize(0..handles.len());
            assert!(timer.cancel(handles[at]));
            handles[at] = timer.schedule(delay(&mut random), || ()).expect("room");
        });
    });
    assert_eq!(timer.len(), 1_000_000);
}

/// What a wheel itself costs for each timer, by the slots of a level: placed, handed down, fired;
/// and placed and cancelled among as many others.
fn wheel_sizes(c: &mut Criterion) {
    for slots in [20, 64, 256] {
        let size = WheelSize::new(slots).expect("in bounds");
        c.bench_function(&format!("insert+cancel among 100k, {slots} slots a level"), |b| {
            let mut wheel = TimingWheel::new(size, 0);
            let mut random = fastrand::Rng::with_seed(7);
            (0..100_000).for_each(|task| _ = wheel.insert(random.u64(0..60_000), task));
            b.iter(|| {
                let id = wheel.insert(random.u64(0..60_000), 0).expect("room").id;
                assert!(wheel.cancel(black_box(id)).is_some());
            });
        });
        c.bench_function(&format!("insert+advance of 1M over 60 s, {slots} slots a level"), |b| {
            b.iter_custom(|iterations| advance_all(size, iterations, 60_000, true));
        });
    }
}

fn advance(c: &mut Criterion) {
    c.bench_function("advance, per timer of 1M over 1 s", |b| {
        b.iter_custom(|iterations| advance_all(WheelSize::default(), iterations, 1000, false));
    });
}

/// Fires `iterations` timers, up to a million at a time spread over `ticks`; what that takes, with
/// or without their insertion.
fn advance_all(size: WheelSize, iterations: u64, ticks: u64, with_insert: bool) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = iterations;
    let clock = SystemClock::new();
    while left > 0 {
        let timers = left.min(1_000_000);
        let mut wheel = TimingWheel::new(size, 0);
        let mut random = fastrand::Rng::with_seed(7);
        let start = clock.now_ns();
        (0..timers).for_each(|task| _ = wheel.insert(random.u64(0..ticks), task));
        let inserted = clock.now_ns();
        let (mut fired, mut sum) = (0, 0);
        for now in 0..ticks {
            let turn = wheel.advance(now, usize::MAX, |task| sum += task.take());
            fired += turn.fired as u64;
        }
        let begin = if with_insert { start } else { inserted };
        spent += Duration::from_nanos(clock.now_ns() - begin);
        assert_eq!((fired, black_box(sum)), (timers, timers * (timers - 1) / 2));
        left -= timers;
    }
    spent
}

static ENDED: AtomicU64 = AtomicU64::new(0);

/// 16 bytes: waits for a number in a cell to reach another.
struct Op {
    cell: &'static AtomicU64,
    required: u64,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.cell.load(Relaxed) >= self.required
    }

    fn on_complete(self, outcome: Outcome) {
        assert_eq!(outcome, Outcome::Completed);
    }
}

/// Parks one operation after the other under `keys` random keys, and completes it by an event.
fn park_complete(
    purgatory: &Purgatory<u64, Op>,
    keys: usize,
    thread: u64,
    iterations: u64,
    space: u64,
) {
    let cell: &'static AtomicU64 = Box::leak(Box::default());
    let mut random = fastrand::Rng::with_seed(thread);
    let mut watch = [0; 3];
    let mut completed = 0;
    for required in 1..=iterations {
        watch.fill_with(|| space + random.u64(0..KEYS));
        let parked = purgatory
            .try_complete_else_watch(Op { cell, required }, &watch[..keys], TIMEOUT)
            .expect("room");
        debug_assert!(matches!(parked, ParkResult::Parked(_)));
        cell.store(required, Relaxed);
        completed += purgatory.check_and_complete(&watch[0]) as u64;
    }
    // With others on the same keys they may complete ours, and we theirs.
    ENDED.fetch_add(completed, Relaxed);
}

fn park(c: &mut Criterion) {
    let mut group = c.benchmark_group("park+complete");
    for (threads, keys, space, name) in [
        (1, 1, 0, "1 key"),
        (1, 3, 0, "3 keys"),
        (2, 1, KEYS, "1 key, 2 threads on other keys"),
        (2, 1, 0, "1 key, 2 threads on the same keys"),
        (2, 3, KEYS, "3 keys, 2 threads on other keys"),
    ] {
        let purgatory = Purgatory::new("bench").expect("threads");
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let elapsed = together(threads, iterations, |thread, iterations| {
                    park_complete(&purgatory, keys, thread, iterations, thread * space);
                });
                assert!(purgatory.is_empty());
                elapsed
            });
        });
    }
    group.finish();
}

/// One event on a key with 10 000 waiters, none ready.
fn hot_key(c: &mut Criterion) {
    let purgatory = Purgatory::new("bench").expect("threads");
    let cell: &'static AtomicU64 = Box::leak(Box::default());
    for _ in 0..10_000 {
        drop(purgatory.try_complete_else_watch(Op { cell, required: 1 }, &[7], TIMEOUT * 1000));
    }
    c.bench_function("event on a key with 10 000 waiters", |b| {
        b.iter(|| assert_eq!(purgatory.check_and_complete(black_box(&7)), 0));
    });
    cell.store(1, Relaxed);
    assert_eq!(purgatory.check_and_complete(&7), 10_000);
}

/// A rise on a key with 10 000 watermark waiters, that reaches none; and one request more, parked
/// and reached.
fn watermarks(c: &mut Criterion) {
    let purgatory = Purgatory::new("bench").expect("threads");
    let cell: &'static AtomicU64 = Box::leak(Box::default());
    let park = |required| {
        let until = [(7, required)];
        let watches = Watches::up_to(&until);
        drop(purgatory.try_complete_else_watch(Op { cell, required }, watches, TIMEOUT * 1000));
    };
    (0..10_000).for_each(|above| park(1_000 + above));
    c.bench_function("watermark rise past none of 10 000 waiters", |b| {
        b.iter(|| assert_eq!(purgatory.complete_up_to(black_box(&7), 10), 0));
    });
    c.bench_function("watermark park and rise beside 10 000 waiters", |b| {
        b.iter(|| {
            park(10);
            assert_eq!(purgatory.complete_up_to(black_box(&7), 10), 1);
        });
    });
    assert_eq!(purgatory.complete_up_to(&7, u64::MAX), 10_000);
}

criterion_group!(
    benches,
    schedule_cancel,
    random_replace,
    wheel_sizes,
    advance,
    park,
    hot_key,
    watermarks
);
criterion_main!(benches);
