//! The failpoints of the crate, each with the fault that it plants.

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
    /// A poll or a drop that follows a wait does not look whether it has moved on.
    MovedIsLookedForOnce,
    /// A wait whose answer can be taken still has its place for a moment.
    AnsweredKeepsPlace,
    /// An answer that was made does not wake the task that polled meanwhile.
    AnswerMissesPoll,
    /// A shutdown leaves the shards open.
    ShutdownClosesNoShard,
    /// `fail_all` also fails an expectation that came after it began, while others go on.
    FailsWhatCameAfter,
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
pub(crate) fn plant(fault: Option<Failpoint>) {
    sync::plant(fault.map(|fault| format!("{fault:?}")));
}
