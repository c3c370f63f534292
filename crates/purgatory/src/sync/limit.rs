//! A bound on how many there are of something.

use timer_core::driver::sync::{AtomicUsize, Ordering};

/// At most `max` at a time.
#[derive(Debug)]
pub(crate) struct Limit {
    max: usize,
    taken: AtomicUsize,
}

impl Limit {
    /// None is taken yet.
    pub(crate) fn new(max: usize) -> Self {
        Limit { max, taken: AtomicUsize::new(0) }
    }

    /// The bound.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Takes one, unless `max` are taken.
    #[must_use = "one that was taken has to be released"]
    pub(crate) fn acquire(&self) -> bool {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// The number taken.
    #[cfg(all(feature = "keyed", not(any(loom, shuttle))))]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Gives `count` back.
    pub(crate) fn release(&self, count: usize) {
        self.taken.fetch_sub(count, Ordering::AcqRel);
    }
}
