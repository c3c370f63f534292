//! Compares permits and leases on a manual timer with a reference of plain queues: permits of
//! several keys, and permits without keys, which can also be used up and refilled. Each step is
//! made on both sides; then its result and all counts are compared. Futures are polled at random,
//! so permits are handed over, lost and returned before a task has taken them. The test makes 5000
//! steps times `TEST_EFFORT`, in CI a million. `MODEL_SEED` changes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;

use std::{
    fmt::Debug,
    panic::RefUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use fastrand::Rng;
use purgatory::{
    CancelReason, Lease, Permit, Permits, ReachResult, WaitError, WaitFuture, WatchKey,
};
use timer_core::ManualTimer;

use self::reference::{Counts, Reference, State};
use crate::acting::{poll, run_cases, task};

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 300;
const WEIGHT_MAX: u64 = 5;
/// Too heavy for every limit, except for 0.
const HEAVIER: u64 = 10_000;
const MAX_FUTURES: usize = 40;
const MS: Duration = Duration::from_millis(1);

/// A request's future.
enum Future<K: WatchKey> {
    Permit(WaitFuture<Permit<K>>),
    Lease(WaitFuture<Lease<K>>),
}

/// A request whose future was not polled to its end.
struct Asked<K: WatchKey> {
    number: usize,
    future: Future<K>,
    /// Set when its task is woken; `None` until the first poll.
    woken: Option<Arc<AtomicBool>>,
}

/// The guard that a future yielded.
enum Guard<K: WatchKey> {
    Permit(Permit<K>),
    Lease(Lease<K>),
}

/// The steps that only permits without keys have.
struct Unkeyed<K: WatchKey> {
    forget: fn(Permit<K>),
    refill: fn(&Permits<K>, u64),
}

struct Model<K: WatchKey> {
    timer: ManualTimer,
    keys: &'static [K],
    unkeyed: Option<Unkeyed<K>>,
    permits: Permits<K>,
    reference: Reference,
    futures: Vec<Asked<K>>,
    guards: Vec<(usize, Guard<K>)>,
    /// For each key, the leases that were taken: their ordinals and fencing numbers.
    fences: Vec<Vec<(u64, u64)>>,
    random: Rng,
}

impl<K: WatchKey> Future<K> {
    fn poll(&mut self, waker: &Waker) -> Option<Result<Guard<K>, WaitError>> {
        match self {
            Future::Permit(future) => Some(poll(future, waker)?.map(Guard::Permit)),
            Future::Lease(future) => Some(poll(future, waker)?.map(Guard::Lease)),
        }
    }

    fn id(&self) -> Option<purgatory::OperationId> {
        match self {
            Future::Permit(future) => future.id(),
            Future::Lease(future) => future.id(),
        }
    }

    fn reschedule(&self, ms: u64) -> bool {
        let timeout = ms as u32 * MS;
        match self {
            Future::Permit(future) => future.reschedule(timeout),
            Future::Lease(future) => future.reschedule(timeout),
        }
    }
}

impl<K: WatchKey + Ord + Debug> Model<K> {
    fn new(seed: u64, keys: &'static [K], unkeyed: Option<Unkeyed<K>>) -> Self {
        let mut random = Rng::with_seed(seed);
        let limit = random.u64(..=WEIGHT_MAX);
        let timer = ManualTimer::new();
        let mut builder = Permits::keyed_builder("model").timer(&timer).limit(limit);
        let max = [None, Some(3)][random.usize(..2)];
        if let Some(max) = max {
            builder = builder.max_parked(max);
        }
        let permits: Permits<_> = builder.shards(1 << random.u32(..3)).build().unwrap();
        permits.waits().times(); // times are recorded from here on
        Model {
            timer,
            keys,
            unkeyed,
            permits,
            reference: Reference::new(keys.len(), limit, max),
            futures: Vec::new(),
            guards: Vec::new(),
            fences: vec![Vec::new(); keys.len()],
            random,
        }
    }

    fn step(&mut self) {
        match self.random.u8(..72) {
            0..18 if self.futures.len() < MAX_FUTURES => self.acquire(),
            18..21 => self.try_acquire(),
            21..32 => self.poll(),
            32..36 => self.drop_future(),
            36..46 => self.drop_guard(),
            46..49 => self.renew(),
            49..52 => self.resize(),
            52 => self.cancel(),
            53 => self.reschedule(),
            56 => self.use_up(),
            64.. => self.refill(),
            54 if self.random.u8(..4) == 0 => {
                let error = WaitError::Cancelled(CancelReason::Requested("all".into()));
                let ended = self.permits.waits().cancel_all("all");
                assert_eq!(ended, self.reference.cancel_all(&error));
            }
            55 if self.random.u8(..8) == 0 => {
                self.permits.close();
                self.reference.close();
            }
            _ => {
                self.timer.advance(MS);
                self.reference.pass();
            }
        }
        self.compare();
    }

    fn acquire(&mut self) {
        let key = self.random.usize(..self.keys.len());
        let weight = match self.random.u8(..8) {
            0 => HEAVIER, // the refusal names the limit
            _ => self.random.u64(..=WEIGHT_MAX),
        };
        self.ask(key, weight);
    }

    /// Asks for permits or for a lease.
    fn ask(&mut self, key: usize, weight: u64) {
        let timeout_ms = [0, 1, 2, 5, 20, 20, 1000][self.random.usize(..7)];
        let timeout = timeout_ms as u32 * MS;
        let number = self.reference.all.len();
        let mut lives_ms = None;
        let future = if self.random.bool() {
            let ms = self.random.u64(1..8);
            lives_ms = Some(ms);
            let lives = ms as u32 * MS;
            Future::Lease(
                self.permits
                    .lease_for(&self.keys[key], weight, lives, timeout),
            )
        } else {
            Future::Permit(self.permits.acquire_for(&self.keys[key], weight, timeout))
        };
        self.reference.acquire(key, weight, lives_ms, timeout_ms);
        self.futures.push(Asked {
            number,
            future,
            woken: None,
        });
    }

    fn try_acquire(&mut self) {
        let key = self.random.usize(..self.keys.len());
        let weight = self.random.u64(..=WEIGHT_MAX);
        let permit = self.permits.try_acquire_for(&self.keys[key], weight);
        let is_free = self.reference.free_at_once(key, weight);
        assert_eq!(permit.is_some(), is_free);
        if let Some(permit) = permit {
            let number = self.reference.all.len();
            self.reference.acquire(key, weight, None, 0);
            self.guards.push((number, Guard::Permit(permit)));
        }
    }

    fn poll(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let asked = &mut self.futures[at];
        let number = asked.number;
        let woken = asked.woken.get_or_insert_default().clone();
        let waker = task(move || woken.store(true, Relaxed));
        let request = &self.reference.all[number];
        let Some(ended) = asked.future.poll(&waker) else {
            assert!(matches!(request.state, State::Waits(_)), "{request:?}");
            return;
        };
        self.futures.swap_remove(at);
        match (ended, &request.state) {
            (Err(error), State::Failed(expected)) => assert_eq!(error, *expected),
            (Ok(guard), State::Has { ordinal, .. } | State::Lost { ordinal }) => {
                if let Guard::Lease(lease) = &guard {
                    self.fences[request.key].push((*ordinal, lease.fencing()));
                }
                self.guards.push((number, guard));
            }
            (ended, state) => panic!("{state:?}, and it got permits: {}", ended.is_ok()),
        }
    }

    fn drop_future(&mut self) {
        if !self.futures.is_empty() {
            let at = self.random.usize(..self.futures.len());
            let asked = self.futures.swap_remove(at);
            drop(asked.future);
            self.reference.drop_one(asked.number);
        }
    }

    fn drop_guard(&mut self) {
        if !self.guards.is_empty() {
            let at = self.random.usize(..self.guards.len());
            let (number, guard) = self.guards.swap_remove(at);
            match (guard, &self.unkeyed) {
                (Guard::Permit(permit), Some(unkeyed)) if self.random.bool() => {
                    (unkeyed.forget)(permit);
                    self.reference.forget(number);
                }
                (guard, _) => {
                    drop(guard);
                    self.reference.drop_one(number);
                }
            }
        }
    }

    /// Lowers or raises the limit, then returns or uses up all permits taken. A request of weight 0
    /// waits until no more are taken than there are.
    fn use_up(&mut self) {
        if self.unkeyed.is_some() {
            let limit = self.random.u64(..=WEIGHT_MAX);
            self.permits.resize(limit);
            self.reference.resize(limit);
            self.ask(0, 0);
            for _ in 0..self.futures.len() {
                self.poll();
            }
            while !self.guards.is_empty() {
                self.drop_guard();
                self.compare();
            }
        }
    }

    fn renew(&mut self) {
        if self.guards.is_empty() {
            return;
        }
        let at = self.random.usize(..self.guards.len());
        if let (number, Guard::Lease(lease)) = &self.guards[at] {
            let ms = self.random.u64(1..8);
            let renewed = lease.renew(ms as u32 * MS);
            assert_eq!(renewed, self.reference.renew(*number, ms));
        }
    }

    fn refill(&mut self) {
        if let Some(unkeyed) = &self.unkeyed {
            let free = self.random.u64(..=WEIGHT_MAX);
            (unkeyed.refill)(&self.permits, free);
            self.reference.refill(free);
        }
    }

    fn resize(&mut self) {
        let change = self.random.u64(..=WEIGHT_MAX);
        match self.random.u8(..3) {
            0 => {
                self.permits.resize(change);
                self.reference.resize(change);
            }
            1 => {
                self.permits.add(change);
                self.reference.add(change);
            }
            _ => assert_eq!(self.permits.remove(change), self.reference.remove(change)),
        }
    }

    fn cancel(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let Asked { number, future, .. } = &self.futures[at];
        if let Some(id) = future.id() {
            let error = WaitError::Cancelled(CancelReason::Requested("one".into()));
            let ended = self.permits.waits().cancel(id, "one") == ReachResult::Reached(());
            assert_eq!(ended, self.reference.cancel(*number, error));
        }
    }

    fn reschedule(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let Asked { number, future, .. } = &self.futures[at];
        let ms = self.random.u64(1..20);
        let expected = self.reference.reschedule(*number, ms);
        assert_eq!(future.reschedule(ms), expected);
    }

    fn compare(&self) {
        let reference = &self.reference;
        assert_eq!(self.permits.limit(), reference.present());
        assert_eq!(self.permits.is_closed(), reference.is_closed);
        let mut waiting = 0;
        let mut busy = Vec::new();
        for (key, line) in self.keys.iter().zip(&reference.lines) {
            let free = reference.present().saturating_sub(line.taken);
            let counts = (self.permits.taken_for(key), self.permits.free_for(key));
            assert_eq!(counts, (line.taken, free), "of {key:?}");
            waiting += line.queue.len();
            if !line.queue.is_empty() {
                busy.push((key.clone(), line.queue.len()));
            }
        }
        let waits = self.permits.waits();
        assert_eq!((waits.len(), waits.keys()), (waiting, busy.len()));
        let mut busiest = waits.snapshot(usize::MAX).busiest;
        busiest.sort_unstable();
        assert_eq!(busiest, busy);
        let stats = waits.stats();
        let counts = Counts {
            parked: stats.parked_total,
            completed: stats.completed,
            expired: stats.expired,
            cancelled: stats.cancelled,
            too_heavy: stats.refused_too_heavy,
        };
        assert_eq!(counts, reference.counts);
        crate::oracle::assert_timed(&waits.times(), &stats);
        for asked in &self.futures {
            if let Some(woken) = &asked.woken {
                let waits = matches!(reference.all[asked.number].state, State::Waits(_));
                assert_eq!(woken.load(Relaxed), !waits, "of {}", asked.number);
            }
        }
        for (number, guard) in &self.guards {
            if let Guard::Lease(lease) = guard {
                let is_lost = matches!(reference.all[*number].state, State::Lost { .. });
                assert_eq!(lease.is_lost(), is_lost, "of {number}");
            }
        }
    }

    /// Ends the case: every future yields the reference's answer, and no request is left.
    fn end(mut self) {
        for _ in 0..20 {
            self.timer.advance(MS);
            self.reference.pass();
        }
        // From here on no request waits for a limit above 0, or for a refill.
        self.unkeyed = None;
        self.permits.resize(WEIGHT_MAX);
        self.reference.resize(WEIGHT_MAX);
        while !self.futures.is_empty() {
            self.poll();
            self.drop_guard();
            self.compare();
        }
        while !self.guards.is_empty() {
            self.drop_guard();
            self.compare();
        }
        for (key, fences) in self.fences.iter_mut().enumerate() {
            fences.sort_unstable();
            let rise = |pair: &[(u64, u64)]| pair[0].1 < pair[1].1;
            assert!(fences.windows(2).all(rise), "of {key}: {fences:?}");
        }
        assert_eq!(self.permits.waits().len(), 0);
    }
}

/// Runs cases over these keys.
fn run_all<K>(name: &str, keys: &'static [K], unkeyed: fn() -> Option<Unkeyed<K>>)
where
    K: WatchKey + Ord + Debug + RefUnwindSafe,
{
    run_cases(name, STEPS, STEPS_A_CASE, |seed| {
        let mut model = Model::new(seed, keys, unkeyed());
        for _ in 0..STEPS_A_CASE {
            model.step();
        }
        model.end();
    });
}

#[test]
fn keyed_permits_and_leases_agree_with_plain_queues() {
    run_all("permits", &[0, 1], || None);
}

#[test]
fn permits_without_keys_agree_with_a_plain_queue() {
    run_all("permits without keys", &[()], || {
        Some(Unkeyed {
            forget: Permit::forget,
            refill: Permits::refill,
        })
    });
}
