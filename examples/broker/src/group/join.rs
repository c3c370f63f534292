//! JoinGroup: who may join, and with which id.

use std::{
    hash::BuildHasher,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use kafka_protocol::{ResponseError, messages::JoinGroupRequest};
use purgatory::{Park, Timeout};

use super::{
    coordinator::{GroupCoordinator, METADATA_BYTES_MAX},
    delayed::DelayedHeartbeat,
    state::{Group, Member, Phase, Session, State, refused},
};
use crate::{api::millis, pipeline::Reply};

/// Kafka's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
const SESSION_TIMEOUT_MS: RangeInclusive<i32> = 6_000..=1_800_000;
const PROTOCOLS_MAX: usize = 16;

impl GroupCoordinator {
    pub(crate) fn join(self: &Arc<Self>, request: &JoinGroupRequest, reply: Reply) {
        let group = match self.admit(request) {
            Ok(group) => group,
            Err(error) => return reply.send(&refused(error, &request.member_id)),
        };
        let mut state = group.state.lock();
        let mut id = Arc::from(&*request.member_id);
        let decided = self.decide(&group, &mut state, request, &mut id, reply.version);
        let waits = matches!(decided, Ok(Some(_)));
        match decided {
            Ok(Some(member)) => state.join(&id, member, request, reply),
            Ok(None) => reply.send(&state.join_response(&id)),
            Err(error) => reply.send(&refused(error, &id)),
        }
        self.settle(&group, state, waits);
    }

    /// What can be said of a join without a look at its group.
    fn admit(&self, request: &JoinGroupRequest) -> Result<Arc<Group>, ResponseError> {
        let sizes = request.protocols.iter().map(|asked| asked.name.len() + asked.metadata.len());
        if !SESSION_TIMEOUT_MS.contains(&request.session_timeout_ms) {
            return Err(ResponseError::InvalidSessionTimeout);
        }
        if request.protocol_type.is_empty() || request.protocols.is_empty() {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        if request.protocols.len() > PROTOCOLS_MAX || sizes.sum::<usize>() > METADATA_BYTES_MAX {
            return Err(ResponseError::UnknownServerError); // as in Kafka
        }
        self.group(&request.group_id, request.member_id.is_empty())
    }

    /// The member that is to wait for the others; `None`: it is answered with the generation there is.
    /// `id` is the member's, or becomes it.
    fn decide(
        self: &Arc<Self>,
        group: &Arc<Group>,
        state: &mut State,
        request: &JoinGroupRequest,
        id: &mut Arc<str>,
        version: i16,
    ) -> Result<Option<Member>, ResponseError> {
        if state.phase == Phase::Dead {
            return Err(ResponseError::CoordinatorNotAvailable);
        }
        if !state.supports(id, request) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        if id.is_empty() {
            if state.members.len() + state.pending.len() >= self.args.max_group_members {
                return Err(ResponseError::GroupMaxSizeReached);
            }
            let number = self.named.fetch_add(1, Relaxed);
            *id = format!("member-{number}-{:016x}", self.random.hash_one(number)).into();
            if version < 4 {
                let session = self.start_session(group, id, Timeout::Never)?;
                return Ok(Some(Member::new(session, request)));
            }
            // KIP-394: a client that gives up before it knows its id leaves no member behind.
            let timeout = millis(request.session_timeout_ms).into();
            let session = self.start_session(group, id, timeout)?;
            state.pending.insert(Arc::clone(id), session);
            return Err(ResponseError::MemberIdRequired);
        }
        let session = match state.members.get(id) {
            Some(member) => {
                let unchanged = member.same_protocols(&request.protocols);
                let knows = match state.phase {
                    Phase::CompletingRebalance => unchanged, // its answer was lost
                    Phase::Stable => unchanged && *id != state.leader,
                    _ => false,
                };
                if knows {
                    return Ok(None);
                }
                Arc::clone(&member.session)
            }
            None => state.pending.remove(id).ok_or(ResponseError::UnknownMemberId)?,
        };
        let member = Member::new(session, request);
        member.session.reschedule(Timeout::Never)?;
        Ok(Some(member))
    }

    fn start_session(
        self: &Arc<Self>,
        group: &Arc<Group>,
        member_id: &Arc<str>,
        timeout: Timeout,
    ) -> Result<Arc<Session>, ResponseError> {
        let (coordinator, member_id) = (Arc::downgrade(self), Arc::clone(member_id));
        let key = (Arc::clone(&group.id), Arc::clone(&member_id));
        let session = DelayedHeartbeat { coordinator, group: Arc::clone(group), member_id };
        match self.sessions.try_complete_else_watch(session, &[key], timeout) {
            Ok(Park::Parked(id)) => Ok(Arc::new(Session { sessions: self.sessions.clone(), id })),
            _ => Err(ResponseError::NotCoordinator), // shutting down
        }
    }
}
