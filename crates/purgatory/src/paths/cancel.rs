//! Ending operations from outside: one by its id, or all of a key; and giving one another deadline.

use std::{borrow::Borrow, hash::Hash, sync::Arc};

use timer_core::TimerHandle;

use super::{
    core::Core,
    event::{CHUNK, Pop},
    trampoline::Call,
};
use crate::{
    room::{Room, WalkOn, WatchList},
    words::{
        operation::{DelayedOperation, EndResult, Outcome, Timeout},
        watches::WatchKey,
    },
};

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Ends everything parked under `key`; returns how many this call ended. All are claimed before
    /// the first is called back, so that what a callback parks stays.
    pub(crate) fn end_for_key<Q: Hash + Eq + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        outcome: Outcome,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        let call = Call::enter(&self.offload);
        let hash = self.versions.hash(key);
        let mut ended = Vec::new();
        let mut claim =
            |first_room: &mut Room<K, O>, id| ended.extend(first_room.claim(id, outcome.clone()));
        self.claim_each(key, hash, WatchList::Plain, &mut claim);
        // What a rise meets meanwhile is on one of these two.
        self.pop_up_to(key, hash, Pop::All, &mut claim);
        self.claim_each(key, hash, WatchList::Met, &mut claim);
        let count = ended.len();
        self.finish_all(&call, ended);
        count
    }

    /// Applies `claim` to each waiter of a key, in the room of its operation's first key.
    fn claim_each<Q: Eq + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        place: WatchList,
        claim: &mut impl FnMut(&mut Room<K, O>, TimerHandle),
    ) where
        K: Borrow<Q>,
    {
        let mut found = Vec::new();
        let mut room = self.room_of(hash);
        let record = room.find(key, hash);
        let on = record.map_or(WalkOn::Done, |record| room.walk(record, place, CHUNK, &mut found));
        let mut walk = self.walk(room.number(), on);
        drop(room);
        self.each_in_first_room(found, |&id| id, &mut *claim);
        while let Some(found) = walk.next() {
            self.each_in_first_room(found, |&id| id, &mut *claim);
        }
    }

    /// Ends one operation from outside.
    pub(crate) fn end(self: &Arc<Self>, id: TimerHandle, outcome: Outcome) -> EndResult {
        let call = Call::enter(&self.offload);
        let mut first_room = self.first_room_of(id);
        if first_room.get_mut(id).is_none() {
            return EndResult::Gone;
        }
        let Some(ended) = first_room.claim(id, outcome) else { return EndResult::Noted };
        drop(first_room);
        self.finish(&call, ended);
        EndResult::Ended
    }

    /// Gives one operation another timeout, unless its end is decided or noted.
    pub(crate) fn reschedule(&self, id: TimerHandle, timeout: Timeout) -> bool {
        let now_ns = self.driver().now_ns();
        let tick = self.driver().tick;
        let deadline = timeout.deadline(tick, now_ns);
        let mut first_room = self.first_room_of(id);
        let due = first_room.reschedule(tick.round_down(now_ns), id, deadline);
        if let (Some(due), Some(_)) = (due, deadline) {
            first_room.work_at(due);
        }
        due.is_some()
    }
}
