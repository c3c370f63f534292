//! How many of a producer's records may wait at once. Full, the producer sleeps until half of them
//! have ended, so that it is woken for a batch of work and not for every acknowledgement.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};

use example_support::Stop;

/// The slots of one producer. The producer alone takes; whoever ends an operation releases.
#[derive(Debug)]
pub struct Slots {
    used: CachePadded<AtomicUsize>,
    limit: usize,
    waiting: AtomicBool,
    unparker: Unparker,
}

impl Slots {
    /// `limit` free slots, for the thread that parks on `parker`.
    pub fn new(limit: usize, parker: &Parker) -> Self {
        Self {
            used: CachePadded::new(AtomicUsize::new(0)),
            limit,
            waiting: AtomicBool::new(false),
            unparker: parker.unparker().clone(),
        }
    }

    /// Takes a slot, waiting for one if it must; false when `stop` was raised and none was free.
    pub fn take(&self, parker: &Parker, stop: &Stop) -> bool {
        while self.is_full() {
            if stop.is_raised() {
                return false;
            }
            self.waiting.store(true, Ordering::SeqCst);
            // Looked at again after the note: a release before it was seen here, one after it sees
            // the note.
            if self.is_full() && !stop.is_raised() {
                parker.park();
            }
            self.waiting.store(false, Ordering::SeqCst);
        }
        self.used.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Gives a slot back.
    pub fn release(&self) {
        let left = self.used.fetch_sub(1, Ordering::SeqCst) - 1;
        let half_free = left <= self.limit / 2;
        if half_free
            && self.waiting.load(Ordering::SeqCst)
            && self.waiting.swap(false, Ordering::SeqCst)
        {
            self.unparker.unpark();
        }
    }

    /// Wakes the producer to look at its stop flag.
    pub fn wake(&self) {
        self.unparker.unpark();
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::SeqCst) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_producer_waits_for_a_release() {
        for limit in [1, 2, 5] {
            let parker = Parker::new();
            let (slots, stop) = (Slots::new(limit, &parker), Stop::new());
            let (taken, given) = (AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while given.load(Ordering::SeqCst) < 1000 {
                        if taken.load(Ordering::SeqCst) > given.load(Ordering::SeqCst) {
                            given.fetch_add(1, Ordering::SeqCst);
                            slots.release();
                        } else {
                            std::thread::yield_now();
                        }
                    }
                });
                for _ in 0..1000 {
                    assert!(slots.take(&parker, &stop));
                    let waiting =
                        taken.fetch_add(1, Ordering::SeqCst) + 1 - given.load(Ordering::SeqCst);
                    assert!(waiting <= limit);
                }
            });
        }
    }

    #[test]
    fn stop_ends_the_wait() {
        let parker = Parker::new();
        let (slots, stop) = (Slots::new(1, &parker), Stop::new());
        assert!(slots.take(&parker, &stop));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stop.raise();
                slots.wake();
            });
            assert!(!slots.take(&parker, &stop));
        });
    }
}
