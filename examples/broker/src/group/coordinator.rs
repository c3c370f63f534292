//! The coordinator of all groups: who asks is looked up and checked here, and what changes a group
//! raises the events of what waits for it: a rebalance, a sync, a session. Their checks and ends
//! lock the group, so nobody raises an event with that lock held.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{collections::HashMap, ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{ResponseError, messages::*};
use parking_lot::{Mutex, MutexGuard};
use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory, Timeout};
use timer_core::{BuildError, Timer};

use super::state::{Group, Member, Phase, Session, State, Waits, refused};
use crate::api::{Client, OrError, code};
use crate::{args::Args, partition::LEADER_ID, pipeline::Reply, replica_manager::park};

/// Kafka's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
const SESSION_TIMEOUT_MS: RangeInclusive<i32> = 6_000..=1_800_000;
const PROTOCOLS_MAX: usize = 16;
/// Of one member's protocols, or of one assignment.
const METADATA_BYTES_MAX: usize = 64 << 10;

pub(crate) struct GroupCoordinator {
    args: Args,
    pub(super) groups: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    pub(crate) rebalances: Purgatory<Arc<str>, DelayedJoin>,
    pub(crate) syncs: Purgatory<Arc<str>, DelayedSync>,
    pub(crate) sessions: Sessions,
    /// Members so far, and what makes their names differ from those of the broker's last run.
    named: AtomicU64,
    random: RandomState,
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

    pub(crate) fn join(self: &Arc<Self>, request: &JoinGroupRequest, reply: Reply) {
        let group = match self.admit(request) {
            Ok(group) => group,
            Err(error) => return reply.send(refused(error, &request.member_id)),
        };
        let mut state = group.state.lock();
        let decided = self.decide(&group, &mut state, request);
        let waits = matches!(decided, Ok((_, true)));
        match decided {
            Ok((id, true)) => state.join(&id, request, reply),
            Ok((id, false)) => {
                let group = Arc::clone(&group);
                reply.send_in_turn(move |_| Ok(group.state.lock().join_response(&id)));
            }
            Err(error) => reply.send(refused(error, &request.member_id)),
        }
        self.settle(&group, state, waits);
    }

    /// What can be said of a join without a look at its group.
    fn admit(self: &Arc<Self>, request: &JoinGroupRequest) -> OrError<Arc<Group>> {
        let sizes = request.protocols.iter().map(|asked| asked.name.len() + asked.metadata.len());
        refuse!(!SESSION_TIMEOUT_MS.contains(&request.session_timeout_ms), InvalidSessionTimeout);
        let (protocols, bytes) = (request.protocols.len(), sizes.sum::<usize>());
        refuse!(request.protocol_type.is_empty() || protocols == 0, InconsistentGroupProtocol);
        let too_much = protocols > PROTOCOLS_MAX || bytes > METADATA_BYTES_MAX;
        refuse!(too_much, UnknownServerError); // as in Kafka
        let (id, new) = (&request.group_id, request.member_id.is_empty());
        if new { self.get_or_create(id) } else { self.group(id) }
    }

    /// The member's id, and whether it is to wait for the others; if not, it is answered with the
    /// generation there is.
    fn decide(
        &self,
        group: &Arc<Group>,
        state: &mut State,
        request: &JoinGroupRequest,
    ) -> OrError<(Arc<str>, bool)> {
        refuse!(state.phase == Phase::Dead, CoordinatorNotAvailable);
        refuse!(!state.supports(request), InconsistentGroupProtocol);
        if request.member_id.is_empty() {
            refuse!(state.members.len() >= self.args.max_group_members, GroupMaxSizeReached);
            let number = self.named.fetch_add(1, Relaxed);
            let id = format!("member-{number}-{:016x}", self.random.hash_one(number)).into();
            let session = self.start_session(group, &id)?;
            state.members.insert(Arc::clone(&id), Member::new(session));
            return Ok((id, true));
        }
        let known = state.members.get_key_value(&*request.member_id);
        let (id, member) = known.ok_or(ResponseError::UnknownMemberId)?;
        let unchanged = member.same_protocols(&request.protocols);
        let knows = match state.phase {
            Phase::CompletingRebalance => unchanged, // its answer was lost
            Phase::Stable => unchanged && *id != state.leader,
            _ => false,
        };
        if !knows {
            member.session.reschedule(Timeout::Never)?;
        }
        Ok((Arc::clone(id), !knows))
    }

    /// It stands still until the member's first join is answered.
    fn start_session(&self, group: &Arc<Group>, id: &Arc<str>) -> OrError<Session> {
        let key = (Arc::clone(&group.id), Arc::clone(id));
        let session = DelayedHeartbeat { group: Arc::clone(group), member_id: Arc::clone(id) };
        match self.sessions.try_complete_else_watch(session, &[key], Timeout::Never) {
            Ok(ParkResult::Parked(id)) => Ok(Session { sessions: self.sessions.clone(), id }),
            _ => Err(ResponseError::NotCoordinator), // shutting down
        }
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
    fn remove(&self, group: &Arc<Group>, member_id: &str) -> bool {
        let mut state = group.state.lock();
        let removed = state.remove(member_id);
        self.settle(group, state, removed);
        removed
    }

    /// The assignment of a member whose sync is over. If the leader has not assigned in time, it
    /// goes.
    fn end_sync(&self, group: &Arc<Group>, id: &str, generation: i32) -> OrError<Bytes> {
        let mut state = group.state.lock();
        if state.phase == Phase::CompletingRebalance && state.generation == generation {
            let leader = Arc::clone(&state.leader);
            state.remove(&leader);
            self.settle(group, state, true);
            state = group.state.lock();
        }
        state.end_sync(id, generation)
    }

    fn complete_join(&self, group: &Arc<Group>) {
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

fn sync_response(assignment: OrError<Bytes>) -> SyncGroupResponse {
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

/// The sessions of all members, under group and member.
pub(crate) type Sessions = Purgatory<(Arc<str>, Arc<str>), DelayedHeartbeat>;

/// A rebalance: completes when every known member has joined, and at the rebalance timeout goes on
/// without the others. (When the broker shuts down, too: each wait is answered.)
pub(crate) struct DelayedJoin {
    group: Arc<Group>,
    /// The first of a group waits out its delay, since nobody knows who else will come.
    initial: bool,
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
    group: Arc<Group>,
    member_id: String,
    generation: i32,
    reply: Reply,
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
    group: Arc<Group>,
    member_id: Arc<str>,
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
