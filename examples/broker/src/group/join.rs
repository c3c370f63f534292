//! JoinGroup: who may join, and with which id.

use std::{hash::BuildHasher, ops::RangeInclusive, sync::Arc, sync::atomic::Ordering::Relaxed};

use kafka_protocol::{ResponseError, messages::JoinGroupRequest};
use purgatory::{ParkResult, Timeout};

use super::coordinator::{GroupCoordinator, METADATA_BYTES_MAX};
use super::delayed::DelayedHeartbeat;
use super::state::{Group, Member, Phase, Session, State, refused};
use crate::{api::OrError, pipeline::Reply};

/// Kafka's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
const SESSION_TIMEOUT_MS: RangeInclusive<i32> = 6_000..=1_800_000;
const PROTOCOLS_MAX: usize = 16;

impl GroupCoordinator {
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
}
