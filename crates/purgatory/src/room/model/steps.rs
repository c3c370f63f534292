//! The steps: the room first, then the reference, then what both say.

use super::{
    super::{Batch, Entry, Next, Span, Verdict, WatchList},
    reference::{Linked, Parked, Walk},
    *,
};
use crate::operation::{CancelReason, Outcome};

type Ended = super::super::Ended<Key, u64>;

impl Model {
    pub(super) fn step(&mut self) {
        self.made += 1;
        if self.made == 1 || self.random.u16(..self.many.max(40)) == 0 {
            let many = usize::from(self.many);
            self.most = [0, 3, many, many][self.random.usize(..4)];
        }
        self.watermark += u64::from(self.random.u8(..4) == 0);
        match self.random.u8(..100) {
            0..35 if self.reference.all.len() < self.most => self.park(),
            35..55 if !self.arriving.is_empty() => self.go_on_arriving(),
            55..60 if !self.reference.all.is_empty() => {
                let id = self.any_id();
                self.check_out(id);
            }
            60..68 if !self.held.is_empty() => {
                let at = self.random.usize(..self.held.len());
                self.give_back(at);
            }
            68..71 if !self.reference.all.is_empty() => {
                let id = self.any_id();
                self.claim(id);
            }
            71..77 => self.rise(),
            77..79 if !self.taken.is_empty() => self.count_down(),
            79..81 => self.check_out_walk(),
            81..83 => self.walk(),
            83..87 if !self.reference.walks.is_empty() => self.walk_on(),
            87..89 if !self.reference.all.is_empty() => self.reschedule(),
            89..93 => self.expire(),
            93..97 if !self.reference.leaving.is_empty() => {
                let at = self.random.usize(..self.reference.leaving.len());
                self.release(at);
            }
            97 if !self.reference.all.is_empty() => match self.random.bool() {
                true => self.look(),
                false => self.check_out_again(),
            },
            98 => self.touch_gone(),
            _ => self.read(),
        }
        self.compare();
    }

    fn any_key(&mut self) -> Number {
        Number(self.random.u16(..self.keys))
    }

    pub(super) fn any_id(&mut self) -> TimerHandle {
        self.reference.all[self.random.usize(..self.reference.all.len())].id
    }

    fn any_limit(&mut self) -> usize {
        [1, 1, 2, 3, 64][self.random.usize(..5)]
    }

    fn any_value(&mut self) -> u64 {
        self.watermark + self.random.u64(..self.spread)
    }

    fn park(&mut self) {
        let mut to_watch = Vec::new();
        let (watermarked, counted) = (self.random.bool(), self.random.bool());
        let watches = [1, 1, 1, 2, 3, 4][self.random.usize(..6)];
        for _ in 0..watches {
            let with_level = watermarked && self.random.u8(..8) > 0;
            let watermark = with_level.then(|| Watermark { threshold: self.any_value(), counted });
            let watch = (self.any_key(), watermark);
            if !to_watch.contains(&watch) {
                to_watch.push(watch);
            }
        }
        let counted = to_watch
            .iter()
            .filter(|(_, watermark)| watermark.is_some_and(|watermark| watermark.counted));
        let counted = counted.count();
        let (key, watermark) = to_watch.remove(0);
        let (first_room, payload, deadline) = (key.room(), self.made, self.any_tick());
        let parked_ns = self.now * 1_000_000 + self.random.u64(..1_000_000);
        let span = Span { counted, ..self.span(deadline, parked_ns) };
        let at_once = to_watch.is_empty() && self.random.u8(..4) > 0;
        let of = self.key(key);
        let room = &mut self.rooms[first_room];
        assert_eq!(room.refuses(), None);
        let watch = Watch { key: &of, hash: key.hash(), version: 0, watermark };
        let (id, due) = room.park(span, self.sequence, at_once.then_some(payload), &watch);
        assert!(due == u64::MAX || room.entries.wheel.next_due().is_some_and(|next| next <= due));
        let chosen = deadline.unwrap_or(u64::MAX);
        assert_eq!(due == u64::MAX, span.armed.is_none_or(|armed| armed == u64::MAX));
        self.linked(key, watermark, Linked::first(id));
        let of = &mut self.reference.homes[first_room];
        of.sequence = self.sequence.unwrap_or(of.sequence).wrapping_add(1);
        of.counts.parked += u64::from(at_once);
        self.sequence = self.sequence.map(|_| of.sequence);
        self.reference.all.push(Parked {
            id,
            payload,
            parked_ns,
            deadline: chosen,
            armed: span.armed.unwrap_or(u64::MAX),
            due_again: false,
            scheduled: span.armed.is_some_and(|armed| armed < u64::MAX),
            sequence: of.sequence,
            counted,
            tickets: Vec::new(),
            arrives: !at_once,
            held: !at_once,
            recheck: false,
            seen: false,
            end: None,
        });
        if !at_once {
            self.arriving.push(Arriving { id, payload, tickets: Vec::new(), to_watch });
        }
    }

