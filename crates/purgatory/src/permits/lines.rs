//! Lines: for each key, the number of permits that are taken, and the requests that wait, in order.

use crate::{
    permits::{
        entry::{NONE, Semaphores, Turn, Wait},
        held::{HeavyWeights, is_one_key},
    },
    table::{keys::Keys, shard::Shard},
    watches::{KeyRef, ToKey, WatchKey},
};

/// The line of one key: the number of permits that are taken, and the requests that wait.
#[derive(Debug)]
pub(super) struct Line {
    /// May exceed the limit for a while after the limit was lowered.
    pub(super) taken: u64,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) waiting: u32,
}

/// The lines of one shard.
#[derive(Debug)]
pub(crate) struct Lines<K> {
    pub(super) keys: Keys<K, Line>,
    /// The number of permits that are used up: neither free nor to be returned, until a refill. May
    /// exceed the limit, if it was lowered while they were held. Only permits of
    /// [one key](Self::IS_ONE) are ever used up.
    pub(super) used_up: u64,
    /// The part of the limit that the last refill lent, since free permits and those in hand
    /// exceeded the limit. The next refill takes it back. May exceed the limit, if some of it was
    /// removed since: the excess is deducted from permits that are added.
    pub(super) lent: u64,
    /// Lines to be served or forgotten (Served, Gone) before the shard is unlocked; after a cancel
    /// of all, when it comes to the shard again.
    pub(super) unsettled: Vec<u32>,
    /// The fencing number of the last lease (Fenced).
    last_fence: u64,
    pub(super) heavy: HeavyWeights,
}

impl<K> Default for Lines<K> {
    fn default() -> Self {
        Lines {
            keys: Keys::default(),
            used_up: 0,
            lent: 0,
            unsettled: Vec::new(),
            last_fence: 0,
            heavy: HeavyWeights::default(),
        }
    }
}

impl Line {
    const IDLE: Line = Line {
        taken: 0,
        head: NONE,
        tail: NONE,
        waiting: 0,
    };
}

impl<K: WatchKey> Lines<K> {
    /// True if the key type has one value only, as `()` has. That is the type for permits without
    /// keys: they have one line, which is never forgotten, in one shard.
    pub(super) const IS_ONE: bool = is_one_key::<K>();

    /// Returns the line of a key, if it is in use. Runs the key's `Eq`.
    #[inline]
    pub(super) fn find<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32> {
        if Self::IS_ONE {
            return (!self.keys.is_empty()).then_some(0);
        }
        self.keys.find(key, hash)
    }

    /// Returns the number of a key's permits that are taken. Runs the key's `Eq`.
    pub(super) fn taken<Q: KeyRef<K> + ?Sized>(&self, key: &Q, hash: u64) -> u64 {
        self.find(key, hash)
            .map_or(0, |line| self.keys.at(line).taken)
    }

    /// Returns the line of a key, or makes one. Runs the key's `Eq` and `ToOwned`.
    pub(super) fn find_or_add<Q: ToKey<K> + ?Sized>(&mut self, key: &Q, hash: u64) -> u32 {
        match self.find(key, hash) {
            Some(line) => line,
            None => self.add(key.to_key(), hash),
        }
    }

    /// Makes the line of a key that has none.
    #[inline(never)] // inlined, it would take registers from requests for free permits
    fn add(&mut self, key: K, hash: u64) -> u32 {
        self.keys.add(key, hash, Line::IDLE)
    }

    /// Forgets a line that is idle (Gone). Returns its key, to be dropped unlocked.
    pub(super) fn forget_if_idle(&mut self, line: u32) -> Option<K> {
        if Self::IS_ONE {
            return None;
        }
        let Line { taken, waiting, .. } = self.keys.at(line);
        if *taken > 0 || *waiting > 0 {
            return None;
        }
        Some(self.keys.remove(line))
    }

    /// Returns the fencing number of the next lease.
    pub(super) fn next_fence(&mut self) -> u64 {
        self.last_fence += 1;
        self.last_fence
    }
}

impl<K: WatchKey> Semaphores<K> {
    /// Returns the number of a key's permits that are free or taken.
    pub(super) fn present(&self, lines: &Lines<K>) -> u64 {
        self.limit().saturating_sub(lines.used_up)
    }
}

const IN_LINE: &str = "Listed: a line names entries that wait";

impl<K: WatchKey> Shard<Semaphores<K>> {
    /// Returns the place in line of the wait at an index.
    #[inline]
    pub(super) fn turn(&self, index: u32) -> &Turn {
        match Shard::wait(self, index) {
            Wait::Waits(turn) => turn,
            Wait::Holds(_) => panic!("{IN_LINE}"),
        }
    }

    #[inline(always)] // a call costs as much as the look-up
    fn turn_mut(&mut self, index: u32) -> &mut Turn {
        match self.wait_mut(index) {
            Wait::Waits(turn) => turn,
            Wait::Holds(_) => panic!("{IN_LINE}"),
        }
    }

    /// Puts the wait at an index at the end of its line; its `prev` names the last wait already.
    /// O(1).
    #[inline(always)]
    pub(super) fn enter(&mut self, line: u32, index: u32) {
        let in_line = self.records.keys.at_mut(line);
        let last = in_line.tail;
        in_line.tail = index;
        in_line.waiting += 1;
        if last == NONE {
            in_line.head = index;
        } else {
            self.turn_mut(last).next = index;
        }
    }

    /// Removes a head of this weight from its line, and counts its permits as taken; `next` is the
    /// wait behind it. Returns the weight of the next head. O(1).
    #[inline]
    pub(super) fn unlink_head(&mut self, line: u32, weight: u64, next: u32) -> Option<u64> {
        let in_line = self.records.keys.at_mut(line);
        in_line.taken += weight;
        in_line.head = next;
        in_line.waiting -= 1;
        if next == NONE {
            in_line.tail = NONE;
            return None;
        }
        let head = self.turn_mut(next);
        head.prev = NONE;
        Some(head.weight)
    }

    /// Removes a wait that has left its entry from its line. O(1).
    #[inline]
    pub(super) fn unlink(&mut self, turn: &Turn) {
        let line = turn.line;
        match turn.prev {
            NONE => self.records.keys.at_mut(line).head = turn.next,
            prev => self.turn_mut(prev).next = turn.next,
        }
        match turn.next {
            NONE => self.records.keys.at_mut(line).tail = turn.prev,
            next => self.turn_mut(next).prev = turn.prev,
        }
        self.records.keys.at_mut(line).waiting -= 1;
    }
}
