//! The steps. Each calls the shard, then the reference, and compares their results.

use super::{
    super::{
        CheckedIn, CountedDown, Inserted, ParkOptions, Payload, Popped, Then, TurnCause, Verdict,
        WatchList,
        entry::{Cause, Decision},
        watchers::SecondaryKey,
    },
    futures::same,
    reference::{Answered, Linked, Parked, Walk},
    *,
};
use crate::{
    operation::{CancelReason, Outcome},
    shard::WatermarkKind,
};

type Ended = super::super::Ended<Key, Operation>;

impl Model {
    pub(super) fn step(&mut self) {
        self.made += 1;
        if self.made == 1 || self.random.u16(..self.many.max(40)) == 0 {
            let many = usize::from(self.many);
            self.most = [0, 3, many, many][self.random.usize(..4)];
        }
        self.watermark += u64::from(self.random.u8(..4) == 0);
        let any = self.any_id(|_| true);
        match (self.random.u8(..100), any) {
            (0..35, _) if self.reference.all.len() < self.most => self.park(),
            (35..55, _) => self.go_on_arriving(),
            (55..57, Some(id)) => self.check_out(id),
            (57 | 58, Some(id)) => self.check_out_in_turn(id),
            (59, _) => self.reach(),
            (60..68, _) if !self.held.is_empty() => {
                let at = self.random.usize(..self.held.len());
                self.check_in(at);
            }
            (68..71, Some(id)) => self.claim(id),
            (71..77, _) => self.advance(),
            (77..79, _) => self.count_down(),
            (79..83, _) => self.walk(),
            (83..87, _) if !self.reference.walks.is_empty() => self.walk_on(),
            (87..89, Some(id)) => self.reschedule(id),
            (89..93, _) => self.expire(),
            (93..97, _) if !self.reference.leaving.is_empty() => {
                let at = self.random.usize(..self.reference.leaving.len());
                self.release(at);
            }
            (97, Some(id)) => self.check_out_for_recheck(id),
            (98..100, _) => self.future_step(),
            _ => self.go_on_arriving(),
        }
        self.compare();
    }

    /// A step of a future, or of what answers it.
    fn future_step(&mut self) {
        let parked = self.reference.all.iter().filter(|parked| parked.awaited);
        let parked = parked.map(|parked| parked.id);
        let answered = self.reference.answered.iter().map(|answered| answered.id);
        let Some(id) = self
            .random
            .choice(parked.chain(answered).collect::<Vec<_>>())
        else {
            return;
        };
        match self.random.u8(..8) {
            0..4 => self.poll(id),
            4 => self.abandon(id),
            5..7 if self.reference.get(id).is_some() => self.complete_in_place(id),
            _ => self.answer_ended(),
        }
    }

    fn any_key(&mut self) -> Number {
        Number(self.random.u16(..self.keys))
    }

    /// One of the operations of this kind.
    fn any_id(&mut self, kind: impl Fn(&&Parked) -> bool) -> Option<TimerHandle> {
        let ids = self
            .reference
            .all
            .iter()
            .filter(kind)
            .map(|parked| parked.id);
        self.random.choice(ids.collect::<Vec<_>>())
    }

    fn any_limit(&mut self) -> usize {
        [1, 1, 2, 3, 64][self.random.usize(..5)]
    }

    fn any_value(&mut self) -> u64 {
        self.watermark + self.random.u64(..self.spread)
    }

