//! Several operations that leave under one lock hold. What they touch was written by other threads,
//! as a rule, and is read first: so cache lines come together, not one after the other.

use timer_core::TimerHandle;

use super::{Room, Ticket};

impl<K: Eq + Clone, O> Room<K, O> {
    /// Takes further watches away; adds to `left` the keys that nobody waits for any more.
    pub(crate) fn unwatch_all(&mut self, watches: &[(Ticket, TimerHandle)], left: &mut Vec<K>) {
        self.lists.read_ahead_further(&self.entries, watches);
        left.extend(watches.iter().filter_map(|&(ticket, id)| self.unwatch(ticket, id)));
    }
}
