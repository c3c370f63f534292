//! The three waits of a group. Their checks and ends lock the group, so nobody raises an event with
//! that lock held.

use std::sync::Arc;

use purgatory::{DelayedOperation, Outcome, Purgatory};

use super::{coordinator::sync_response, state::Group, state::Phase};
use crate::pipeline::Reply;

/// The sessions of all members, under group and member.
pub(crate) type Sessions = Purgatory<(Arc<str>, Arc<str>), DelayedHeartbeat>;

/// A rebalance: completes when every known member has joined, and at the rebalance timeout goes on
/// without the others. (When the broker shuts down, too: each wait is answered.)
pub(crate) struct DelayedJoin {
    pub(super) group: Arc<Group>,
    /// The first of a group waits out its delay, since nobody knows who else will come.
    pub(super) initial: bool,
}

impl DelayedOperation for DelayedJoin {
    fn try_complete(&mut self) -> bool {
        !self.initial && self.group.state.lock().all_joined()
    }

    fn on_complete(self, outcome: Outcome) {
        tracing::debug!("rebalance of {}: {outcome}", self.group.id);
        if let Some(coordinator) = self.group.coordinator.upgrade() {
            coordinator.complete_join(&self.group);
        }
    }
}

/// A member's sync: completes when the leader's has brought the assignment, or when there is
/// another rebalance. At the rebalance timeout the leader is given up.
pub(crate) struct DelayedSync {
    pub(super) group: Arc<Group>,
    pub(super) member_id: String,
    pub(super) generation: i32,
    pub(super) reply: Reply,
}

impl DelayedOperation for DelayedSync {
    fn try_complete(&mut self) -> bool {
        let state = self.group.state.lock();
        state.phase != Phase::CompletingRebalance
            || state.generation != self.generation
            || !state.members.contains_key(&*self.member_id)
    }

    fn on_complete(self, _: Outcome) {
        if let Some(coordinator) = self.group.coordinator.upgrade() {
            let assignment = coordinator.end_sync(&self.group, &self.member_id, self.generation);
            self.reply.send(sync_response(assignment));
        }
    }
}

/// A member's session, parked for as long as it is one: each heartbeat reschedules it, and leaving
/// completes it. When it expires the member has fallen silent.
pub(crate) struct DelayedHeartbeat {
    pub(super) group: Arc<Group>,
    pub(super) member_id: Arc<str>,
}

impl DelayedOperation for DelayedHeartbeat {
    /// No event ends a session.
    fn try_complete(&mut self) -> bool {
        false
    }

    /// Locks the group only when it has expired: it is completed by who holds that lock.
    fn on_complete(self, outcome: Outcome) {
        if let (Some(coordinator), Outcome::Expired) = (self.group.coordinator.upgrade(), outcome) {
            tracing::info!("{} of {} has fallen silent", self.member_id, self.group.id);
            coordinator.remove(&self.group, &self.member_id);
        }
    }
}
