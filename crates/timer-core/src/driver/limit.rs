//! A bound on how many of something there are. Shared by all threads, so only counted where asked
//! for.

use crate::sync::{AtomicUsize, Ordering};

/// At most `max` at a time.
#[derive(Debug)]
pub struct Limit {
    max: usize,
    taken: AtomicUsize,
}

impl Limit {
    /// None is taken yet.
    pub fn new(max: usize) -> Self {
        Limit { max, taken: AtomicUsize::new(0) }
    }

    /// The bound.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Takes one, unless `max` are taken.
    #[must_use = "one that was taken has to be released"]
    pub fn acquire(&self) -> bool {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes one, though `max` may be taken.
    pub fn exceed(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives `count` back.
    pub fn release(&self, count: usize) {
        self.taken.fetch_sub(count, Ordering::AcqRel);
    }
}
