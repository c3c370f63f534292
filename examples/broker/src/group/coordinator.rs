//! The coordinator of all groups: who asks is looked up and checked here, and what changes a group
//! raises the events of what waits for it.

use std::sync::{Arc, atomic::AtomicU64};
use std::{collections::HashMap, hash::RandomState, time::Duration};

use bytes::Bytes;
use kafka_protocol::{ResponseError, messages::*};
use parking_lot::{Mutex, MutexGuard};
use purgatory::{Purgatory, Timeout};
use timer_core::{BuildError, Timer};

use super::delayed::{DelayedJoin, DelayedSync, Sessions};
use super::state::{Group, Phase, State, Waits};
use crate::api::{Client, OrError, code};
use crate::{args::Args, pipeline::Reply, replica_manager::park, replica_state::LEADER_ID};

/// Of one member's protocols, or of one assignment.
pub(super) const METADATA_BYTES_MAX: usize = 64 << 10;

pub(crate) struct GroupCoordinator {
    pub(super) args: Args,
    pub(super) groups: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    pub(crate) rebalances: Purgatory<Arc<str>, DelayedJoin>,
    pub(crate) syncs: Purgatory<Arc<str>, DelayedSync>,
    pub(crate) sessions: Sessions,
    /// Members so far, and what makes their names differ from those of the broker's last run.
    pub(super) named: AtomicU64,
    pub(super) random: RandomState,
}

impl GroupCoordinator {
    pub(crate) fn new(args: &Args, timer: &impl Timer) -> Result<Arc<Self>, BuildError> {
        Ok(Arc::new(GroupCoordinator {
            args: args.clone(),
            groups: Mutex::default(),
            rebalances: Purgatory::builder("rebalance").timer(timer).build()?,
            syncs: Purgatory::builder("sync").timer(timer).build()?,
            sessions: Purgatory::builder("heartbeat").timer(timer).build()?,
            named: AtomicU64::new(0),
            random: RandomState::new(),
        }))
    }

    /// The leader's sync brings the assignment. Any sync is parked then, and may end at once.
    pub(crate) fn sync(&self, request: &SyncGroupRequest, reply: Reply) {
        let (group, timeout) = match self.prepare_sync(request) {
            Ok(prepared) => prepared,
            Err(error) => return reply.send(sync_response(Err(error))),
        };
        let operation = DelayedSync {
            group: Arc::clone(&group),
            member_id: request.member_id.to_string(),
            generation: request.generation_id,
            reply,
        };
        park(&self.syncs, operation, &[Arc::clone(&group.id)], timeout);
        self.syncs.check_and_complete(&group.id);
    }

    /// The member waits now, for so long at most.
    fn prepare_sync(&self, request: &SyncGroupRequest) -> OrError<(Arc<Group>, Duration)> {
        let group = self.group(&request.group_id)?;
        let mut state = group.state.lock();
        let phase = state.phase;
        let member = state.member(&request.member_id, request.generation_id)?;
        let timeout = member.rebalance_timeout;
        refuse!(phase == Phase::PreparingRebalance, RebalanceInProgress);
        let sizes = request.assignments.iter().map(|one| one.assignment.len());
        refuse!(sizes.max().unwrap_or(0) > METADATA_BYTES_MAX, UnknownServerError);
        member.session.reschedule(Timeout::Never)?;
        member.waits = Waits::ForSync;
        if phase == Phase::CompletingRebalance && *request.member_id == *state.leader {
            state.assign(&request.assignments);
        }
        drop(state);
        Ok((group, timeout))
    }

    pub(crate) fn heartbeat(&self, request: &HeartbeatRequest) -> HeartbeatResponse {
        let beat = self.group(&request.group_id).and_then(|group| {
            let mut state = group.state.lock();
            state.heartbeat(&request.member_id, request.generation_id)?;
            let rebalances = state.phase == Phase::PreparingRebalance;
            if rebalances { Err(ResponseError::RebalanceInProgress) } else { Ok(()) }
        });
        HeartbeatResponse::default().with_error_code(code(beat))
    }

    pub(crate) fn leave(&self, request: &LeaveGroupRequest) -> LeaveGroupResponse {
        let group = self.group(&request.group_id);
        let left = group.is_ok_and(|group| self.remove(&group, &request.member_id));
        let error_code = if left { 0 } else { ResponseError::UnknownMemberId.code() };
        LeaveGroupResponse::default().with_error_code(error_code)
    }

