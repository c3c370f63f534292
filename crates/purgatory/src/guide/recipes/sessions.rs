// Sessions of members: a member is gone when no heartbeat has come for 30 seconds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use purgatory::{OperationId, Outcome, Purgatory, when};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A later session of the same member has a higher number.
pub struct Session {
    pub member: &'static str,
    pub number: u64,
    id: OperationId,
}

/// The number of each member's session. Its lock decides which of a join, a leave and an expiry
/// comes first.
#[derive(Default)]
pub struct Members {
    current: HashMap<&'static str, u64>,
    joined: u64,
}

impl Members {
    /// Begins a session, which replaces any session that the member has.
    fn begin(&mut self, member: &'static str) -> u64 {
        self.joined += 1;
        self.current.insert(member, self.joined);
        self.joined
    }

    fn is_current(&self, member: &'static str, number: u64) -> bool {
        self.current.get(member) == Some(&number)
    }

    /// Ends a session. Returns false if it has ended or the member has a later one.
    fn end(&mut self, member: &'static str, number: u64) -> bool {
        let is_current = self.is_current(member, number);
        if is_current {
            self.current.remove(member);
        }
        is_current
    }
}

pub struct Sessions {
    pub members: Arc<Mutex<Members>>,
    pub parked: Purgatory<&'static str>,
    pub gone: mpsc::Sender<(&'static str, u64)>, // member and session
}

impl Sessions {
    /// Begins a session, and ends any session that the member has. Returns `None` if the new
    /// session was refused, or has already been ended by another `join` of the member.
    pub fn join(&self, member: &'static str) -> Option<Session> {
        // The condition first: from here on an earlier session is not the current one ...
        let number = self.members.lock().unwrap().begin(member);
        self.parked.check_and_complete(&member); // ... then its event

        // The new session completes when it is replaced or left.
        let members = self.members.clone();
        let is_over = move || !members.lock().unwrap().is_current(member, number);
        let members = self.members.clone();
        let gone = self.gone.clone();
        let ended = move |outcome| {
            // The guard: a session that has expired may have been replaced before this runs.
            let was_current = members.lock().unwrap().end(member, number);
            if was_current && outcome == Outcome::Expired {
                let _ = gone.send((member, number)); // the receiver may have gone
            }
        };
        let session = when(is_over, ended);
        let parked = self
            .parked
            .try_complete_else_watch(session, &[member], TIMEOUT);
        match parked {
            Ok(parked) => Some(Session {
                member,
                number,
                id: parked?,
            }),
            Err(_) => {
                self.members.lock().unwrap().end(member, number);
                None
            }
        }
    }

    /// Returns false if it is too late or the session has ended. The member must then join again.
    pub fn heartbeat(&self, session: &Session) -> bool {
        self.parked.reschedule(session.id, TIMEOUT)
    }

    /// Returns false if the session has already ended.
    pub fn leave(&self, session: Session) -> bool {
        let Session { member, number, .. } = session;
        let was_current = self.members.lock().unwrap().end(member, number);
        self.parked.check_and_complete(&member);
        was_current
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = purgatory::timer_core::ManualTimer::new(); // in a program: a SystemTimer
    let (gone, reports) = mpsc::channel();
    let parked = Purgatory::on(&timer, "sessions")?;
    let sessions = Sessions {
        members: Arc::default(),
        parked,
        gone,
    };
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| sessions.join(name).unwrap());
    timer.advance(TIMEOUT / 2);
    assert!(sessions.heartbeat(&alice)); // 30 s from now
    assert!(sessions.leave(carol));
    timer.advance(TIMEOUT / 2);
    assert_eq!(
        reports.try_iter().collect::<Vec<_>>(),
        [("bob", bob.number)]
    );
    assert!(!sessions.heartbeat(&bob)); // too late: he must join anew
    Ok(())
}
