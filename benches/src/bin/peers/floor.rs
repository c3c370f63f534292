//! The floors: what the primitives cost that a measure cannot do without, on this machine and in
//! this run. Each function takes a few milliseconds and returns nanoseconds a piece.

use std::{
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};
use timer_core::{Clock, SystemClock};

use crate::sink::histogram;

/// Nanoseconds that each of `count` calls takes.
fn each(count: usize, mut call: impl FnMut(usize)) -> f64 {
    let clock = SystemClock::new();
    let begin = clock.now_ns();
    (0..count).for_each(&mut call);
    (clock.now_ns() - begin) as f64 / count as f64
}

/// Reads the clock.
pub(crate) fn clock_read(count: usize) -> f64 {
    let clock = SystemClock::new();
    each(count, |_| _ = black_box(clock.now_ns()))
}

/// Locks and unlocks a mutex that nobody else wants.
pub(crate) fn lock_pair(count: usize) -> f64 {
    let mutex = Mutex::new(0);
    each(count, |_| *black_box(&mutex).lock() += 1)
}

/// Allocates and frees a task of two words.
pub(crate) fn allocation(count: usize) -> f64 {
    each(count, |number| drop(black_box(Box::new([number, number]))))
}

/// What a form takes by itself: a future is allocated.
pub(crate) fn of_form(form: &str, count: usize) -> f64 {
    if form == "future" { allocation(count) } else { 0.0 }
}

/// Schedule and cancel: two locks and the clock.
pub(crate) fn schedule_cancel(count: usize) -> f64 {
    2.0 * lock_pair(count) + clock_read(count)
}

/// Park and complete: a lock for each key and one for the deadline, twice, and the clock.
pub(crate) fn park_complete(keys: usize, count: usize) -> f64 {
    2.0 * (keys + 1) as f64 * lock_pair(count) + clock_read(count)
}

/// A produce that waits for its offset: a lock to put it there, one shared by so many to take them
/// off again, and the clock.
pub(crate) fn acks_all(batch: f64, count: usize) -> f64 {
    (1.0 + 1.0 / batch) * lock_pair(count) + clock_read(count)
}

/// Writes to a random one of `nodes` nodes of 32 bytes; the next does not wait for it.
pub(crate) fn random_node(nodes: usize, count: usize) -> f64 {
    let mut memory = vec![[0u64; 4]; nodes];
    let mut random = fastrand::Rng::with_seed(1);
    let places: Vec<u32> = (0..count).map(|_| random.u32(0..nodes as u32)).collect();
    let spent = each(count, |at| memory[places[at] as usize][0] += 1);
    assert_eq!(memory.iter().map(|node| node[0]).sum::<u64>(), count as u64);
    spent
}

/// Runs and frees tasks of two words that wait in order, each of which counts.
pub(crate) fn run_tasks(count: usize) -> f64 {
    let ran = AtomicUsize::new(0);
    let ran = &ran;
    let tasks: Vec<Box<dyn FnOnce() + '_>> = (0..count)
        .map(|number| -> Box<dyn FnOnce() + '_> {
            Box::new(move || _ = ran.fetch_add(black_box(number).min(1), Ordering::Relaxed))
        })
        .collect();
    let mut tasks = tasks.into_iter();
    let spent = each(count, |_| tasks.next().expect("as many")());
    assert_eq!(ran.load(Ordering::Relaxed), count - 1);
    spent
}

/// How late a thread wakes that waits for a moment half a millisecond away, `count` times.
pub(crate) fn wake_up(count: usize) -> Histogram<u64> {
    let clock = SystemClock::new();
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    let mut late = histogram();
    let mut guard = mutex.lock();
    for _ in 0..count {
        let due = clock.now_ns() + 500_000;
        while clock.now_ns() < due {
            never.wait_for(&mut guard, Duration::from_nanos(due.saturating_sub(clock.now_ns())));
        }
        late.saturating_record(clock.now_ns() - due);
    }
    late
}
