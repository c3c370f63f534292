//! The watches in turn of a shard: a list for each key that has any, of which only the head is
//! checked out. Only the watch of an operation's one key is in turn, so its link lies in the entry.

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use super::{
    Shard,
    entry::{CheckedOut, TurnCause},
    links::{NONE, WatchList},
    watchers::Links,
};
use crate::operation::DelayedOperation;

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Links the first watch of an operation to its key's list in turn. `at` is the index of its
    /// entry. O(1).
    pub(super) fn link_in_turn(&mut self, record: u32, at: u32) {
        self.keys.at_mut(record).waiters += 1;
        let mut links = Links::new(&mut self.entries, &mut self.cold);
        let in_turn = &mut self.keys.extras_mut(record).in_turn;
        links.append(in_turn, at, WatchList::InTurn, record);
    }

    /// Returns the entry whose watch in turn of a key is the oldest: the head.
    #[inline]
    fn head_in_turn(&self, record: u32) -> Option<u32> {
        // Only a first watch is in turn, so the link lies in an entry.
        match &self.keys.at(record).extras {
            Some(extras) if extras.in_turn.head != NONE => Some(extras.in_turn.head),
            _ => None,
        }
    }

    /// Returns true when watches in turn are among a key's watches.
    #[inline]
    pub(crate) fn has_in_turn(&self, record: u32) -> bool {
        self.keys.at(record).has_in_turn()
    }

    /// Returns true when operations wait in turn under a key. Runs the key's `Eq`.
    pub(crate) fn is_awaited_in_turn<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64) -> bool {
        let record = self.find(key, hash);
        record.is_some_and(|record| self.has_in_turn(record))
    }

    /// Checks the head of those in turn out, for a signal of their key. If it is held, its holder
    /// is left a request.
    pub(crate) fn check_out_head(
        &mut self,
        record: u32,
        cause: TurnCause,
    ) -> Option<CheckedOut<O>> {
        let head = self.head_in_turn(record)?;
        let handle = self.entries.handle_at(head);
        self.check_out_in_turn(handle, cause)
    }

    /// Checks the head of those in turn out. If it is held, its holder is left a request for an
    /// event.
    pub(crate) fn check_out_in_turn(
        &mut self,
        handle: TimerHandle,
        cause: TurnCause,
    ) -> Option<CheckedOut<O>> {
        let (payload, cause) = self.entries.get_mut(handle)?.check_out_in_turn(cause)?;
        Some(CheckedOut::new(handle, payload, cause))
    }
}
