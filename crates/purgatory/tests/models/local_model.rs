//! The purgatory for one thread in random runs beside plain maps: every count and every ending
//! agrees. `TEST_EFFORT` says how many runs of 3000 steps: 5 without it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use purgatory::{
    CancelReason, DelayedOperation, EndResult, LocalPurgatory, OperationId, Outcome, ParkResult,
    Timeout, Watches,
};

use crate::effort::effort;

fn ms(count: u64) -> u64 {
    count * 1_000_000
}

type Endings = Rc<RefCell<BTreeMap<u64, Outcome>>>;

/// Waits until it is ready, writes down how it ended, and then raises an event.
struct Op {
    number: u64,
    ready: Rc<Cell<bool>>,
    ended: Endings,
    raises: Option<(LocalPurgatory<u8, Op>, u8)>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.ready.get()
    }

    fn on_complete(self, outcome: Outcome) {
        let before = self.ended.borrow_mut().insert(self.number, outcome);
        assert_eq!(before, None, "One outcome");
        if let Some((purgatory, key)) = self.raises {
            assert_eq!(purgatory.check_and_complete(&key), 0);
        }
    }
}

/// An operation as the reference knows it.
struct Known {
    id: OperationId,
    watches: BTreeSet<(u8, Option<u64>)>,
    /// Watermarks that were met: gone in the count form.
    met: BTreeSet<(u8, u64)>,
    counted: bool,
    deadline_ms: Option<u64>,
    ready: Rc<Cell<bool>>,
    /// The event that its callback raises.
    raises: Option<u8>,
}

impl Known {
    /// Its watches of a key that are still there.
    fn watches_of(&self, key: u8) -> usize {
        let taken = |&(key, level): &(u8, Option<u64>)| {
            self.counted && level.is_some_and(|level| self.met.contains(&(key, level)))
        };
        self.watches.iter().filter(|watch| watch.0 == key && !taken(watch)).count()
    }

    fn waits_for(&self, key: u8) -> bool {
        self.watches_of(key) > 0
    }
}

/// What is parked, by plain maps.
#[derive(Default)]
struct Reference {
    parked: BTreeMap<u64, Known>,
    ended: BTreeMap<u64, Outcome>,
    /// Events of callbacks, to come.
    raised: Vec<u8>,
}

const KEYS: u8 = 5;

impl Reference {
    fn end(&mut self, number: u64, outcome: Outcome) {
        let known = self.parked.remove(&number).unwrap();
        self.raised.extend(known.raises);
        self.ended.insert(number, outcome);
    }

    fn end_all(&mut self, outcome: Outcome, over: impl Fn(&Known) -> bool) -> usize {
        let over: Vec<_> = self
            .parked
            .iter()
            .filter(|(_, known)| over(known))
            .map(|(&number, _)| number)
            .collect();
        over.iter().for_each(|&number| self.end(number, outcome.clone()));
        over.len()
    }

    fn event(&mut self, key: u8) -> usize {
        self.end_all(Outcome::Completed, |known| {
            known.watches.contains(&(key, None)) && known.ready.get()
        })
    }

    fn rise(&mut self, key: u8, value: u64) -> usize {
        let mut checked = BTreeSet::new();
        for (&number, known) in &mut self.parked {
            let levels = known.watches.iter().filter(|(of, _)| *of == key);
            let met: BTreeSet<_> = levels.filter_map(|&(key, level)| Some((key, level?))).collect();
            let met = met.into_iter().filter(|&(_, level)| level <= value);
            let before = known.met.iter().filter(|(of, _)| *of == key).count();
            known.met.extend(met);
            let now = known.met.iter().filter(|(of, _)| *of == key).count();
            if now > before || now > 0 && !known.counted {
                checked.insert(number);
            }
        }
        let levels = |known: &Known| known.watches.iter().filter(|(_, l)| l.is_some()).count();
        let mut completed = 0;
        for number in checked {
            let known = &self.parked[&number];
            if known.ready.get() || known.counted && known.met.len() == levels(known) {
                self.end(number, Outcome::Completed);
                completed += 1;
            }
        }
        completed
    }

    /// What the callbacks raise, until nothing more comes of it.
    fn settle(&mut self) {
        while let Some(key) = self.raised.pop() {
            self.event(key);
        }
    }

    fn waiters(&self, key: u8) -> usize {
        self.parked.values().map(|known| known.watches_of(key)).sum()
    }

    fn assert_same(&self, waits: &LocalPurgatory<u8, Op>, now_ms: u64) {
        assert_eq!(waits.len(), self.parked.len());
        assert_eq!(waits.watched(), self.parked.values().map(|known| known.watches.len()).sum());
        let waiters: Vec<_> = (0..KEYS).map(|key| self.waiters(key)).collect();
        assert!((0..KEYS).map(|key| waits.waiters(&key)).eq(waiters.iter().copied()));
        assert_eq!(waits.keys(), waiters.iter().filter(|&&waiters| waiters > 0).count());
        let first = self.parked.values().filter_map(|known| known.deadline_ms).min();
        let next = waits.next_deadline();
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first.map(ms), "{next:?} is after {first:?}");
        assert!(next.is_none() || next >= Some(ms(now_ms.min(first.unwrap()))));
    }
}

/// A purgatory and its reference under the same calls.
struct Run {
    random: fastrand::Rng,
    waits: LocalPurgatory<u8, Op>,
    reference: Reference,
    ended: Endings,
    now_ms: u64,
}

const MAX_PARKED: usize = 60;

