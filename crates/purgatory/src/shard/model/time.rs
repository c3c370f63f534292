//! Steps in time: deadlines, rechecks, advances of the wheels.

use super::{
    super::{
        Cause, ParkInfo, ParkOptions,
        expire::{AdvanceLimits, CallbackJob},
    },
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

    /// Makes the options of an operation. One of three is to be rechecked before its time is up.
    pub(super) fn options(&mut self, deadline: Option<u64>) -> ParkOptions {
        let again = self.random.u8(..3) == 0;
        let first = self.now + self.random.u64(1..150);
        let armed = if again {
            Some(first.min(deadline.unwrap_or(u64::MAX)))
        } else {
            deadline
        };
        ParkOptions {
            now_tick: self.now,
            deadline_tick: deadline,
            visit_tick: armed,
            parked_ns: 0,
            info: ParkInfo {
                weight: self.made,
                label: None,
            },
            counted: 0,
            last_check: false,
            needs_value: false,
        }
    }

    pub(super) fn reschedule(&mut self, id: TimerHandle) {
        let deadline = self.any_tick();
        let options = self.options(deadline);
        let shard = &mut self.shards[id.shard()];
        let due = shard.reschedule(id, options);
        let next_due = shard.entries.wheel.next_due();
        let parked = self.reference.get(id).unwrap();
        let too_late = parked.end.is_some();
        assert_eq!(due.is_none(), too_late);
        self.reference.count_if(too_late, "rescheduled too late");
        let Some(due) = due else { return };
        let to = deadline.unwrap_or(u64::MAX);
        let armed = options.visit_tick.unwrap_or(u64::MAX);
        assert!(due <= armed.max(self.now));
        assert!(due == u64::MAX || next_due.is_some_and(|next| next <= due));
        let parked = self.reference.get(id).unwrap();
        parked.deadline = to;
        parked.armed = armed;
        parked.scheduled = armed < u64::MAX;
    }

    /// Advances the time, and one of the wheels.
    pub(super) fn expire(&mut self) {
        self.now += [0, 1, 20, 300][self.random.usize(..4)];
        let number = self.random.usize(..HOMES);
        let limits = AdvanceLimits {
            now: self.now,
            now_ns: 0,
            budget: usize::MAX,
            recheck_every: EVERY,
            last_check: self.random.u8(..4) == 0,
        };
        // 1. The shard.
        let mut called = Vec::new();
        let mut rechecks = Vec::new();
        let mut last_checks = Vec::new();
        let shard = &mut self.shards[number];
        let advanced = shard.expire(limits, |job, (tick, _)| match job {
            CallbackJob::Call(ended) => called.push((ended, tick)),
            CallbackJob::Recheck(handle) => rechecks.push((handle, tick)),
            CallbackJob::LastCheck(held) => last_checks.push((held, tick)),
        });
        assert_eq!(advanced.next_due, shard.entries.wheel.next_due());
        // 2. The reference, and what both say.
        let mut expected = self.reference.expire(number, limits);
        assert_eq!(advanced.fired, expected.due.len() + expected.left_to_holder);
        rechecks.sort();
        expected.rechecks.sort();
        assert_eq!(rechecks, expected.rechecks);
        self.reference
            .count_if(!last_checks.is_empty(), "a last check");
        let mut due = expected.due;
        // An operation behind others in turn has no last check.
        let mut behind = due.clone();
        behind.retain(|&id| self.reference.is_behind(id));
        let ends_behind = limits.last_check && !behind.is_empty();
        self.reference
            .count_if(ends_behind, "behind others without a last check");
        for (held, deadline) in last_checks {
            assert!(
                limits.last_check && !behind.contains(&held.handle),
                "not asked for"
            );
            due.retain(|&other| other != held.handle);
            self.queue_last_check(held, deadline);
        }
        for (ended, deadline) in called {
            assert!(deadline <= self.now, "early");
            let number = ended.to_release.weight.expect("it was parked"); // with its number as its weight
            let handle = self.reference.handle_of(number);
            let is_last = !limits.last_check || behind.contains(&handle);
            assert!(is_last, "ended without a last check");
            due.retain(|&other| other != handle);
            assert_eq!(self.departed(ended, &Outcome::Expired), deadline);
        }
        assert_eq!(due, [], "not reported");
    }

    /// Keeps the payload of a last check as its job does, until a later step checks it in.
    fn queue_last_check(&mut self, held: CheckedOut<Operation>, deadline: u64) {
        let parked = self.reference.get(held.handle).unwrap();
        assert_eq!(
            (held.payload.number, deadline, held.cause),
            (parked.payload, parked.deadline, Cause::Recheck)
        );
        parked.held = true;
        parked.end = Some(Outcome::Expired);
        parked.scheduled = false;
        self.held.push(held);
    }

    /// Does what the executor does for a queued recheck; or for one that is over.
    pub(super) fn check_out_for_recheck(&mut self, handle: TimerHandle) {
        let held = self.shards[handle.shard()].check_out_for_recheck(handle);
        let is_behind = self.reference.is_behind(handle);
        let parked = self.reference.get(handle).unwrap();
        let was_due = std::mem::take(&mut parked.due_again);
        if is_behind {
            assert!(held.is_none(), "it waits behind others in turn");
            return;
        }
        let was_held = std::mem::replace(&mut parked.held, true);
        parked.recheck |= was_held;
        assert_eq!(held.is_some(), !was_held);
        self.reference
            .count_if(was_due && !was_held, "checked again");
        self.reference
            .count_if(was_due && was_held, "a recheck found it held");
        self.held.extend(held);
    }
}
