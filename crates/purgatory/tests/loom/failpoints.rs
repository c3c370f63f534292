//! The failpoints of the crate, and the fault that each of them plants.

use purgatory::sync;

/// A fault that a model can plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// A park does not compare its keys' versions.
    ParkSkipsVersionCheck,
    /// An event does not count in its key's version.
    EventLeavesVersion,
    /// An event that finds an operation under check leaves its holder no request.
    EventLeavesNoRequest,
    /// A sweep that finds no operation plans no other, even if one is parked meanwhile.
    IdleSweepLooksOnce,
    /// A look at the shards that exist leaves no word for the thread that is making another one.
    LookPassesTheUnmade,
    /// An end that finds an operation under check leaves its holder no request.
    ExpiryLeavesNoRequest,
    /// An operation that ended stays on the list of its first key.
    EndedStaysListed,
    /// An expiry removes the entry of an operation that is under check.
    ExpiryRemovesCheckedOut,
    /// A future that is dropped leaves its operation parked.
    DroppedFutureLeavesOperation,
    /// A poll leaves no waker in the place where the answer will be put.
    PollLeavesNoWaker,
    /// A poll leaves the waker of an earlier poll in place.
    FirstWakerStays,
    /// A poll does not follow its wait to another shard.
    PollStaysBehind,
    /// A poll or a drop that follows a wait does not check whether the wait has moved on.
    MovedIsLookedForOnce,
    /// For a moment, a wait whose answer can be taken still has its place.
    AnsweredKeepsPlace,
    /// An answer does not wake a task that polled while it was made.
    AnswerMissesPoll,
    /// A shutdown leaves the shards open.
    ShutdownClosesNoShard,
    /// `fail_all` also fails a request that came after it began, while earlier ones go on.
    FailsWhatCameAfter,
    /// A stream does not look for a reply again after it has left its waker.
    StreamLooksOnce,
    /// A delivery finds its request under one lock hold and answers it under the next.
    HandsOverInTwoHolds,
    /// A request of a scope does not check whether the scope was closed.
    ClosedScopeExpects,
    /// A wait for a key's value compares it under one lock hold and parks under the next.
    ValueComparedUnlocked,
    /// An advance compares its epoch under one lock hold and stores its value under the next.
    EpochComparedUnlocked,
    /// A new epoch answers the last epoch's waits that its value reaches.
    EpochAnswersLast,
    /// A report compares its epoch under one lock hold and counts under the next.
    ReportEpochComparedUnlocked,
    /// A change of a set starts from a copy that was read under an earlier lock hold.
    SetChangedInCopy,
    /// A report of a member advances the watermark of its set after the set is unlocked.
    ReportAdvancesUnlocked,
    /// The waits of a group are cancelled after its set is removed and unlocked.
    RemovalCancelsUnlocked,
    /// A member joins a set although it has not caught up.
    JoinerNeedsNothing,
    /// A wait on a monitor does not check whether all keys were signalled while it was parked.
    WaitTrustsEarlierWalk,
    /// A request looks for permits under one lock hold and joins its line under the next.
    FreeComparedUnlocked,
    /// When the head leaves its line, the next request is not served.
    HeadLeavesUnserved,
    /// A guard returns the permits of a lost lease.
    LostLeaseReturns,
    /// The time to live of a lease begins at its hand-over although the lease was renewed.
    BeginOverridesRenewal,
    /// A request joins a line that is closed.
    ClosedIsJoined,
}

/// Plants a fault, or none, for the models that this OS thread runs.
pub(crate) fn plant(fault: Option<Failpoint>) {
    sync::plant(fault.map(|fault| format!("{fault:?}")));
}
