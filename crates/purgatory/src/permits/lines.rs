//! Lines: the permits of each key, the number that is taken, and the requests that wait, in order.

use std::borrow::Borrow;
use std::hash::Hash;

use crate::{
    permits::entry::{NONE, Semaphores, Turn, Wait},
    sync::Ordering::Relaxed,
    table::{Table, keys::Keys, shard::Shard},
    watches::WatchKey,
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

/// The lines of one shard. All have one limit.
#[derive(Debug)]
pub(crate) struct Lines<K> {
    lines: Keys<K, Line>,
    /// False until the shard is first used: then it gets its limit.
    has_begun: bool,
    /// The permits of each key: free, taken or used up.
    pub(super) limit: u64,
    /// Permits that neither are free nor return, until a refill. Only permits without keys can be
    /// used up.
    pub(super) used_up: u64,
    /// True for permits without keys: their one line stays.
    keeps_idle: bool,
    pub(super) is_closed: bool,
    /// Lines that an entry has left, until they are served (Served).
    pub(super) unsettled: Vec<u32>,
    /// Lines with waiters.
    pub(super) busy: usize,
    /// The fencing number of the last lease (Fenced).
    last_fence: u64,
}

impl<K> Default for Lines<K> {
    fn default() -> Self {
        Lines {
            lines: Keys::default(),
            has_begun: false,
            limit: 0,
            used_up: 0,
            keeps_idle: false,
            is_closed: false,
            unsettled: Vec::new(),
            busy: 0,
            last_fence: 0,
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
    /// Makes the one line of permits without keys, which stays.
    fn keep(&mut self, key: K, hash: u64) {
        self.keeps_idle = true;
        self.lines.add(key, hash, Line::IDLE);
    }

    /// Returns the line of a key, if it is in use. Runs the key's `Eq`.
    pub(super) fn find<Q>(&self, key: &Q, hash: u64) -> Option<u32>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.lines.find(key, hash)
    }

    /// Returns the line of a key, or makes one. Runs the key's `Eq` and `ToOwned`.
    pub(super) fn find_or_add<Q>(&mut self, key: &Q, hash: u64) -> u32
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        match self.lines.find(key, hash) {
            Some(line) => line,
            None => self.lines.add(key.to_owned(), hash, Line::IDLE),
        }
    }

    #[inline]
    pub(super) fn at(&self, line: u32) -> &Line {
        self.lines.at(line)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, line: u32) -> &mut Line {
        self.lines.at_mut(line)
    }

    pub(super) fn key(&self, line: u32) -> &K {
        self.lines.key(line)
    }

    /// Returns the first line whose number is `number` or above.
    pub(super) fn first_from(&self, number: u32) -> Option<u32> {
        self.lines.first_from(number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &Line)> {
        self.lines.iter()
    }

    /// Returns the number of a key's permits that are free or taken.
    #[inline]
    pub(super) fn present(&self) -> u64 {
        self.limit - self.used_up
    }

    /// Returns true if a line has room for this weight beside the permits that are taken.
    #[inline]
    pub(super) fn has_room(&self, taken: u64, weight: u64) -> bool {
        let taken = taken.checked_add(weight);
        taken.is_some_and(|taken| taken <= self.present())
    }

    /// Takes permits if they are free, and nobody waits.
    #[inline(always)]
    pub(super) fn take(&mut self, line: u32, weight: u64) -> bool {
        let present = self.present();
        let in_line = self.lines.at_mut(line);
        if in_line.waiting > 0 || self.is_closed {
            return false;
        }
        match in_line.taken.checked_add(weight) {
            Some(taken) if taken <= present => {
                in_line.taken = taken;
                true
            }
            _ => false,
        }
    }

    /// Returns true if a request of this weight never fits under this limit. A limit of 0 is a
    /// pause.
    pub(super) fn is_too_heavy(&self, weight: u64) -> bool {
        weight > self.limit && self.limit > 0
    }

    /// Forgets a line that is idle (Gone). Returns its key, to be dropped unlocked.
    #[inline]
    pub(super) fn forget_if_idle(&mut self, line: u32) -> Option<K> {
        if self.keeps_idle {
            return None;
        }
        let Line { taken, waiting, .. } = self.at(line);
        if *taken > 0 || *waiting > 0 {
            return None;
        }
        Some(self.lines.remove(line))
    }

    /// Returns the fencing number of the next lease.
    pub(super) fn next_fence(&mut self) -> u64 {
        self.last_fence += 1;
        self.last_fence
    }
}

impl<K: WatchKey> Table<Semaphores<K>> {
    /// Begins the lines of a shard that is first used. Whoever locks a shard that may be so calls it.
    #[inline(always)]
    pub(super) fn begin(&self, lines: &mut Lines<K>) {
        if !lines.has_begun {
            self.begin_first(lines);
        }
    }

    #[cold]
    fn begin_first(&self, lines: &mut Lines<K>) {
        lines.has_begun = true;
        lines.limit = self.engine.limit.load(Relaxed);
        lines.is_closed = self.engine.closed.load(Relaxed);
        if let Some(only) = self.engine.only {
            let key = only();
            let hash = self.hash(&key);
            lines.keep(key, hash);
        }
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
        let in_line = self.records.at_mut(line);
        let last = in_line.tail;
        in_line.tail = index;
        in_line.waiting += 1;
        if last == NONE {
            in_line.head = index;
            self.records.busy += 1;
        } else {
            self.turn_mut(last).next = index;
        }
    }

    /// Takes a head that is out of its entry off its line, which counts its permits as taken.
    /// Returns true if the next head fits. O(1).
    #[inline]
    pub(super) fn unlink_head(&mut self, turn: &Turn, weight: u64) -> bool {
        let next = turn.next;
        let in_line = self.records.at_mut(turn.line);
        in_line.taken += weight;
        in_line.head = next;
        in_line.waiting -= 1;
        if next == NONE {
            in_line.tail = NONE;
            self.records.busy -= 1;
            return false;
        }
        let taken = in_line.taken;
        let head = self.turn_mut(next);
        head.prev = NONE;
        let weight = head.weight;
        self.records.has_room(taken, weight)
    }

    /// Takes a wait that is out of its entry off its line. O(1).
    #[inline]
    pub(super) fn unlink(&mut self, turn: &Turn) {
        let line = turn.line;
        match turn.prev {
            NONE => self.records.at_mut(line).head = turn.next,
            prev => self.turn_mut(prev).next = turn.next,
        }
        match turn.next {
            NONE => self.records.at_mut(line).tail = turn.prev,
            next => self.turn_mut(next).prev = turn.prev,
        }
        let in_line = self.records.at_mut(line);
        in_line.waiting -= 1;
        if in_line.waiting == 0 {
            self.records.busy -= 1;
        }
    }
}
