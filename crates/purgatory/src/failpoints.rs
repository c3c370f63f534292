//! Failpoints: faults that the loom and shuttle tests plant, to see that each is noticed. In a
//! build without those switches `failpoint!` is `false`, and there is nothing else of them.

/// True when the running model has planted this fault.
macro_rules! failpoint {
    ($fault:ident) => {
        timer_core::failpoint!($fault)
    };
}

/// A fault.
#[cfg(any(loom, shuttle))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// A park does not compare its keys' versions.
    ParkSkipsVersionCheck,
    /// An event does not raise its key's version.
    EventRaisesNoVersion,
    /// An event that finds an operation under check leaves its holder no note.
    EventLeavesNoNote,
    /// A watermark watch that was taken off its key is not counted down.
    MetWatchNotCounted,
    /// An end that finds an operation under check leaves its holder no note.
    ExpiryLeavesNoNote,
    /// An operation that ended stays on the list of its first key.
    EndedStaysListed,
    /// An expiry removes the entry of an operation that is under check.
    ExpiryRemovesCheckedOut,
    /// A future that is dropped leaves its operation parked.
    DroppedFutureLeavesOperation,
    /// A shutdown leaves the rooms open.
    ShutdownClosesNoRoom,
    /// An expectation while all fails, fails, too.
    FailsWhatCameAfter,
    /// A rise of a watermark that is kept raises its event before the value.
    EventBeforeItsRise,
    /// A wait on a monitor does not look whether all keys were raised while it was parked.
    WaitTrustsEarlierWalk,
}

/// Plants a fault, or none, for the models that this thread of the machine runs.
#[cfg(any(loom, shuttle))]
pub fn plant(fault: Option<Failpoint>) {
    timer_core::driver::sync::plant(fault.map(|fault| format!("{fault:?}")));
}
