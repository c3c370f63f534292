//! Lines: the permits of each key, the number that is taken, and the requests that wait, in order.

use crate::{
    permits::{
        entry::{NONE, Semaphores, Turn, Wait},
        held::{HeavyWeights, is_one_key},
    },
    table::{keys::Keys, shard::Shard},
    watches::{KeyRef, ToKey, WatchKey},
};

/// The permits of one key: those that are taken, and the requests that wait.
#[derive(Debug)]
pub(super) struct Line {
    /// More than the limit for a while, after it was lowered.
    pub(super) taken: u64,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) waiting: u32,
}

/// The lines of one shard.
#[derive(Debug)]
pub(crate) struct Lines<K> {
    pub(super) keys: Keys<K, Line>,
    /// Permits that neither are free nor return, until a refill: more than the limit, if that was
    /// lowered while they were held. Only those of [one key](Self::IS_ONE) can be used up.
    pub(super) used_up: u64,
    /// The part of the limit that the last refill has lent: there were more permits than the limit,
    /// some of them in hand. It goes with the next refill. More than the limit, if some of it was
    /// removed since: that comes off what is added.
    pub(super) lent: u64,
    /// Lines that are to be served, or forgotten (Served, Gone), before the shard is unlocked; of a
    /// cancel of all, as it comes by again.
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
    /// True if the type of the keys has one value, `()`. Permits without keys have that one: they
    /// have one line, which stays, in one shard.
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
    #[inline(never)] // in place it would take registers from a request of permits that are free
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

    /// Puts the wait at an index, whose place is behind the last one, at the end of its line. O(1).
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

    /// Takes a head of this weight, which has its permits, off its line, where `next` is behind it.
    /// Returns the weight of the next head. O(1).
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

    /// Takes a wait that is out of its entry off its line. O(1).
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
