//! The state of one group. Nothing here waits; what must is told to the caller.

use std::{collections::BTreeMap, mem, sync::Arc, sync::Weak, time::Duration};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    join_group_request::*, join_group_response::*, sync_group_request::SyncGroupRequestAssignment,
};
use parking_lot::Mutex;
use purgatory::{OperationId, Timeout};

use super::{coordinator::GroupCoordinator, coordinator::Sessions, offsets::Offsets};
use crate::{api::OrError, api::millis, pipeline::Reply};

pub(super) struct Group {
    pub(super) id: Arc<str>,
    pub(super) coordinator: Weak<GroupCoordinator>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// No members.
    #[default]
    Empty,
    /// The members are to join (again).
    PreparingRebalance,
    /// They have; the leader is to assign the partitions.
    CompletingRebalance,
    Stable,
    /// No longer in the map of groups: whoever still holds it looks again.
    Dead,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) leader: Arc<str>,
    protocol_type: String,
    /// What the members of this generation understand: the name of an assignor.
    protocol: String,
    pub(super) members: BTreeMap<Arc<str>, Member>,
    pub(super) offsets: Offsets,
}

pub(super) struct Member {
    pub(super) session: Session,
    session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// Name and metadata, in the order of preference.
    protocols: Vec<(String, Bytes)>,
    pub(super) assignment: Bytes,
    pub(super) waits: Waits,
}

/// A member's session, which is over when this is dropped.
pub(super) struct Session {
    pub(super) sessions: Sessions,
    pub(super) id: OperationId,
}

impl Session {
    /// Gives it another time; UNKNOWN_MEMBER_ID: too late, it was over.
    pub(super) fn reschedule(&self, timeout: Timeout) -> OrError<()> {
        let alive = self.sessions.reschedule(self.id, timeout);
        if alive { Ok(()) } else { Err(ResponseError::UnknownMemberId) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.complete(self.id);
    }
}

/// A member that waits for an answer sends no heartbeats, so its session stands still.
pub(super) enum Waits {
    No,
    ForJoin(Reply),
    ForSync,
}

impl Member {
    pub(super) fn new(session: Session) -> Member {
        let (session_timeout, rebalance_timeout) = (Duration::ZERO, Duration::ZERO);
        let (protocols, assignment, waits) = (Vec::new(), Bytes::new(), Waits::No);
        Member { session, session_timeout, rebalance_timeout, protocols, assignment, waits }
    }

    pub(super) fn same_protocols(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        let asked = protocols.iter().map(|asked| (asked.name.as_str(), &asked.metadata));
        self.protocols.iter().map(|(name, metadata)| (name.as_str(), metadata)).eq(asked)
    }

    fn metadata(&self, name: &str) -> Option<&Bytes> {
        Some(&self.protocols.iter().find(|(own, _)| own == name)?.1)
    }

    fn restart_session(&self) -> OrError<()> {
        self.session.reschedule(self.session_timeout.into())
    }
}

impl State {
    /// The member of this generation, UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.
    pub(super) fn member(&mut self, id: &str, generation: i32) -> OrError<&mut Member> {
        let current = generation == self.generation;
        let member = self.members.get_mut(id).ok_or(ResponseError::UnknownMemberId)?;
        if current { Ok(member) } else { Err(ResponseError::IllegalGeneration) }
    }

    /// A heartbeat, or a request that counts as one.
    pub(super) fn heartbeat(&mut self, id: &str, generation: i32) -> OrError<()> {
        let member = self.member(id, generation)?;
        if matches!(member.waits, Waits::No) { member.restart_session() } else { Ok(()) }
    }

    /// Whether a member that asks for these protocols has one in common with all the others.
    pub(super) fn supports(&self, request: &JoinGroupRequest) -> bool {
        let others = || self.members.iter().filter(|(other, _)| ***other != *request.member_id);
        let by_all = |name: &str| others().all(|(_, member)| member.metadata(name).is_some());
        (others().next().is_none() || *self.protocol_type == *request.protocol_type)
            && request.protocols.iter().any(|protocol| by_all(&protocol.name))
    }

