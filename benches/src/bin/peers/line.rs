//! The time in which a cache line moves between two processors, which says where these are.
//!
//! A virtual machine's processors are threads of its host, which puts them on two threads of one
//! core, on two cores that share a cache, or on cores that do not. It moves them every few seconds,
//! and rows of two threads follow.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::{Backoff, CachePadded};
use timer_core::{Clock, SystemClock};

/// The number of times that the line moves to the other thread and back.
const BATCH: u64 = 200;
/// The fastest batch counts: the others were interrupted.
const BATCHES: u64 = 20;

/// Measures nanoseconds for a line to move from one thread to another, some 0.5 ms in all.
pub(crate) fn move_ns() -> f64 {
    let turns = CachePadded::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The other thread makes each odd number even.
        scope.spawn(|| {
            for turn in 0..BATCHES * BATCH {
                await_turn(&turns, 2 * turn + 1);
                turns.store(2 * turn + 2, Ordering::Release);
            }
        });
        let clock = SystemClock::new();
        let mut least_ns = u64::MAX;
        for batch in 0..BATCHES {
            let begin_ns = clock.now_ns();
            for turn in batch * BATCH..(batch + 1) * BATCH {
                turns.store(2 * turn + 1, Ordering::Release);
                await_turn(&turns, 2 * turn + 2);
            }
            least_ns = least_ns.min(clock.now_ns() - begin_ns);
        }
        least_ns as f64 / (2 * BATCH) as f64
    })
}

/// Spins until it is this turn; yields when the other thread has no processor.
fn await_turn(turns: &AtomicU64, turn: u64) {
    for _ in 0..1000 {
        if turns.load(Ordering::Acquire) == turn {
            return;
        }
        std::hint::spin_loop();
    }
    let backoff = Backoff::new();
    while turns.load(Ordering::Acquire) != turn {
        backoff.snooze();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_takes_time_to_move() {
        assert!(super::move_ns() > 0.0);
    }
}
