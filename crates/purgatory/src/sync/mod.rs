//! The parts that a model checker replaces, in one place: locks, atomics and thread-locals, which
//! come from timer-core's facade, and the few sizes that a model needs small. So loom checks the
//! shipped code.
//!
//! *Failpoints* are faults that a model plants to see that each is noticed. Outside a model
//! `failpoint!` is `false`, and no other part of them is compiled.

mod hash;

pub(crate) use self::hash::{KeyHasher, key_hasher, mixed};
pub(crate) use timer_core::driver::sync::{
    AtomicBool, AtomicU64, HandedBack, Mutex, Ordering, Share, Shares, Spaced, Unwatched, plain,
    thread_local,
};

/// True when the running model has planted this fault.
macro_rules! failpoint {
    ($fault:ident) => {
        timer_core::failpoint!($fault)
    };
}

#[cfg(loom)]
pub use timer_core::driver::sync::{make_late, plant};

/// True in a build for loom.
pub(crate) const MODEL: bool = cfg!(loom);

/// The number of versions of a shard: a power of two, and no more than a cache line holds. A model
/// has one, so that keys share it.
pub(crate) const VERSIONS_PER_SHARD: usize = if MODEL { 1 } else { 4 };

/// The number of payloads that an event checks out and checks together. More would save locks, but
/// no operation among them can expire or be cancelled before the checks of the others are over. A
/// model takes two, so that a walk has steps.
pub(crate) const CHECK_BATCH: usize = if MODEL { 2 } else { 16 };

/// Returns the default number of shards: 64 for each processor, so that threads that signal
/// different keys seldom meet in one. A simulation has as many on every machine; a model has two.
pub(crate) fn default_shards(is_simulated: bool) -> usize {
    match (MODEL, is_simulated) {
        (true, _) => 2,
        (false, true) => 64,
        (false, false) => timer_core::driver::default_shards(64),
    }
}

/// A bound on the number of items at a time, such as parked operations or keys that have a value.
#[derive(Debug)]
pub(crate) struct Limit {
    max: usize,
    taken: AtomicU64,
}

impl Limit {
    /// Makes a bound of which nothing is taken yet.
    pub(crate) fn new(max: usize) -> Self {
        Limit {
            max,
            taken: AtomicU64::new(0),
        }
    }

    /// Returns the bound.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the number taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed) as usize
    }

    /// Takes one, unless all are taken. Returns whether it did.
    #[must_use = "what was taken has to be released"]
    pub(crate) fn acquire(&self) -> bool {
        let more = |taken: u64| (taken < self.max as u64).then(|| taken + 1);
        let taken = &self.taken;
        taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Takes one, even beyond the bound.
    pub(crate) fn acquire_beyond(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns one that was taken.
    pub(crate) fn release(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