    fn linked(&mut self, key: Number, watermark: Option<Watermark>, waiter: Linked) {
        let waiting = self.reference.homes[key.room()].keys.get(&key);
        let waits = |waiter: &Linked| waiting.is_some_and(|of| of.plain.contains(waiter));
        let over_it = |walk: &Walk| walk.room == key.room() && walk.rest.iter().any(waits);
        let joins = watermark.is_none() && self.reference.walks.iter().any(over_it);
        self.reference.count_if(joins, "joined while a walk is under way");
        self.reference.watch(key, watermark, waiter);
    }

    /// A further watch of an operation whose parker has watches to set; or the end of that.
    fn go_on_arriving(&mut self) {
        let at = self.random.usize(..self.arriving.len());
        let Some((key, watermark)) = self.arriving[at].to_watch.pop() else {
            return self.all_watched(at);
        };
        let id = self.arriving[at].id;
        if self.random.u8(..16) == 0 {
            return self.withdraw(at); // the room is full
        }
        let of = self.key(key);
        let watch = Watch { key: &of, hash: key.hash(), version: 0, watermark };
        let tickets = &mut self.arriving[at].tickets;
        let before = tickets.last().copied();
        let ticket = self.rooms[key.room()].watch(&watch, id, before).unwrap();
        tickets.push(ticket);
        assert_eq!(ticket.room as usize, key.room());
        self.linked(key, watermark, Linked::further(id, ticket));
    }

    fn all_watched(&mut self, at: usize) {
        let Arriving { id, payload, tickets, .. } = self.arriving.swap_remove(at);
        let passed = self.random.u8(..4) == 0;
        self.reference.count_if(passed, "an event passed while it arrived");
        self.rooms[id.shard()].arrived(id, tickets.last().copied(), passed);
        self.reference.homes[id.shard()].counts.parked += 1;
        let parked = self.reference.get(id).unwrap();
        (parked.tickets, parked.arrives) = (tickets, false);
        parked.recheck |= passed;
        self.settle(CheckedOut { id, payload, verdict: Verdict::Unsatisfied });
    }

    pub(super) fn withdraw(&mut self, at: usize) {
        let Arriving { id, tickets, .. } = self.arriving.swap_remove(at);
        let left = self.rooms[id.shard()].withdraw(id);
        let foreign = tickets.iter().any(|ticket| ticket.room as usize != id.shard());
        self.reference.get(id).unwrap().tickets = tickets;
        let (_, expected) = self.reference.remove(id);
        assert_eq!(left.map(|key| key.number), expected);
        self.reference.count_if(true, "withdrawn");
        self.reference.count_if(foreign, "withdrawn with watches in both rooms");
    }

    /// As an event does.
    fn check_out(&mut self, id: TimerHandle) {
        let held = self.rooms[id.shard()].check_out(id);
        let expected = self.reference.check_out(id);
        assert_eq!(held.as_ref().map(|held| (held.id, held.payload)), expected.map(|of| (id, of)));
        let noted = held.is_none() && self.reference.get(id).is_some();
        self.reference.count_if(noted, "an event found it held");
        self.held.extend(held);
    }

    pub(super) fn give_back(&mut self, at: usize) {
        let mut held = self.held.swap_remove(at);
        held.verdict = match self.random.u8(..8) {
            0..2 => Verdict::Satisfied,
            2 => Verdict::Panicked,
            _ => Verdict::Unsatisfied,
        };
        self.settle(held);
    }

    fn settle(&mut self, held: CheckedOut<u64>) {
        let (id, verdict) = (held.id, held.verdict);
        let given_back = self.rooms[id.shard()].give_back(held, self.now_ns());
        match (given_back, self.reference.settle(id, verdict)) {
            (Next::Parked, Next::Parked) => {}
            (Next::CheckAgain(again), Next::CheckAgain(payload)) => {
                assert_eq!((again.id, again.payload), (id, payload));
                self.reference.count_if(true, "check again");
                self.held.push(again);
            }
            (Next::Ended(ended), Next::Ended((_, outcome))) => {
                self.departed(ended, &outcome);
            }
            (given_back, expected) => panic!("{given_back:?}, and expected {expected:?}"),
        }
    }

