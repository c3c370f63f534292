//! Locks, atomics and thread-locals: `parking_lot` and `std`, or a model checker's under its `cfg`:
//! `loom` walks every interleaving of a few steps, `shuttle` a random choice of many.
//!
//! Everything in this project that they check takes these from here, so that the code that is
//! checked is the code that ships. Besides: a bound ([`Limit`]) and a value that is `Sync` because
//! nobody shares it ([`Exclusive`]).

use std::sync::PoisonError;

pub(crate) mod failpoints;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod real;

#[cfg(any(loom, shuttle))]
pub use self::model::*;
#[cfg(not(any(loom, shuttle)))]
pub use self::real::*;

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

    /// Takes `count`, unless more than `max` would be taken.
    #[must_use = "what was taken has to be released"]
    pub fn acquire(&self, count: usize) -> bool {
        let more = |taken: usize| taken.checked_add(count).filter(|&taken| taken <= self.max);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// The number taken.
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

/// A value that only its owner reaches, so that it is `Sync` when it is `Send`. Nothing is ever
/// locked.
#[derive(Debug, Default)]
pub struct Exclusive<T>(std::sync::Mutex<T>);

impl<T> Exclusive<T> {
    /// Keeps a value.
    pub fn new(value: T) -> Self {
        Exclusive(std::sync::Mutex::new(value))
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