    /// Parks an operation: under one key at once, otherwise held, to be watched in later steps.
    fn park(&mut self) {
        // 1. Choose it.
        let mut to_watch = self.any_watches();
        let is_counted = |of: &&(Number, Option<Watermark>)| {
            of.1.is_some_and(|of| of.kind == WatermarkKind::Threshold)
        };
        let counted = to_watch.iter().filter(is_counted).count();
        let (key, watermark) = to_watch.remove(0);
        let at_once = to_watch.is_empty() && self.random.u8(..4) > 0;
        let payload = self.made;
        let deadline = self.any_tick();
        let options = ParkOptions {
            counted,
            ..self.options(deadline)
        };
        // 2. The shard.
        let in_turn = to_watch.is_empty() && watermark.is_none() && self.random.bool();
        let awaited = self.random.bool();
        let operation = Model::payload_of(payload, awaited, at_once);
        let inserted = self.put_in(key, watermark, in_turn, options, operation);
        let armed = options.visit_tick.unwrap_or(u64::MAX);
        // 3. The reference.
        let id = inserted.handle;
        self.reference.watch_first(key, watermark, in_turn, id);
        let first_shard = &mut self.reference.homes[key.shard()];
        first_shard.counts.parked += u64::from(at_once);
        self.reference.all.push(Parked {
            id,
            payload,
            awaited,
            waker: None,
            deadline: deadline.unwrap_or(u64::MAX),
            armed,
            scheduled: armed < u64::MAX,
            due_again: false,
            counted,
            tickets: Vec::new(),
            to_watch: if at_once { None } else { Some(to_watch) },
            held: !at_once,
            check: false,
            event: false,
            for_all: false,
            for_event: false,
            abandoned: false,
            recheck: false,
            end: None,
        });
    }

    /// Puts an operation into the shard of its first key.
    fn put_in(
        &mut self,
        key: Number,
        watermark: Option<Watermark>,
        in_turn: bool,
        options: ParkOptions,
        payload: Payload<Operation>,
    ) -> Inserted {
        // 1. Put it in.
        let of = self.key(key);
        let watch = Watch {
            key: &of,
            hash: key.hash(),
            version: 0,
            watermark,
        };
        let shard = &mut self.shards[key.shard()];
        assert_eq!(shard.refuses(), None);
        let record = shard.record_of(&watch);
        let inserted = match (payload, watermark) {
            (payload, _) if in_turn => shard.park_in_turn(record, &options, None, payload),
            // As a wait for a value is.
            (Payload::Here(payload), Some(watermark))
                if watermark.kind == WatermarkKind::Threshold && self.random.bool() =>
            {
                shard.park_for_value(record, watermark.threshold, &options, None, payload)
            }
            (payload, _) => shard.park_at(record, &options, None, payload, watermark),
        };
        // 2. The wheel knows of it, unless it is never due.
        assert_eq!(
            inserted.due == u64::MAX,
            options.visit_tick.unwrap_or(u64::MAX) == u64::MAX
        );
        if inserted.due < u64::MAX {
            let next = shard.entries.wheel.next_due().expect("it is scheduled");
            assert!(next <= inserted.due);
        }
        inserted
    }

    /// Chooses the keys of an operation, and thresholds for them.
    fn any_watches(&mut self) -> Vec<(Number, Option<Watermark>)> {
        let mut watches = Vec::new();
        let watermarked = self.random.bool();
        let kind = [WatermarkKind::Threshold, WatermarkKind::Checked][self.random.usize(..2)];
        let count = [1, 1, 1, 2, 3, 4][self.random.usize(..6)];
        for _ in 0..count {
            let mut watermark = None;
            if watermarked && self.random.u8(..8) > 0 {
                let threshold = self.any_value();
                watermark = Some(Watermark { threshold, kind });
            }
            let watch = (self.any_key(), watermark);
            if !watches.contains(&watch) {
                watches.push(watch);
            }
        }
        watches
    }

    /// Sets one more watch of an operation that its parker holds; after the last one parks it.
    fn go_on_arriving(&mut self) {
        let Some(id) = self.any_id(|parked| parked.to_watch.is_some()) else {
            return;
        };
        let to_watch = self
            .reference
            .get(id)
            .and_then(|parked| parked.to_watch.as_mut());
        let Some((key, watermark)) = to_watch.and_then(Vec::pop) else {
            return self.all_watched(id);
        };
        if self.random.u8(..16) == 0 {
            return self.withdraw(id); // the shard is full
        }
        let of = self.key(key);
        let watch = Watch {
            key: &of,
            hash: key.hash(),
            version: 0,
            watermark,
        };
        let tickets = &mut self.reference.get(id).unwrap().tickets;
        let secondary = self.shards[key.shard()]
            .watch(&watch, id, tickets.last().copied())
            .unwrap();
        tickets.push(secondary);
        assert_eq!(secondary.shard as usize, key.shard());
        self.reference
            .watch(key, watermark, Linked::last_secondary(id, secondary));
    }