    /// Compares what has ended; returns its deadline and sequence.
    pub(super) fn departed(&mut self, ended: Ended, outcome: &Outcome) -> (u64, u64) {
        let id = self.reference.id_of(ended.payload);
        let (parked, left) = self.reference.remove_ended(id, outcome);
        assert_eq!((ended.payload, &ended.outcome), (parked.payload, outcome));
        assert_eq!(ended.further, parked.tickets.last().copied());
        assert_eq!(ended.permit, Some(parked.payload)); // as it was parked with
        assert_eq!(ended.left.map(|key| key.number), left);
        self.reference.count_if(left.is_some(), "a key whose last waiter left");
        if self.rooms[id.shard()].timed.is_some() {
            self.reference.time_end(&parked, outcome, self.now);
        }
        (parked.deadline, parked.sequence)
    }

    pub(super) fn claim(&mut self, id: TimerHandle) {
        let asked = Outcome::Cancelled(CancelReason::Requested("asked".into()));
        let outcome = [Outcome::Completed, asked][self.random.usize(..2)].clone();
        let ended = self.rooms[id.shard()].claim(id, outcome.clone(), self.now_ns());
        assert_eq!(ended.is_some(), self.reference.claim(id, &outcome));
        ended.into_iter().for_each(|ended| _ = self.departed(ended, &outcome));
    }

    /// Watermark watches are taken off a key; counted down at once if all are with their first key
    /// here, as in an event, otherwise in later steps.
    fn rise(&mut self) {
        let (key, value, limit) =
            (self.any_key(), self.any_value() - self.watermark.min(self.behind), self.any_limit());
        let all = self.random.u8(..8) == 0;
        let found = self.look_up(key, |room, of| room.find(of, key.hash()));
        assert_eq!(found.is_some(), self.reference.homes[key.room()].keys.contains_key(&key));
        let Some(record) = found else { return };
        let (mut taken, of) = (Vec::new(), self.key(key));
        let room = &mut self.rooms[key.room()];
        let before = room.waiting_unmet(&of, key.hash());
        let took = room.pop_up_to(record, value, all, limit, |id| taken.push(id));
        // The watches that have left are looked at, too.
        let looked_at = before - room.waiting_unmet(&of, key.hash());
        let (expected, done, left) = self.reference.pop_up_to(key, value, all, looked_at);
        let in_the_way = !took.all && done; // one that has left, or all the limit went to such
        self.reference.count_if(in_the_way, "a look at watches that have left");
        assert!((took.all || in_the_way) == done, "taken up to {value}");
        assert_eq!(taken, expected, "taken up to {value}");
        assert_eq!(took.left.map(|key| key.number), left);
        let here = taken.iter().all(|id| id.shard() == key.room());
        let now = self.taken.len();
        self.taken.extend(taken.into_iter().map(|id| (id, all)));
        while here && self.taken.len() > now {
            self.count_down();
        }
    }

    fn count_down(&mut self) {
        let Some((id, cancel)) = self.taken.pop() else { return };
        if cancel {
            return self.claim(id);
        }
        let (at, room) = (self.now_ns(), &mut self.rooms[id.shard()]);
        let counted = room.get_mut(id).map(Entry::count_down);
        assert_eq!(counted, self.reference.count_down(id));
        match counted {
            Some(true) => {
                let ended = room.claim(id, Outcome::Completed, at);
                assert_eq!(ended.is_some(), self.reference.claim(id, &Outcome::Completed));
                ended.into_iter().for_each(|ended| _ = self.departed(ended, &Outcome::Completed));
            }
            Some(false) => self.check_out(id),
            _ => {}
        }
    }

    fn walk(&mut self) {
        let (key, limit) = (self.any_key(), self.any_limit());
        let place = [WatchList::Plain, WatchList::Met][self.random.usize(..2)];
        let record = self.rooms[key.room()].find(&self.key(key), key.hash());
        let Some(record) = record else { return };
        let mut found = Vec::new();
        let room = &mut self.rooms[key.room()];
        let on = room.walk(record, place, limit, |of, waiter| found.push(waiter.id(of)));
        let waiting = &self.reference.homes[key.room()].keys[&key];
        let rest = if place == WatchList::Plain { &waiting.plain } else { &waiting.met }.clone();
        let several = on.is_some();
        self.reference.count_if(several, "a walk of several steps");
        let over_met = several && place == WatchList::Met;
        self.reference.count_if(over_met, "a walk over met ones in several steps");
        self.walked(Walk { room: key.room(), number: 0, rest }, on, found, limit);
    }

