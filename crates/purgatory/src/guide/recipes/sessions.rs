//! Sessions of members, each gone when no heartbeat has come for 30 seconds.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use purgatory::{BoxedOperation, EndResult, OperationId, Outcome, ParkResult, Purgatory, when};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A later session of the same member has a higher number.
pub struct Session {
    pub number: u64,
    id: OperationId,
}

pub struct Sessions {
    pub parked: Purgatory<&'static str, BoxedOperation>,
    pub joined: AtomicU64,
    pub gone: mpsc::Sender<(&'static str, u64)>, // member and session
}

impl Sessions {
    /// Begins a session, and ends one that the member may have. `None`: refused, or ended already
    /// by another `join` of the member.
    pub fn join(&self, member: &'static str) -> Option<Session> {
        self.parked.cancel_for_key(&member, "joined anew");
        let number = self.joined.fetch_add(1, Relaxed);
        let gone = self.gone.clone();
        let ended = move |outcome| {
            if outcome == Outcome::Expired {
                let _ = gone.send((member, number)); // otherwise it left, or joined anew
            }
        };
        let parked = self
            .parked
            .try_complete_else_watch(when(|| false, ended), &[member], TIMEOUT);
        match parked {
            Ok(ParkResult::Parked(id)) => Some(Session { number, id }),
            _ => None,
        }
    }

    /// False: too late, or the session has ended. The member must join anew.
    pub fn heartbeat(&self, session: &Session) -> bool {
        self.parked.reschedule(session.id, TIMEOUT)
    }

    pub fn leave(&self, session: Session) -> bool {
        self.parked.cancel(session.id, "left") == EndResult::Ended
    }
}
