//! Turning a room's wheel.

use timer_core::{Advanced, TickLength, TimerHandle};

use super::{CheckedOut, Ended, Room, Ticket, watchers::Entries};
use crate::operation::{Outcome, Verdict};

impl<K: Eq + Clone, O> Room<K, O> {
    /// Turns the wheel to a moment: what nobody holds ends, and is told with its deadline and, if
    /// the wheel keeps order, its sequence; a holder is left a note. Within `budget` steps.
    pub(crate) fn expire(
        &mut self,
        now: u64,
        now_ns: u64,
        tick: TickLength,
        budget: usize,
        mut expired: impl FnMut(Ended<K, O>, (u64, u64)),
    ) -> Advanced {
        let Room { entries: Entries { wheel, room }, timed, .. } = self;
        let mut due = Vec::new();
        let turn = wheel.advance(now, budget, |mut task| {
            let Some(payload) = task.get_mut().claim(&Outcome::Expired) else {
                if failpoint!(ExpiryRemovesCheckedOut) {
                    task.take();
                }
                return;
            };
            let order = (task.deadline(), task.id().sequence());
            if let Some(timed) = timed {
                let late_ns = now_ns.saturating_sub(tick.start_ns(order.0));
                timed.ended(&Outcome::Expired, task.get_mut().age_us(now_ns / 1000), late_ns);
            }
            let id = TimerHandle::new(*room as usize, task.id());
            due.push((id, payload, order)); // its neighbours cannot be reached from here
        });
        self.lists.read_ahead(&self.entries, due.iter().map(|(id, ..)| *id));
        for (id, payload, order) in due {
            self.counts.ended(&Outcome::Expired);
            let (tickets, left) = self.take_out(id);
            let outcome = Outcome::Expired;
            expired(Ended { id, payload, outcome, tickets, left, timed: None }, order);
        }
        turn
    }

    /// As [`expire`](Self::expire), but what nobody holds is checked out for its last check.
    pub(crate) fn check_out_expired(
        &mut self,
        now: u64,
        budget: usize,
        mut expired: impl FnMut(CheckedOut<O>, (u64, u64)),
    ) -> Advanced {
        let Room { entries: Entries { wheel, room }, .. } = self;
        wheel.advance(now, budget, |mut task| {
            let Some(payload) = task.get_mut().check_out_for_last() else { return };
            let id = TimerHandle::new(*room as usize, task.id());
            let order = (task.deadline(), task.id().sequence());
            expired(CheckedOut { id, payload, verdict: Verdict::Unsatisfied }, order);
        })
    }
}

impl<K: Eq + Clone, O> Room<K, O> {
    /// Takes further watches away; adds to `left` the keys that nobody waits for any more.
    pub(crate) fn unwatch_all(&mut self, watches: &[(Ticket, TimerHandle)], left: &mut Vec<K>) {
        self.lists.read_ahead_further(&self.entries, watches);
        left.extend(watches.iter().filter_map(|&(ticket, id)| self.unwatch(ticket, id)));
    }
}
