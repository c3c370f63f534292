//! Steps in time: deadlines, rechecks, turning the wheels.

use super::{
    super::{CallbackJob, Cause, ParkInfo, ParkTimes, Turn},
    reference::Parked,
    *,
};
use crate::operation::Outcome;

/// Ticks from one recheck to the next.
const EVERY: u64 = 30;

impl Model {
    pub(super) fn any_tick(&mut self) -> Option<u64> {
        match self.random.u8(..16) {
            0 => None,
            1 => Some(u64::MAX),
            2 => Some(self.now.saturating_sub(self.random.u64(..50))),
            3..5 => Some(self.now + self.random.u64(..100_000)),
            _ => Some(self.now + self.random.u64(..200)),
        }
    }

    /// Of three operations one is to be checked again before its time is up.
    pub(super) fn span(&mut self, deadline: Option<u64>) -> ParkTimes {
        let again = self.random.u8(..3) == 0;
        let first = self.now + self.random.u64(1..150);
        let armed = if again {
            Some(first.min(deadline.unwrap_or(u64::MAX)))
        } else {
            deadline
        };
        ParkTimes {
            now: self.now,
            deadline,
            armed,
            parked_ns: 0,
            info: ParkInfo {
                weight: self.made,
                label: None,
            },
            counted: 0,
        }
    }

    pub(super) fn reschedule(&mut self, id: TimerHandle) {
        let deadline = self.any_tick();
        let span = self.span(deadline);
        let shard = &mut self.shards[id.shard()];
        let due = shard.reschedule(id, span);
        let next_due = shard.entries.wheel.next_due();
        let parked = self.reference.get(id).unwrap();
        let too_late = parked.end.is_some();
        assert_eq!(due.is_none(), too_late);
        self.reference.count_if(too_late, "rescheduled too late");
        let Some(due) = due else { return };
        let to = deadline.unwrap_or(u64::MAX);
        let armed = span.armed.unwrap_or(u64::MAX);
        assert!(due <= armed.max(self.now));
        assert!(due == u64::MAX || next_due.is_some_and(|next| next <= due));
        let parked = self.reference.get(id).unwrap();
        (parked.deadline, parked.armed, parked.scheduled) = (to, armed, armed < u64::MAX);
    }

    /// Time passes, and one of the wheels is turned: what the wheel comes by ends, is noted to its
    /// holder, or is told to be checked and put back.
    pub(super) fn expire(&mut self) {
        self.now += [0, 1, 20, 300][self.random.usize(..4)];
        let (now, number) = (self.now, self.random.usize(..HOMES));
        let last_check = self.random.u8(..4) == 0;
        let turn = Turn {
            now,
            now_ns: 0,
            budget: usize::MAX,
            recheck_every: EVERY,
            last_check,
        };
        let (mut told, mut checks) = (Vec::new(), Vec::new());
        let mut last_checks = Vec::new();
        let shard = &mut self.shards[number];
        let advanced = shard.expire(turn, |fired, (tick, _)| match fired {
            CallbackJob::Call(ended) => told.push((ended, tick)),
            CallbackJob::Recheck(handle) => checks.push((handle, tick)),
            CallbackJob::LastCheck(held) => last_checks.push((held, tick)),
        });
        assert_eq!(advanced.next_due, shard.entries.wheel.next_due());
        let (mut due, mut noted, mut again) = (Vec::new(), 0, Vec::new());
        let come_by = |parked: &&mut Parked| parked.scheduled && parked.armed <= now;
        let of_shard = self
            .reference
            .all
            .iter_mut()
            .filter(|of| of.id.shard() == number);
        for parked in of_shard.filter(come_by) {
            if now < parked.deadline {
                if !std::mem::replace(&mut parked.due_again, true) {
                    again.push((parked.id, parked.armed));
                }
                parked.armed = (now + EVERY).min(parked.deadline);
            } else if parked.held {
                parked.end.get_or_insert(Outcome::Expired);
                parked.scheduled = false;
                noted += 1;
            } else {
                due.push(parked.id);
            }
        }
        assert_eq!(advanced.fired, due.len() + noted);
        if last_check {
            assert!(told.is_empty(), "ended without a last check");
            let count = last_checks.len();
            self.reference.count_if(count > 0, "a last check");
        }
        for (held, deadline) in last_checks {
            assert!(last_check, "not asked for");
            due.retain(|&other| other != held.handle);
            let parked = self.reference.get(held.handle).unwrap();
            assert_eq!(
                (held.payload, deadline, held.cause),
                (parked.payload, parked.deadline, Cause::Recheck)
            );
            parked.held = true;
            parked.end = Some(Outcome::Expired);
            parked.scheduled = false;
            self.held.push(held);
        }
        for (ended, deadline) in told {
            let id = self.reference.id_of(ended.payload);
            due.retain(|&other| other != id);
            assert_eq!(self.departed(ended, &Outcome::Expired), deadline);
            assert!(deadline <= now, "early");
        }
        assert_eq!(due, [], "not told");
        self.reference.count_if(noted > 0, "expired while held");
        self.reference.count_if(!again.is_empty(), "due again");
        checks.sort();
        again.sort();
        assert_eq!(checks, again);
    }

    /// The executor comes to an operation whose recheck is queued, or was.
    pub(super) fn check_out_for_recheck(&mut self, handle: TimerHandle) {
        let held = self.shards[handle.shard()].check_out_for_recheck(handle);
        let parked = self.reference.get(handle).unwrap();
        let was_held = std::mem::replace(&mut parked.held, true);
        let was_due = std::mem::take(&mut parked.due_again);
        parked.recheck |= was_held;
        assert_eq!(held.is_some(), !was_held);
        self.reference
            .count_if(was_due && !was_held, "checked again");
        self.reference
            .count_if(was_due && was_held, "a recheck found it held");
        self.held.extend(held);
    }
}
