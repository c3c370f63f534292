//! The parts that a model checker replaces, in one place: locks, atomics and thread-locals, which
//! are timer-core's facade, and the few sizes that a model wants small. So loom checks
//! the shipped code.
//!
//! *Failpoints* are faults that a model plants to see that each is noticed. Outside of a model
//! `failpoint!` is `false`, and nothing else of them is compiled.

mod hash;

pub(crate) use self::hash::{KeyHasher, mixed};
pub(crate) use timer_core::driver::sync::{
    AtomicBool, AtomicU64, HandedBack, Mutex, Ordering, Share, Shares, Spaced, plain, thread_local,
};

/// True when the running model has planted this fault.
macro_rules! failpoint {
    ($fault:ident) => {
        timer_core::failpoint!($fault)
    };
}

/// A fault that a model can plant.
#[cfg(loom)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// A park does not compare its keys' versions.
    ParkSkipsVersionCheck,
    /// An event does not count in its key's version.
    EventLeavesVersion,
    /// An event that finds an operation under check leaves its holder no request.
    EventLeavesNoRequest,
    /// A sweep that finds nothing parked plans no other, whoever parks meanwhile.
    IdleSweepLooksOnce,
    /// A look for the shards that are made leaves nothing for the thread that is making another.
    LookPassesTheUnmade,
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
    /// A poll leaves the waker of an earlier one in place.
    FirstWakerStays,
    /// A poll does not follow its wait to another shard.
    PollStaysBehind,
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
    /// A request moves to another scope past a `fail_all` that is under way.
    MovedEscapesFailure,
    /// A value that was made goes to whatever is expected under its key by then.
    MadeValueGoesToKey,
    /// A stream that has left its waker does not look for a reply again.
    StreamLooksOnce,
    /// A delivery finds its request under one lock hold and answers it under the next.
    HandsOverInTwoHolds,
    /// A request of a scope does not look whether the scope was closed.
    ClosedScopeExpects,
    /// A wait for a key's value compares it under one lock hold and parks under the next.
    ValueComparedUnlocked,
    /// An advance compares its epoch under one lock hold and stores its value under the next.
    EpochComparedUnlocked,
    /// A new epoch answers the waits of the last that its value reaches.
    EpochAnswersLast,
    /// A report compares its epoch under one lock hold and counts under the next.
    ReportEpochComparedUnlocked,
    /// A change of a set starts from a copy that was read under an earlier lock hold.
    SetChangedInCopy,
    /// A report of a member advances the watermark of its set after the set is unlocked.
    ReportAdvancesUnlocked,
    /// The waits of a group are cancelled after its set is removed and unlocked.
    RemovalCancelsUnlocked,
    /// A member joins a set though it is not caught up.
    JoinerNeedsNothing,
    /// A wait on a monitor does not check whether all keys were signalled while it was parked.
    WaitTrustsEarlierWalk,
    /// A request looks for permits under one lock hold and joins its line under the next.
    FreeComparedUnlocked,
    /// A head that leaves its line has the next not served.
    HeadLeavesUnserved,
    /// A guard returns the permits of a lease that was lost.
    LostLeaseReturns,
    /// The time to live of a lease that was handed over begins although it was renewed.
    BeginOverridesRenewal,
    /// A request joins a line that is closed.
    ClosedIsJoined,
}

/// Plants a fault, or none, for the models that this thread of the machine runs.
#[cfg(loom)]
pub fn plant(fault: Option<Failpoint>) {
    timer_core::driver::sync::plant(fault.map(|fault| format!("{fault:?}")));
}

#[cfg(loom)]
pub use timer_core::driver::sync::make_late;

/// True in a build for loom.
pub(crate) const MODEL: bool = cfg!(loom);

/// Versions of a shard: a power of two, and no more than a cache line holds. A model has one, so
/// that keys share it.
pub(crate) const VERSIONS_PER_SHARD: usize = if MODEL { 1 } else { 8 };

/// Payloads that an event checks out and checks together. More would save locks, but none of them
/// can expire or be cancelled before the checks of the others are over. A model takes two, so that
/// a walk has steps.
pub(crate) const CHECK_BATCH: usize = if MODEL { 2 } else { 16 };

/// Returns the default number of shards: 64 for each processor, so that threads that signal
/// different keys seldom meet in one. A model has two.
pub(crate) fn default_shards() -> usize {
    if MODEL {
        return 2;
    }
    timer_core::driver::default_shards(64)
}

/// A bound on what is there at a time: operations that are parked, keys that have a value.
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

    /// Returns one that was taken.
    pub(crate) fn release(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