    fn all_watched(&mut self, id: TimerHandle) {
        let passed = self.random.u8(..4) == 0;
        let parked = self.reference.get(id).unwrap();
        let payload = Operation::new(parked.payload, parked.awaited);
        let last = parked.tickets.last().copied();
        parked.to_watch = None;
        parked.check |= passed;
        self.shards[id.shard()].arrived(id, last, passed);
        self.reference.homes[id.shard()].counts.parked += 1;
        self.check_in_as(CheckedOut::new(id, payload, Cause::Event));
    }

    pub(super) fn withdraw(&mut self, id: TimerHandle) {
        let withdrawn = self.shards[id.shard()].withdraw(id);
        let emptied_key = withdrawn.and_then(|withdrawn| withdrawn.emptied_key);
        let (parked, expected) = self.reference.remove(id);
        assert_eq!(emptied_key.map(|key| key.number), expected);
        let foreign = parked
            .tickets
            .iter()
            .any(|secondary| secondary.shard as usize != id.shard());
        self.reference
            .count_if(foreign, "withdrawn with watches in both shards");
    }

    /// Checks an operation out as an event does.
    fn check_out(&mut self, id: TimerHandle) {
        let held = self.shards[id.shard()].check_out(id);
        let expected = self.reference.check_out(id);
        assert_eq!(
            held.as_ref().map(|held| (held.handle, held.payload.number)),
            expected.map(|of| (id, of))
        );
        let requested = held.is_none() && self.reference.get(id).is_some();
        self.reference.count_if(requested, "an event found it held");
        self.held.extend(held);
    }

    /// Checks an operation in turn out as the head is, whether it is one or not.
    fn check_out_in_turn(&mut self, id: TimerHandle) {
        if !self.reference.is_in_turn(id) {
            return;
        }
        let causes = [
            TurnCause::HeadLeft,
            TurnCause::EventForOne,
            TurnCause::EventForAll,
        ];
        let cause = causes[self.random.usize(..3)];
        let held = self.shards[id.shard()].check_out_in_turn(id, cause);
        let expected = self.reference.check_out_in_turn(id, cause);
        let found = held.as_ref().map(|held| (held.payload.number, held.cause));
        assert_eq!(found, expected);
        self.held.extend(held);
    }

    pub(super) fn check_in(&mut self, at: usize) {
        let mut held = self.held.swap_remove(at);
        held.verdict = match self.random.u8(..8) {
            0..2 => Verdict::Satisfied,
            2 => Verdict::Panicked,
            _ => Verdict::Unsatisfied,
        };
        self.check_in_as(held);
    }

    fn check_in_as(&mut self, held: CheckedOut<Operation>) {
        let id = held.handle;
        let verdict = held.verdict;
        let checked_in = self.shards[id.shard()].check_in(held, None);
        match (checked_in, self.reference.check_in(id, verdict)) {
            (CheckedIn::Parked, Decision::Parked) => {}
            (CheckedIn::CheckAgain(again), Decision::CheckAgain(payload, cause)) => {
                assert_eq!(
                    (again.handle, again.payload.number, again.cause),
                    (id, payload, cause)
                );
                self.reference
                    .count_if(cause == Cause::Event, "check again");
                self.reference
                    .count_if(cause == Cause::Recheck, "check again for a recheck");
                self.held.push(again);
            }
            (CheckedIn::Ended(ended), Decision::Ended(_, outcome)) => {
                self.departed(ended, &outcome);
            }
            (checked_in, expected) => panic!("{checked_in:?}, and expected {expected:?}"),
        }
    }

