//! What `peers` has no row for: the bare wheel by the slots of a level, and rises of a watermark
//! with 10 000 waiters.
//!
//! `cargo bench -p purgatory-benches --bench hot_path` (append `-- --quick` for a first look). Each
//! loop checks what came of its tasks and operations.
#![allow(missing_docs, reason = "criterion's macros")]

use std::{hint::black_box, sync::atomic::AtomicU64, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use purgatory::{Purgatory, Watches};
use purgatory_benches::Op;
use timer_core::{Clock, SystemClock, TimingWheel, WheelSize};

const TIMEOUT: Duration = Duration::from_secs(30);

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
            b.iter_custom(|iterations| advance_all(size, iterations));
        });
    }
}

/// Inserts and fires `iterations` timers, up to a million at a time spread over a minute.
fn advance_all(size: WheelSize, iterations: u64) -> Duration {
    let (mut spent, ticks) = (Duration::ZERO, 60_000);
    let mut left = iterations;
    let clock = SystemClock::new();
    while left > 0 {
        let timers = left.min(1_000_000);
        let mut wheel = TimingWheel::new(size, 0);
        let mut random = fastrand::Rng::with_seed(7);
        let begin = clock.now_ns();
        (0..timers).for_each(|task| _ = wheel.insert(random.u64(0..ticks), task));
        let (mut fired, mut sum) = (0, 0);
        for now in 0..ticks {
            let turn = wheel.advance(now, usize::MAX, |task| sum += task.take());
            fired += turn.fired as u64;
        }
        spent += Duration::from_nanos(clock.now_ns() - begin);
        assert_eq!((fired, black_box(sum)), (timers, timers * (timers - 1) / 2));
        left -= timers;
    }
    spent
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

criterion_group!(benches, wheel_sizes, watermarks);
criterion_main!(benches);
