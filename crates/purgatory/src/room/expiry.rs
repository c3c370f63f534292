//! Turning a room's wheel.
//!
//! The wheel comes by each operation at its deadline or, if it is to be checked *again* without an
//! event, earlier; then it is put back on the wheel in the same lock hold.

use timer_core::{Advanced, TimerHandle};

use super::{CheckedOut, Ended, Room, entry::Entries};
use crate::operation::{Outcome, Verdict};

/// A turn of a wheel, to the tick `now`, within `budget` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) now: u64,
    pub(crate) now_ns: u64,
    pub(crate) budget: usize,
    /// Ticks from one recheck of an operation to the next. At least 1.
    pub(crate) every: u64,
    /// Each is checked once more when its time is up.
    pub(crate) last_check: bool,
}

/// What a turn did.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) advanced: Advanced,
    /// Operations due for a check without an event: the last, or one that was not due already.
    pub(crate) checks: Vec<(TimerHandle, Order)>,
}

/// The tick at which the wheel was to come by, and the sequence.
pub(crate) type Order = (u64, u64);

impl<K: Eq + Clone, O> Room<K, O> {
    /// Turns the wheel: what nobody holds ends when its time is up, and is told with its deadline
    /// and, if the wheel keeps order, its sequence; a holder is left a note.
    pub(crate) fn expire(
        &mut self,
        turn: Turn,
        mut expired: impl FnMut(Ended<K, O>, Order),
    ) -> Turned {
        let Room { entries: Entries { wheel, room }, timed, .. } = self;
        let now = turn.now.max(wheel.now()); // a parker may have seen a later tick than the timer
        let (mut due, mut early, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        let mut advanced = wheel.advance(now, turn.budget, |mut task| {
            let id = TimerHandle::new(*room as usize, task.id());
            let order = (task.deadline(), task.id().sequence());
            let entry = task.get_mut();
            if entry.deadline() > now {
                early.push((id, now.saturating_add(turn.every).min(entry.deadline())));
                if entry.due_again() {
                    checks.push((id, order));
                }
            } else if turn.last_check {
                if !entry.is_held() {
                    checks.push((id, (entry.deadline(), order.1)));
                }
                entry.hold_for_last();
            } else if let Some(payload) = entry.claim(&Outcome::Expired) {
                if let Some(timed) = timed {
                    timed.ended(&Outcome::Expired, entry, turn.now_ns);
                }
                // Its neighbours are out of reach from here.
                due.push((id, payload, (entry.deadline(), order.1)));
            } else if failpoint!(ExpiryRemovesCheckedOut) {
                task.take();
            }
        });
        if !early.is_empty() {
            advanced.fired -= early.len();
            advanced.cascaded += early.len();
            early.into_iter().for_each(|(id, armed)| _ = wheel.reschedule(id.id(), armed));
            advanced.next_due = wheel.next_due();
        }
        for (id, payload, order) in due {
            self.counts.ended(&Outcome::Expired);
            expired(self.take_out(id, payload, Outcome::Expired), order);
        }
        Turned { advanced, checks }
    }

    /// For an operation that is due for a check: takes the payload out, unless a thread has it.
    pub(crate) fn check_out_again(&mut self, id: TimerHandle) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(id)?.check_out_again()?;
        Some(CheckedOut { id, payload, verdict: Verdict::Unsatisfied })
    }
}
