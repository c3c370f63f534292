//! The flags of an entry: requests to the thread that holds it, and marks.

/// Yes-or-no properties of an entry, a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags(u8);

impl Flags {
    // Pending requests for a check. A pending end is in the cold part.

    /// An event came by while the entry was held.
    pub(super) const CHECK: u8 = 1;
    /// A recheck came by while the entry was held.
    pub(super) const RECHECK: u8 = 1 << 1;

    // Marks.

    /// A recheck is queued on the executor.
    pub(super) const RECHECK_QUEUED: u8 = 1 << 2;
    /// A snapshot has seen the check that is under way.
    pub(super) const SEEN: u8 = 1 << 3;

    #[inline(always)]
    pub(super) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    #[inline(always)]
    pub(super) fn set(&mut self, flags: u8) {
        self.0 |= flags;
    }

    #[inline(always)]
    pub(super) fn clear(&mut self, flags: u8) {
        self.0 &= !flags;
    }
}
