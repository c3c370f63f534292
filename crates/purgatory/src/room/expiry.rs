//! Turning a room's wheel.
//!
//! The wheel comes by each operation at its deadline or, if it is to be checked *again* without an
//! event, earlier; then it is put back on the wheel in the same lock hold.

use timer_core::{Advanced, DueTask, TimerHandle};

use super::{CheckedOut, Ended, Entry, Room, entry::Entries};
use crate::operation::{Outcome, Verdict};

/// A turn of a wheel, to the tick `now`, within `budget` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) now: u64,
    pub(crate) budget: usize,
    /// Ticks from one recheck of an operation to the next. At least 1.
    pub(crate) every: u64,
}

/// What a turn did.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) advanced: Advanced,
    /// Operations due for a recheck, unless they were already.
    pub(crate) again: Vec<(TimerHandle, Order)>,
}

/// The tick at which the wheel was to come by, and the sequence.
pub(crate) type Order = (u64, u64);

impl<O> Entries<O> {
    /// Turns the wheel; `is_up` sees each operation whose time is up.
    fn turn(
        &mut self,
        Turn { now, budget, every }: Turn,
        mut is_up: impl FnMut(DueTask<'_, Entry<O>>),
    ) -> Turned {
        let Entries { wheel, room } = self;
        let now = now.max(wheel.now()); // a parker may have seen a later tick than the timer
        let (mut again, mut early) = (Vec::new(), Vec::new());
        let mut advanced = wheel.advance(now, budget, |mut task| {
            let deadline = task.get_mut().deadline();
            if deadline <= now {
                return is_up(task);
            }
            let order = (task.deadline(), task.id().sequence());
            if task.get_mut().due_again() {
                again.push((TimerHandle::new(*room as usize, task.id()), order));
            }
            early.push((task.id(), now.saturating_add(every).min(deadline)));
        });
        if !early.is_empty() {
            advanced.fired -= early.len();
            advanced.cascaded += early.len();
            early.into_iter().for_each(|(id, armed)| _ = wheel.reschedule(id, armed));
            advanced.next_due = wheel.next_due();
        }
        Turned { advanced, again }
    }
}

impl<K: Eq + Clone, O> Room<K, O> {
    /// Turns the wheel: what nobody holds ends when its time is up, and is told with its deadline
    /// and, if the wheel keeps order, its sequence; a holder is left a note.
    pub(crate) fn expire(
        &mut self,
        turn: Turn,
        now_ns: u64,
        mut expired: impl FnMut(Ended<K, O>, Order),
    ) -> Turned {
        let Room { entries, timed, .. } = self;
        let room = entries.room as usize;
        let mut due = Vec::new();
        let turned = entries.turn(turn, |mut task| {
            let Some(payload) = task.get_mut().claim(&Outcome::Expired) else {
                if failpoint!(ExpiryRemovesCheckedOut) {
                    task.take();
                }
                return;
            };
            let order = (task.get_mut().deadline(), task.id().sequence());
            if let Some(timed) = timed {
                let late_ns = now_ns.saturating_sub(timed.tick.start_ns(order.0));
                timed.times.ended(&Outcome::Expired, task.get_mut().age_us(now_ns / 1000));
                timed.times.lateness.record(late_ns);
            }
            let id = TimerHandle::new(room, task.id());
            due.push((id, payload, order)); // its neighbours cannot be reached from here
        });
        for (id, payload, order) in due {
            self.counts.ended(&Outcome::Expired);
            expired(self.take_out(id, payload, Outcome::Expired), order);
        }
        turned
    }

    /// As [`expire`](Self::expire), but what nobody holds is checked out for its last check.
    pub(crate) fn check_out_expired(
        &mut self,
        turn: Turn,
        mut expired: impl FnMut(CheckedOut<O>, Order),
    ) -> Turned {
        let room = self.entries.room as usize;
        self.entries.turn(turn, |mut task| {
            let Some(payload) = task.get_mut().check_out_for_last() else { return };
            let id = TimerHandle::new(room, task.id());
            let order = (task.get_mut().deadline(), task.id().sequence());
            expired(CheckedOut { id, payload, verdict: Verdict::Unsatisfied }, order);
        })
    }

    /// For an operation that is due again: takes the payload out to check it, unless it is held.
    pub(crate) fn check_out_again(&mut self, id: TimerHandle) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(id)?.check_out_again()?;
        Some(CheckedOut { id, payload, verdict: Verdict::Unsatisfied })
    }
}