    /// As an event: what a first step finds is checked out on the way, but only what waits for its
    /// first key; a further watch is left to be checked out by its id, with their first key here or
    /// not.
    fn check_out_walk(&mut self) {
        let (key, limit) = (self.any_key(), self.any_limit());
        let Some(record) = self.rooms[key.room()].find(&self.key(key), key.hash()) else { return };
        let (room, mut batch) = (&mut self.rooms[key.room()], Batch::new());
        let on = room.walk(record, WatchList::Plain, limit, batch.finding());
        let mut rest = self.reference.homes[key.room()].keys[&key].plain.clone();
        let step: Vec<_> = rest.drain(..limit.min(rest.len())).collect();
        let (mut held, mut elsewhere) = (Vec::new(), Vec::new());
        for Linked { at, id } in step {
            if at == id.id().index() {
                held.extend(self.reference.check_out(id).map(|payload| (id, payload)));
            } else {
                elsewhere.push((held.len(), id));
            }
        }
        assert!(batch.held.iter().map(|held| (held.id, held.payload)).eq(held));
        assert_eq!(*batch.foreign, *elsewhere);
        self.reference.count_if(!elsewhere.is_empty(), "an event found further watches");
        self.held.extend(batch.held);
        self.walked(Walk { room: key.room(), number: 0, rest }, on, Vec::new(), 0);
    }

    fn walk_on(&mut self) {
        let at = self.random.usize(..self.reference.walks.len());
        let (walk, limit) = (self.reference.walks.swap_remove(at), self.any_limit());
        let room = &mut self.rooms[walk.room];
        if self.random.u8(..16) == 0 {
            return room.end_walk(walk.number);
        }
        let mut found = Vec::new();
        let on = room.walk_on(walk.number, limit, |of, waiter| found.push(waiter.id(of)));
        self.reference.count_if(found.is_empty(), "a step of a walk that finds nobody");
        self.walked(walk, on, found, limit);
    }

    /// Compares a step of a walk; then what was found is left, checked out or claimed.
    fn walked(&mut self, mut walk: Walk, on: Option<u64>, found: Vec<TimerHandle>, limit: usize) {
        let step = walk.rest.drain(..limit.min(walk.rest.len()));
        assert!(step.map(|waiter| waiter.id).eq(found.iter().copied()), "{found:?}");
        assert_eq!(on.is_none(), walk.rest.is_empty());
        if let Some(number) = on {
            self.reference.walks.push(Walk { number, ..walk });
        }
        match self.random.u8(..8) {
            0..4 => found.into_iter().for_each(|id| self.check_out(id)),
            4 => found.into_iter().for_each(|id| self.claim(id)),
            _ => {}
        }
    }

    /// The last further watch of what has ended is released.
    pub(super) fn release(&mut self, at: usize) {
        let (id, mut tickets) = self.reference.leaving.swap_remove(at);
        let ticket = tickets.pop().expect("a watch to be released");
        let (of, waiter) = (ticket.room as usize, Linked::further(id, ticket));
        let before = tickets.last().copied();
        let room = &mut self.rooms[of];
        let key =
            room.further_key(ticket, id).map(|(key, before)| (key.map(|key| key.number), before));
        assert_eq!(key, Some((self.reference.key_of(of, waiter), before)));
        let (then, left) = room.unwatch(ticket);
        assert_eq!(then, before);
        assert!(room.further_key(ticket, id).is_none());
        assert_eq!(left.map(|key| key.number), self.reference.unwatch(of, waiter));
        if !tickets.is_empty() {
            self.reference.leaving.push((id, tickets));
        }
    }

    /// As a snapshot does.
    fn look(&mut self) {
        let id = self.any_id();
        let first_key = self.rooms[id.shard()].first_key(id).map(|key| key.number);
        assert_eq!(first_key, self.reference.key_of(id.shard(), Linked::first(id)));
        let looked = self.rooms[id.shard()].get_mut(id).unwrap().look();
        let parked = self.reference.get(id).unwrap();
        let seen = std::mem::replace(&mut parked.seen, parked.held);
        assert_eq!(looked, parked.held.then_some(seen));
        self.reference.count_if(looked == Some(true), "a look that saw a check before");
    }

    fn touch_gone(&mut self) {
        let Some(id) = self.random.choice(&self.reference.gone).copied() else { return };
        let span = self.span(None, 0);
        let room = &mut self.rooms[id.shard()];
        assert!(room.check_out(id).is_none() && room.claim(id, Outcome::Completed, None).is_none());
        assert!(room.check_out_again(id).is_none());
        assert_eq!((room.reschedule(id, span), room.get_mut(id).is_none()), (None, true));
        self.reference.count_if(true, "named by an id that is gone");
        let never = TimerHandle::new(id.shard(), TaskId::from_parts(1 << 20, 0));
        assert!(self.rooms[id.shard()].check_out(never).is_none());
    }

    fn read(&mut self) {
        let key = self.any_key();
        let waiters = self.look_up(key, |room, of| {
            room.find(of, key.hash()).map_or(0, |record| room.waiters(record))
        });
        let expected = self.reference.homes[key.room()].keys.get(&key).map_or(0, |of| of.len());
        assert_eq!(waiters, expected);
    }
}