    /// A member joins, for the first time or again; from then on it waits for the others.
    /// (One that has asked before is not answered there: that connection is closed.)
    pub(super) fn join(&mut self, id: &str, request: &JoinGroupRequest, reply: Reply) {
        let Some(member) = self.members.get_mut(id) else { return };
        let rebalance_ms = match request.rebalance_timeout_ms {
            ..0 => request.session_timeout_ms, // version 0 has none
            rebalance_ms => rebalance_ms,
        };
        member.session_timeout = millis(request.session_timeout_ms);
        member.rebalance_timeout = millis(rebalance_ms);
        // Copied: a member must not keep a whole request in memory.
        let copy = |protocol: &JoinGroupRequestProtocol| {
            (protocol.name.to_string(), Bytes::copy_from_slice(&protocol.metadata))
        };
        member.protocols = request.protocols.iter().map(copy).collect();
        member.waits = Waits::ForJoin(reply);
        self.protocol_type = request.protocol_type.to_string();
    }

    pub(super) fn all_joined(&self) -> bool {
        let joined = |member: &Member| matches!(member.waits, Waits::ForJoin(_));
        self.members.values().all(joined)
    }

    /// A rebalance ends with those that have joined: the others are no members any more.
    pub(super) fn complete_join(&mut self) {
        let mut joined = Vec::new();
        self.members.retain(|id, member| {
            let Waits::ForJoin(reply) = mem::replace(&mut member.waits, Waits::No) else {
                return false;
            };
            joined.push((Arc::clone(id), reply));
            member.assignment = Bytes::new();
            true
        });
        self.generation += 1;
        self.phase = Phase::Empty;
        let Some((first, _)) = joined.first() else { return };
        if !self.members.contains_key(&self.leader) {
            self.leader = Arc::clone(first);
        }
        let preferred = self.members[&self.leader]
            .protocols
            .iter()
            .find(|(name, _)| self.members.values().all(|member| member.metadata(name).is_some()));
        self.protocol = preferred.map(|(name, _)| name.clone()).unwrap_or_default();
        self.phase = Phase::CompletingRebalance;
        for (id, reply) in joined {
            let response = self.join_response(&id);
            reply.send(response);
            // It has just been paused, so it is not over.
            let _ = self.members[&id].restart_session();
        }
    }

    /// What the member learns of its generation; the leader also learns who is in it.
    pub(super) fn join_response(&self, id: &str) -> JoinGroupResponse {
        let member = |(id, member): (&Arc<str>, &Member)| {
            let metadata = member.metadata(&self.protocol).cloned().unwrap_or_default();
            let member = JoinGroupResponseMember::default().with_metadata(metadata);
            member.with_member_id(id.to_string().into())
        };
        let members = self.members.iter().map(member);
        let members = if *id == *self.leader { members.collect() } else { Vec::new() };
        JoinGroupResponse::default()
            .with_generation_id(self.generation)
            .with_protocol_name(Some(self.protocol.clone().into()))
            .with_leader(self.leader.to_string().into())
            .with_member_id(id.to_owned().into())
            .with_members(members)
    }

    /// The leader assigns: who is not mentioned gets nothing.
    pub(super) fn assign(&mut self, assignments: &[SyncGroupRequestAssignment]) {
        for assigned in assignments {
            if let Some(member) = self.members.get_mut(&*assigned.member_id) {
                member.assignment = Bytes::copy_from_slice(&assigned.assignment);
            }
        }
        self.phase = Phase::Stable;
    }

    /// A sync is over, and the member's session goes on.
    pub(super) fn end_sync(&mut self, id: &str, generation: i32) -> OrError<Bytes> {
        let stable = self.phase == Phase::Stable;
        let member = self.member(id, generation)?;
        if let Waits::ForSync = member.waits {
            member.waits = Waits::No;
            member.restart_session()?;
        }
        if stable { Ok(member.assignment.clone()) } else { Err(ResponseError::RebalanceInProgress) }
    }

    /// Returns false when there is no such member. One that waits for its
    /// join is told that it is unknown now.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let Some(member) = self.members.remove(id) else { return false };
        if let Waits::ForJoin(reply) = member.waits {
            reply.send(refused(ResponseError::UnknownMemberId, id));
        }
        true
    }
}

pub(super) fn refused(error: ResponseError, member_id: &str) -> JoinGroupResponse {
    let response = JoinGroupResponse::default().with_error_code(error.code());
    response.with_member_id(member_id.to_owned().into())
}
