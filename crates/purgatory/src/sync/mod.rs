//! The parts that a model checker replaces, in one place: locks, atomics and thread-locals, which
//! are timer-core's facade, and the few sizes that a model wants small. So loom and shuttle check
//! the shipped code.
//!
//! *Failpoints* are faults that a model plants to see that each is noticed. Outside of a model
//! `failpoint!` is `false`, and nothing else of them is compiled.

pub(crate) use timer_core::driver::sync::{
    AtomicU64, HandedBack, Mutex, Ordering, Share, Shares, Spaced, plain, thread_local,
};

/// True when the running model has planted this fault.
macro_rules! failpoint {
    ($fault:ident) => {
        timer_core::failpoint!($fault)
    };
}

/// A fault that a model can plant.
#[cfg(any(loom, shuttle))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// A park does not compare its keys' versions.
    ParkSkipsVersionCheck,
    /// An event does not count in its key's version.
    EventLeavesVersion,
    /// An event that finds an operation under check leaves its holder no request.
    EventLeavesNoRequest,
    /// A recheck that finds an operation under check leaves its holder no request.
    RecheckLeavesNoRequest,
    /// A watermark watch that was taken off its key is not counted down.
    MetWatchNotCounted,
    /// An end that finds an operation under check leaves its holder no request.
    ExpiryLeavesNoRequest,
    /// An operation that ended stays on the list of its first key.
    EndedStaysListed,
    /// An expiry removes the entry of an operation that is under check.
    ExpiryRemovesCheckedOut,
    /// A future that is dropped leaves its operation parked.
    DroppedFutureLeavesOperation,
    /// A poll leaves no waker where the answer will come.
    PollLeavesNoWaker,
    /// A poll that finds its operation under check is forgotten.
    PollUnderCheckIsLost,
    /// A poll leaves the waker of an earlier one in place.
    FirstWakerStays,
    /// A wait whose answer can be taken still has its place for a moment.
    AnsweredKeepsPlace,
    /// An answer that was made does not wake the task that polled meanwhile.
    AnswerMissesPoll,
    /// An operation that has ended is found again, while its future has not taken the answer.
    EndedIsFoundAgain,
    /// A shutdown leaves the shards open.
    ShutdownClosesNoShard,
    /// `fail_all` also fails an expectation that came after it began, while others go on.
    FailsWhatCameAfter,
    /// A reply that was delivered stays on the list of its scope.
    HandedOverStaysListed,
    /// A request of a scope does not look whether the scope was closed while it was parked.
    ClosedScopeExpects,
    /// A wait for a key's value compares it under one lock hold and parks under the next.
    ValueComparedUnlocked,
    /// An advance compares its epoch under one lock hold and stores its value under the next.
    EpochComparedUnlocked,
    /// A removal of a key does not judge the quorums that it leaves.
    RemovalJudgesNothing,
    /// A removal of a key, and the quorums that it leaves, counts no take-back.
    RemovalTakesNothingBack,
    /// A judgement does not ask whether a value was taken back while it read the members.
    JudgementTrustsTornReading,
    /// A wait for a quorum does not ask that of the values that it reads as it parks.
    ParkTrustsTornReading,
    /// A quorum is not judged once all its keys are watched.
    QuorumTrustsItsFirstLook,
    /// A wait on a monitor does not check whether all keys were signalled while it was parked.
    WaitTrustsEarlierWalk,
    /// An operation in turn is checked at parking although others wait ahead of it.
    NewcomerOvertakes,
    /// An operation that came behind others in turn, and finds them gone, is not checked.
    NewcomerTrustsQueue,
    /// A head of those in turn leaves, and the next is not checked.
    HeadLeavesTurn,
    /// A completed wait in turn that is dropped untaken keeps its turn.
    DroppedWaitKeepsTurn,
}

/// Plants a fault, or none, for the models that this thread of the machine runs.
#[cfg(any(loom, shuttle))]
pub fn plant(fault: Option<Failpoint>) {
    timer_core::driver::sync::plant(fault.map(|fault| format!("{fault:?}")));
}

/// True in a build for a model checker.
pub(crate) const MODEL: bool = cfg!(any(loom, shuttle));

/// Versions of a shard: a power of two, and no more than a cache line holds. A model has one, so
/// that keys share it.
pub(crate) const VERSIONS_PER_SHARD: usize = if MODEL { 1 } else { 8 };

/// Payloads that an event checks out and checks together. More would save locks, but none of them
/// can expire or be cancelled before the checks of the others are over. A model takes two, so that
/// a walk has steps.
pub(crate) const CHECK_BATCH: usize = if MODEL { 2 } else { 16 };

/// Returns the default number of shards: 64 for each processor, so that threads that signal
/// different keys seldom meet on a lock. A model has two.
pub(crate) fn default_shards() -> usize {
    if MODEL {
        return 2;
    }
    timer_core::driver::default_shards(64)
}

/// Hashes keys, with a new seed for each purgatory.
#[cfg(not(any(loom, shuttle)))]
pub(crate) type KeyHasher = rapidhash::fast::RandomState;
/// Hashes keys in a model: alike in each run.
#[cfg(any(loom, shuttle))]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<Number>;

/// A hasher that puts neighbouring numbers into different shards.
#[cfg(any(loom, shuttle))]
#[derive(Debug, Default)]
pub(crate) struct Number(u64);

#[cfg(any(loom, shuttle))]
impl std::hash::Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    /// Counts as one byte, so that request numbers differ as others do.
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0 << 8 | number;
    }

    fn finish(&self) -> u64 {
        // The shard is told by the upper half, the place in a table by the lower one.
        self.0 << 32 | self.0 & u64::from(u32::MAX)
    }
}

/// A number of places, of keys, or a weight, that is taken now.
#[derive(Debug)]
pub(crate) struct Places(AtomicU64);

impl Places {
    /// Makes a count of 0.
    pub(crate) fn new() -> Self {
        Places(AtomicU64::new(0))
    }

    /// Takes `count`, unless more than `max` would be taken then. Returns whether it did.
    #[inline]
    #[must_use = "what was taken has to be released"]
    pub(crate) fn acquire(&self, count: u64, max: u64) -> bool {
        // Checked: a weight is the user's, and may be any number.
        let more = |taken: u64| taken.checked_add(count).filter(|&taken| taken <= max);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Returns the number taken.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns `count` that was taken.
    #[inline]
    pub(crate) fn release(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::AcqRel);
    }
}

/// A bound on the operations, or on the weight, that are taken at a time.
#[derive(Debug)]
pub(crate) struct Limit {
    max: u64,
    places: Places,
}

impl Limit {
    /// Makes a bound of which nothing is taken yet.
    pub(crate) fn new(max: u64) -> Self {
        Limit {
            max,
            places: Places::new(),
        }
    }

    /// Returns the bound.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Takes `count`, unless more than `max` would be taken then. Returns whether it did.
    #[must_use = "what was taken has to be released"]
    pub(crate) fn acquire(&self, count: u64) -> bool {
        self.places.acquire(count, self.max)
    }

    /// Returns the number taken.
    pub(crate) fn taken(&self) -> u64 {
        self.places.taken()
    }

    /// Returns `count` to the bound.
    pub(crate) fn release(&self, count: u64) {
        self.places.release(count);
    }
}