    /// Compares an ended operation; returns its deadline.
    pub(super) fn departed(&mut self, ended: Ended, outcome: &Outcome) -> u64 {
        let number = ended.to_release.weight.expect("it was parked"); // with its number as its weight
        let id = self.reference.handle_of(number);
        let new_head = self.reference.new_head(id);
        let (parked, left) = self.reference.remove_ended(id, outcome);
        assert_eq!(ended.to_release.new_head, new_head);
        let payload = parked.payload;
        assert_eq!((number, &ended.outcome), (payload, outcome));
        assert_eq!(
            ended.to_release.last_secondary,
            parked.tickets.last().copied()
        );
        assert_eq!(ended.to_release.emptied_key.map(|key| key.number), left);
        let mut answered = Answered {
            id,
            payload,
            outcome: None,
            has_no_turn: false,
            waker: None,
        };
        let is_slow = Operation::is_slow(payload) || !parked.tickets.is_empty();
        match ended.then {
            Then::CallBack {
                payload: called,
                deadline,
            } => {
                assert_eq!(deadline, parked.deadline);
                assert_eq!((called.number, parked.awaited), (payload, false));
                return parked.deadline;
            }
            Then::Wake(waker) => {
                assert!(parked.awaited && !is_slow);
                assert!(
                    same(waker.as_ref(), parked.waker.as_ref()),
                    "the last waker"
                );
                answered.outcome = Some(outcome.clone());
            }
            Then::Answer {
                payload: unmade,
                handle,
            } => {
                assert!(parked.awaited && is_slow);
                answered.has_no_turn = *outcome != Outcome::Completed;
                assert_eq!((handle, unmade.number), (id, payload));
                answered.waker = parked.waker;
                self.unmade.push((id, unmade));
            }
        }
        let unmade = answered.outcome.is_none();
        self.reference.count_if(unmade, "an answer is made later");
        self.reference.answered.push(answered);
        parked.deadline
    }

    pub(super) fn claim(&mut self, id: TimerHandle) {
        let asked = Outcome::Cancelled(CancelReason::Requested("asked".into()));
        let outcome = [Outcome::Completed, asked][self.random.usize(..2)].clone();
        self.claim_as(id, outcome);
    }

    fn claim_as(&mut self, id: TimerHandle, outcome: Outcome) {
        let claimed = self.shards[id.shard()].claim(id, &outcome, None);
        assert_eq!(claimed.is_some(), self.reference.claim(id, &outcome));
        if let Some((then, to_release)) = claimed {
            let ended = Ended {
                then,
                outcome: outcome.clone(),
                to_release,
            };
            self.departed(ended, &outcome);
        }
    }

    /// Takes watermark watches off a key. They are counted down at once if all their operations
    /// have this first shard, as in an advance, otherwise in later steps.
    fn advance(&mut self) {
        // 1. Choose the key, and how far to reach.
        let key = self.any_key();
        let value = self.any_value() - self.watermark.min(self.behind);
        let limit = self.any_limit();
        let all = self.random.u8(..8) == 0;
        let reach = if all { None } else { Some(value) };
        let Some(record) = self.find(key) else { return };
        // 2. The shard. Watches that have left count for the limit, too.
        let mut taken = Vec::new();
        let of = self.key(key);
        let shard = &mut self.shards[key.shard()];
        let before = shard.waiting_unmet(&of, key.hash());
        let popped = match reach {
            Some(value) => shard.pop_up_to(record, value, limit, |handle| taken.push(handle)),
            None => shard.take_all(record, limit, |handle| taken.push(handle)),
        };
        let looked_at = before - shard.waiting_unmet(&of, key.hash());
        // 3. The reference. The shard may say `More` where it says `Done`: the limit went to
        //    watches that have left, or such a one is next.
        let (expected, state) = self.reference.pop_up_to(key, reach, looked_at);
        assert_eq!(taken, expected, "taken for {reach:?}");
        let popped = match popped {
            Popped::More => Popped::More,
            Popped::Done => Popped::Done,
            Popped::Emptied(key) => Popped::Emptied(key.number),
        };
        let in_the_way = popped == Popped::More && state == Popped::Done;
        self.reference
            .count_if(in_the_way, "a look at watches that have left");
        assert!(popped == state || in_the_way, "taken for {reach:?}");
        // 4. Count them down.
        let here = taken.iter().all(|handle| handle.shard() == key.shard());
        let now = self.taken.len();
        self.taken.extend(taken.into_iter().map(|id| (id, all)));
        while here && self.taken.len() > now {
            self.count_down();
        }
    }

