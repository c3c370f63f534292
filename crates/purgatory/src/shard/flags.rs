//! The flags of an entry: requests to the thread that holds it, marks, and the stages of its life.

/// Yes-or-no properties of an entry, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags(u16);

impl Flags {
    // Pending requests for a check. A pending end is in the cold part.

    /// An event came by while the entry was held.
    pub(super) const CHECK: u16 = 1;
    /// A recheck came by while the entry was held.
    pub(super) const RECHECK: u16 = 1 << 1;

    // Marks.

    /// A recheck is queued on the executor.
    pub(super) const RECHECK_QUEUED: u16 = 1 << 2;
    /// A snapshot has seen the check that is under way.
    pub(super) const SEEN: u16 = 1 << 3;
    /// It is checked once more when its time is up. Set at parking, for good.
    pub(super) const LAST_CHECK: u16 = 1 << 4;
    /// Only a check gives the value that it yields. Set at parking, for good.
    pub(super) const NEEDS_VALUE: u16 = 1 << 5;

    // The life cycle, each set for good.

    /// Its operation has ended, and it is kept for its future.
    pub(super) const ENDED: u16 = 1 << 6;
    /// No future waits for it: that was dropped, so its holder does not keep it, or another payload
    /// was put in its place.
    pub(super) const ABANDONED: u16 = 1 << 7;
    /// It has ended, and has its answer.
    pub(super) const ANSWERED: u16 = 1 << 8;

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