    /// A member has left, or has fallen silent. Returns whether it was one.
    pub(super) fn remove(&self, group: &Arc<Group>, member_id: &str) -> bool {
        let mut state = group.state.lock();
        let was_member = state.members.contains_key(member_id);
        let removed = state.remove(member_id);
        self.settle(group, state, was_member);
        removed
    }

    /// The assignment of a member whose sync is over. If the leader has not assigned in time, it
    /// goes.
    pub(super) fn end_sync(&self, group: &Arc<Group>, id: &str, generation: i32) -> OrError<Bytes> {
        let mut state = group.state.lock();
        if state.phase == Phase::CompletingRebalance && state.generation == generation {
            let leader = Arc::clone(&state.leader);
            state.remove(&leader);
            self.settle(group, state, true);
            state = group.state.lock();
        }
        state.end_sync(id, generation)
    }

    pub(super) fn complete_join(&self, group: &Arc<Group>) {
        let mut state = group.state.lock();
        state.complete_join();
        self.settle(group, state, false);
    }

    /// After a change, with the group's lock, which ends here: starts a rebalance if the members
    /// have changed and none is under way, lets go of a group that holds nothing, raises the
    /// events.
    pub(super) fn settle(
        &self,
        group: &Arc<Group>,
        mut state: MutexGuard<'_, State>,
        members_changed: bool,
    ) {
        let initial = state.phase == Phase::Empty;
        let starts = members_changed && state.phase != Phase::PreparingRebalance;
        let slowest = state.members.values().map(|member| member.rebalance_timeout).max();
        if starts {
            state.phase = Phase::PreparingRebalance;
        } else if initial && state.offsets.is_empty() {
            state.phase = Phase::Dead;
            self.groups.lock().remove(&group.id);
        }
        drop(state);
        if starts {
            let operation = DelayedJoin { group: Arc::clone(group), initial };
            let slowest = slowest.unwrap_or_default();
            let timeout = if initial { self.args.group_initial_rebalance_delay } else { slowest };
            park(&self.rebalances, operation, &[Arc::clone(&group.id)], timeout);
        }
        self.rebalances.check_and_complete(&group.id);
        self.syncs.check_and_complete(&group.id);
    }

    /// UNKNOWN_MEMBER_ID when there is none.
    pub(super) fn group(&self, id: &str) -> OrError<Arc<Group>> {
        refuse!(id.is_empty(), InvalidGroupId);
        self.groups.lock().get(id).cloned().ok_or(ResponseError::UnknownMemberId)
    }

    /// The group, made if need be; COORDINATOR_NOT_AVAILABLE when there are as many as may be.
    pub(super) fn get_or_create(self: &Arc<Self>, id: &str) -> OrError<Arc<Group>> {
        refuse!(id.is_empty(), InvalidGroupId);
        let mut groups = self.groups.lock();
        let full = groups.len() >= self.args.max_groups;
        refuse!(full && !groups.contains_key(id), CoordinatorNotAvailable);
        let (id, coordinator): (Arc<str>, _) = (id.into(), Arc::downgrade(self));
        let new = || Group { id: Arc::clone(&id), coordinator, state: Mutex::default() };
        let group = groups.entry(Arc::clone(&id)).or_insert_with(|| Arc::new(new()));
        Ok(Arc::clone(group))
    }
}

pub(super) fn sync_response(assignment: OrError<Bytes>) -> SyncGroupResponse {
    match assignment {
        Ok(assignment) => SyncGroupResponse::default().with_assignment(assignment),
        Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
    }
}

/// This broker coordinates every group, and no transactions.
pub(crate) fn find_coordinator(
    request: &FindCoordinatorRequest,
    client: &Client,
) -> FindCoordinatorResponse {
    let response = FindCoordinatorResponse::default();
    if request.key_type != 0 {
        let error = ResponseError::TransactionalIdAuthorizationFailed;
        tracing::warn!("{}: transactions are not supported", request.key.as_str());
        let text = Some("transactions are not supported".into());
        let response = response.with_error_code(error.code()).with_error_message(text);
        return response.with_node_id((-1).into()).with_port(-1);
    }
    response
        .with_node_id(LEADER_ID.into())
        .with_host(client.address.ip().to_string().into())
        .with_port(client.address.port().into())
}