    fn count_down(&mut self) {
        let Some((id, cancel)) = self.taken.pop() else {
            return;
        };
        if cancel {
            return self.claim(id);
        }
        let shard = &mut self.shards[id.shard()];
        let counted = shard.count_down(id);
        assert_eq!(counted, self.reference.count_down(id));
        match counted {
            CountedDown::Last => self.claim_as(id, Outcome::Completed),
            CountedDown::OthersRemain => self.check_out(id),
            CountedDown::Gone => {}
        }
    }

    fn walk(&mut self) {
        let key = self.any_key();
        let limit = self.any_limit();
        let places = [WatchList::Plain, WatchList::Met, WatchList::InTurn];
        let place = places[self.random.usize(..3)];
        let Some(record) = self.find(key) else { return };
        let mut found = Vec::new();
        let shard = &mut self.shards[key.shard()];
        let on = shard.walk(record, place, limit, |of, waiter| {
            found.push(waiter.handle(of))
        });
        let waiting = &self.reference.homes[key.shard()].keys[&key];
        let rest = match place {
            WatchList::Plain => &waiting.plain,
            WatchList::InTurn => &waiting.in_turn,
            _ => &waiting.met,
        }
        .clone();
        let over_met = on.is_some() && place == WatchList::Met;
        self.reference
            .count_if(over_met, "a walk over met ones in several steps");
        self.walked(
            Walk {
                shard: key.shard(),
                id: WalkId(0),
                rest,
            },
            on,
            found,
            limit,
        );
    }

    fn walk_on(&mut self) {
        let at = self.random.usize(..self.reference.walks.len());
        let walk = self.reference.walks.swap_remove(at);
        let limit = self.any_limit();
        let shard = &mut self.shards[walk.shard];
        if self.random.u8(..16) == 0 {
            return shard.end_walk(walk.id);
        }
        let mut found = Vec::new();
        let on = shard.walk_on(walk.id, limit, |of, waiter| found.push(waiter.handle(of)));
        self.walked(walk, on, found, limit);
    }

    /// Compares a step of a walk, then leaves the found waiters, checks them out or claims them.
    fn walked(
        &mut self,
        mut walk: Walk,
        on: Option<WalkId>,
        found: Vec<TimerHandle>,
        limit: usize,
    ) {
        let step = walk.rest.drain(..limit.min(walk.rest.len()));
        assert!(
            step.map(|waiter| waiter.handle).eq(found.iter().copied()),
            "{found:?}"
        );
        assert_eq!(on.is_none(), walk.rest.is_empty());
        if let Some(id) = on {
            self.reference.walks.push(Walk { id, ..walk });
        }
        match self.random.u8(..8) {
            0..4 => {
                for handle in found {
                    self.check_out(handle);
                }
            }
            4 => {
                for handle in found {
                    self.claim(handle);
                }
            }
            _ => {}
        }
    }

    /// Releases the last secondary watch of an ended operation.
    pub(super) fn release(&mut self, at: usize) {
        let (id, mut tickets) = self.reference.leaving.swap_remove(at);
        let secondary = tickets.pop().expect("a watch to be released");
        let of = secondary.shard as usize;
        let waiter = Linked::last_secondary(id, secondary);
        let before = tickets.last().copied();
        let shard = &mut self.shards[of];
        let found = shard
            .secondary_key(secondary, id)
            .expect("its slot is in use");
        let found = SecondaryKey {
            key: found.key.map(|key| key.number),
            before: found.before,
        };
        let key = self.reference.key_of(of, waiter);
        assert_eq!(found, SecondaryKey { key, before });
        let unwatched = shard.unwatch(secondary);
        assert_eq!(unwatched.before, before);
        assert_eq!(shard.secondary_key(secondary, id), None);
        assert_eq!(
            unwatched.emptied_key.map(|key| key.number),
            self.reference.unwatch(of, waiter)
        );
        if !tickets.is_empty() {
            self.reference.leaving.push((id, tickets));
        }
    }
}