impl Run {
    fn new(seed: u64) -> Self {
        Run {
            random: fastrand::Rng::with_seed(seed),
            waits: LocalPurgatory::builder().max_parked(MAX_PARKED).build(),
            reference: Reference::default(),
            ended: Rc::default(),
            now_ms: 0,
        }
    }

    fn timeout(&mut self) -> (Timeout, Option<u64>) {
        let random = &mut self.random;
        match random.u8(..4) {
            0 => (Timeout::Never, None),
            short => {
                let after = random.u64(1..if short == 1 { 20 } else { 5000 });
                (Duration::from_millis(after).into(), Some(self.now_ms + after))
            }
        }
    }

    fn any(&mut self) -> Option<(u64, OperationId)> {
        let parked = &self.reference.parked;
        let nth = self.random.usize(..parked.len().max(1));
        parked.iter().nth(nth).map(|(&number, known)| (number, known.id))
    }

    fn park(&mut self, number: u64) {
        let (timeout, deadline_ms) = self.timeout();
        let random = &mut self.random;
        let raises = random.bool().then(|| random.u8(..KEYS));
        let (keys, levels) = (random.usize(1..4), random.usize(..4).saturating_sub(1));
        let keys: Vec<_> = (0..keys).map(|_| random.u8(..KEYS)).collect();
        let levels: Vec<_> = (0..levels).map(|_| (random.u8(..KEYS), random.u64(..100))).collect();
        let (counted, plain) = (random.bool(), random.bool() || levels.is_empty());
        let mut watches = Watches::up_to(&levels);
        watches = if counted { watches } else { watches.checked() };
        watches = if plain { watches.with_keys(&keys) } else { watches };
        let ready: Rc<Cell<bool>> = Rc::default();
        let operation = Op {
            number,
            ready: ready.clone(),
            ended: self.ended.clone(),
            raises: raises.map(|key| (self.waits.clone(), key)),
        };
        let id = match self.waits.try_complete_else_watch(operation, watches, timeout) {
            Ok(ParkResult::Parked(id)) => id,
            Ok(over) => panic!("it is over: {over:?}"),
            Err(_) => return assert_eq!(self.reference.parked.len(), MAX_PARKED),
        };
        let keys = keys.iter().filter(|_| plain).map(|&key| (key, None));
        let mut levels: Vec<_> = levels.iter().map(|&(key, level)| (key, Some(level))).collect();
        if !counted {
            levels.sort_unstable();
            levels.dedup_by_key(|level| level.0); // the lowest of a key
        }
        let watches = keys.chain(levels).collect();
        let met = BTreeSet::new();
        let known = Known { id, watches, met, counted, deadline_ms, ready, raises };
        self.reference.parked.insert(number, known);
    }

    /// Ends one by its id, or gives it another timeout.
    fn touch(&mut self) {
        let Some((number, id)) = self.any() else { return };
        match self.random.u8(..3) {
            0 => {
                assert_eq!(self.waits.complete(id), EndResult::Ended);
                self.reference.end(number, Outcome::Completed);
            }
            1 => {
                assert_eq!(self.waits.cancel(id, "one"), EndResult::Ended);
                self.reference.end(number, cancelled("one"));
            }
            _ => {
                let (timeout, deadline_ms) = self.timeout();
                assert!(self.waits.reschedule(id, timeout));
                self.reference.parked.get_mut(&number).unwrap().deadline_ms = deadline_ms;
            }
        }
    }

    fn step(&mut self, number: u64) {
        let (key, value) = (self.random.u8(..KEYS), self.random.u64(..100));
        let Run { waits, reference, .. } = self;
        match self.random.u8(..100) {
            0..45 => self.park(number),
            45..60 => {
                if let Some((number, _)) = self.any() {
                    self.reference.parked[&number].ready.set(self.random.bool());
                }
            }
            60..70 => assert_eq!(waits.check_and_complete(&key), reference.event(key)),
            70..80 => assert_eq!(waits.complete_up_to(&key, value), reference.rise(key, value)),
            80..90 => self.touch(),
            90..92 => {
                let expected = reference.end_all(cancelled("key"), |known| known.waits_for(key));
                assert_eq!(waits.cancel_for_key(&key, "key"), expected);
            }
            _ => {
                self.now_ms += match self.random.u8(..3) {
                    0 => self.random.u64(..=1),
                    1 => self.random.u64(..=10),
                    _ => self.random.u64(..=1000),
                };
                let now_ms = self.now_ms;
                waits.advance(ms(now_ms));
                let due = |known: &Known| known.deadline_ms.is_some_and(|due| due <= now_ms);
                reference.end_all(Outcome::Expired, due);
            }
        }
    }
}

fn cancelled(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}

#[test]
fn any_calls_in_any_order_do_what_plain_maps_say() {
    for seed in 0..effort(5) {
        let mut run = Run::new(seed);
        for step in 0..3000 {
            run.step(step);
            run.reference.settle();
            assert_eq!(*run.ended.borrow(), run.reference.ended, "seed {seed}, step {step}");
            run.reference.assert_same(&run.waits, run.now_ms);
        }
        let ended = run.ended.borrow().clone();
        let count = |outcome: &Outcome| ended.values().filter(|ended| *ended == outcome).count();
        let ends = [
            count(&Outcome::Completed),
            count(&Outcome::Expired),
            count(&cancelled("one")),
            count(&cancelled("key")),
        ];
        assert!(ends.iter().all(|&count| count > 50), "{ends:?}");
        run.waits.shutdown();
        assert_eq!((run.waits.len(), run.waits.watched(), run.waits.keys()), (0, 0, 0));
    }
}
