//! The flags of an entry: requests to the thread that holds it, marks, and the stages of its life.

/// Yes-or-no properties of an entry, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags(u16);

impl Flags {
    // Pending requests for a check. A pending end is in the cold part.

    /// It is to be checked as for an event: that of a plain watch, an advance or a completing call
    /// came by while it was held, or waited behind others in turn. Never handed on.
    pub(super) const CHECK: u16 = 1;
    /// An event for those in turn came by while it was held, or was left by the head before it.
    /// As the operation ends, it goes on to the next unless it was used up.
    pub(super) const EVENT: u16 = 1 << 1;
    /// The event is for all in turn, or one for all is among the causes of the checks since the
    /// operation in turn is held. No check uses it up: it is kept until the operation is parked.
    pub(super) const EVENT_FOR_ALL: u16 = 1 << 2;
    /// A recheck came by while the entry was held.
    pub(super) const RECHECK: u16 = 1 << 3;

    // Marks.

    /// The operation is held, and is checked for an event that goes on to the next in turn, if
    /// there is one, unless a check uses it up. Kept until the operation is parked.
    pub(super) const FOR_EVENT: u16 = 1 << 4;
    /// A recheck is queued on the executor.
    pub(super) const RECHECK_QUEUED: u16 = 1 << 5;
    /// A snapshot has seen the check that is under way.
    pub(super) const SEEN: u16 = 1 << 6;
    /// It is checked once more when its time is up. Set at parking, for good.
    pub(super) const LAST_CHECK: u16 = 1 << 7;
    /// Only a check gives the value that it yields. Set at parking, for good.
    pub(super) const NEEDS_VALUE: u16 = 1 << 8;

    // The life cycle, each set for good.

    /// Its operation has ended, and it is kept for its future.
    pub(super) const ENDED: u16 = 1 << 9;
    /// No future waits for it: that was dropped, so its holder does not keep it, or another payload
    /// was put in its place.
    pub(super) const ABANDONED: u16 = 1 << 10;
    /// It has ended, and has its answer.
    pub(super) const ANSWERED: u16 = 1 << 11;
    /// Its answer was still to be made as it ended, and is no value, or is made by a caller that
    /// took it out. Until it is made there is no turn to pass on.
    pub(super) const NO_TURN: u16 = 1 << 12;

    #[inline(always)]
    pub(super) fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    #[inline(always)]
    pub(super) fn set(&mut self, flags: u16) {
        self.0 |= flags;
    }

    #[inline(always)]
    pub(super) fn clear(&mut self, flags: u16) {
        self.0 &= !flags;
    }
}
