//! Steps in time: deadlines, rechecks, turning the wheels.

use timer_core::TickLength;

use super::{
    super::{Fired, Order, Span, Tag, Turn},
    reference::Parked,
    *,
};
use crate::operation::Outcome;

type Ended = super::super::Ended<Key, u64>;

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
    pub(super) fn span(&mut self, deadline: Option<u64>, parked_ns: u64) -> Span {
        let again = self.random.u8(..3) == 0;
        let first = self.now + self.random.u64(1..150);
        let armed = if again { Some(first.min(deadline.unwrap_or(u64::MAX))) } else { deadline };
        Span {
            now: self.now,
            deadline,
            armed,
            parked_ns,
            tag: Tag { weight: self.made, label: None },
            counted: 0,
        }
    }

    pub(super) fn reschedule(&mut self) {
        let (id, deadline) = (self.any_id(), self.any_tick());
        let span = self.span(deadline, 0);
        let room = &mut self.rooms[id.shard()];
        let due = room.reschedule(id, span);
        let next_due = room.entries.wheel.next_due();
        let parked = self.reference.get(id).unwrap();
        let (too_late, was) = (parked.end.is_some(), parked.deadline);
        assert_eq!(due.is_none(), too_late);
        self.reference.count_if(too_late, "rescheduled too late");
        let Some(due) = due else { return };
        let to = deadline.unwrap_or(u64::MAX);
        let armed = span.armed.unwrap_or(u64::MAX);
        assert!(due <= armed.max(self.now));
        assert!(due == u64::MAX || next_due.is_some_and(|next| next <= due));
        let parked = self.reference.get(id).unwrap();
        (parked.deadline, parked.armed, parked.scheduled) = (to, armed, armed < u64::MAX);
        self.reference.count_if(was == u64::MAX && to < u64::MAX, "rescheduled from never");
        self.reference.count_if(was < u64::MAX && to == u64::MAX, "rescheduled to never");
        self.reference.count_if(was < u64::MAX && to < u64::MAX, "rescheduled");
    }

    /// Time passes, and one of the wheels is turned.
    pub(super) fn expire(&mut self) {
        self.now += [0, 1, 20, 300][self.random.usize(..4)];
        let (now, number) = (self.now, self.random.usize(..HOMES));
        let budget = [1, 2, 5, 64, usize::MAX][self.random.usize(..5)];
        let now_ns = TickLength::MILLISECOND.start_ns(now);
        let turn = Turn { now, now_ns, budget, every: EVERY, last_check: false };
        let mut told = Vec::new();
        let room = &mut self.rooms[number];
        let turned_to = room.entries.wheel.now();
        let mut again = Vec::new();
        let advanced = room.expire(turn, |fired, order| match fired {
            Fired::Over(ended) => told.push((ended, order)),
            Fired::Check(id) => again.push((id, order)),
        });
        let fired = told.len();
        self.assert_told(told, turned_to);
        let put_back = self.assert_put_back(number, again);
        let (noted, left) = self.note_expired(number);
        let stopped = advanced.fired + advanced.cascaded == budget;
        assert!(advanced.fired + advanced.cascaded <= budget);
        assert!(advanced.fired == fired + noted && advanced.cascaded >= put_back);
        assert!(left == 0 || stopped && advanced.next_due.is_some_and(|due| due <= now));
        assert_eq!(advanced.next_due, self.rooms[number].entries.wheel.next_due());
        self.reference.count_if(fired > 0, "expired");
        self.reference.count_if(noted > 0, "expired while held");
        self.reference.count_if(left > 0, "expiry stopped by its budget");
    }

    /// Each is told once its time is up, in order of tick.
    fn assert_told(&mut self, told: Vec<(Ended, Order)>, turned_to: u64) {
        let mut before = 0;
        for (ended, order) in told {
            let id = self.reference.id_of(ended.payload);
            let parked = self.reference.get(id).unwrap();
            let on_time = parked.armed == parked.deadline;
            assert_eq!(self.departed(ended, &Outcome::Expired), order);
            assert!(order.0 <= self.now, "early");
            assert!(!on_time || order.0 <= turned_to || before <= order.0, "not in order of tick");
            before = if on_time { before.max(order.0) } else { before };
        }
    }

    /// What the wheel came by early is told once, and back on the wheel; returns how many.
    fn assert_put_back(&mut self, number: usize, again: Vec<(TimerHandle, Order)>) -> usize {
        let (now, room) = (self.now, &self.rooms[number]);
        let (mut put_back, mut expected, mut left) = (0, Vec::new(), false);
        for parked in &mut self.reference.all {
            let early = parked.armed <= now && now < parked.deadline;
            if !early || parked.id.shard() != number {
                continue;
            }
            if room.entries.wheel.deadline(parked.id.id()) == Some(parked.armed) {
                left = true; // by the budget
                continue;
            }
            put_back += 1;
            if !std::mem::replace(&mut parked.due_again, true) {
                expected.push((parked.id, (parked.armed, parked.sequence)));
            }
            parked.armed = (now + EVERY).min(parked.deadline);
        }
        expected.sort_by_key(|(_, order)| *order);
        let mut again = again;
        again.sort_by_key(|(_, order)| *order);
        assert_eq!(again, expected);
        self.reference.count_if(!expected.is_empty(), "due again");
        self.reference.count_if(put_back > expected.len(), "due again, as it was before");
        self.reference.count_if(left, "a recheck left by the budget");
        put_back
    }

    /// Held entries were left a note, if the budget went that far. Returns how many were, and how
    /// many the budget left.
    fn note_expired(&mut self, number: usize) -> (usize, usize) {
        let (now, room) = (self.now, &self.rooms[number]);
        let in_bucket = |id: TimerHandle| room.entries.wheel.bucket_of(id.id()).is_some();
        let due = |parked: &Parked| {
            parked.scheduled && parked.id.shard() == number && parked.deadline <= now
        };
        let due = self.reference.all.iter().filter(|parked| due(parked));
        let (left, noted): (Vec<_>, Vec<_>) =
            due.map(|parked| parked.id).partition(|&id| in_bucket(id));
        for id in &noted {
            assert!(!self.reference.claim(*id, &Outcome::Expired), "only what is held stays");
            self.reference.get(*id).unwrap().scheduled = false;
        }
        (noted.len(), left.len())
    }

    /// The executor comes to an operation that is due again; or to one that is not, any more.
    pub(super) fn check_out_again(&mut self) {
        let id = self.any_id();
        let held = self.rooms[id.shard()].check_out_again(id);
        let parked = self.reference.get(id).unwrap();
        let was_held = std::mem::replace(&mut parked.held, true);
        let was_due = std::mem::take(&mut parked.due_again);
        assert_eq!(held.is_some(), !was_held);
        self.reference.count_if(was_due && !was_held, "checked again");
        self.held.extend(held);
    }
}
