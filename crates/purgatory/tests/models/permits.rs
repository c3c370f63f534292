//! Permits of several keys on a manual timer, leases among them, against a reference of plain
//! queues. Each step is made on both sides, and its result compared; then all counts. Futures are
//! polled at random, so permits are handed over, lost and returned that no task has taken.
//! `TEST_EFFORT` sets the number of steps: 5000 without it, a million in CI. `MODEL_SEED` changes
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reference;

use std::{task::Waker, time::Duration};

use fastrand::Rng;
use purgatory::{CancelReason, Lease, Permit, Permits, ReachResult, WaitError, WaitFuture};
use timer_core::ManualTimer;

use self::reference::{Counts, Reference, State};
use crate::acting::{poll, run_cases};

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 300;
const KEYS: usize = 2;
const WEIGHT_MAX: u64 = 5;
const MAX_FUTURES: usize = 40;
const MS: Duration = Duration::from_millis(1);

/// A request's future.
enum Future {
    Permit(WaitFuture<Permit<usize>>),
    Lease(WaitFuture<Lease<usize>>),
}

/// The guard that a future yielded.
#[expect(dead_code, reason = "a permit is held until it is dropped")]
enum Guard {
    Permit(Permit<usize>),
    Lease(Lease<usize>),
}

struct Model {
    timer: ManualTimer,
    permits: Permits<usize>,
    reference: Reference,
    /// Futures that were not polled to their end, by the number of their request.
    futures: Vec<(usize, Future)>,
    guards: Vec<(usize, Guard)>,
    /// The fencing numbers of each key's leases that were taken, with their place in order.
    fences: [Vec<(u64, u64)>; KEYS],
    random: Rng,
}

impl Future {
    fn poll(&mut self) -> Option<Result<Guard, WaitError>> {
        match self {
            Future::Permit(future) => Some(poll(future, Waker::noop())?.map(Guard::Permit)),
            Future::Lease(future) => Some(poll(future, Waker::noop())?.map(Guard::Lease)),
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

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let limit = random.u64(..=WEIGHT_MAX);
        let timer = ManualTimer::new();
        let mut builder = Permits::keyed_builder("model").timer(&timer).limit(limit);
        let max = [None, Some(3)][random.usize(..2)];
        if let Some(max) = max {
            builder = builder.max_parked(max);
        }
        let permits: Permits<_> = builder.shards(1 << random.u32(..3)).build().unwrap();
        permits.waits().times(); // timed from here on
        Model {
            permits,
            timer,
            reference: Reference::new(KEYS, limit, max),
            futures: Vec::new(),
            guards: Vec::new(),
            fences: Default::default(),
            random,
        }
    }

    fn step(&mut self) {
        match self.random.u8(..64) {
            0..18 if self.futures.len() < MAX_FUTURES => self.acquire(),
            18..21 => self.try_acquire(),
            21..32 => self.poll(),
            32..36 => self.drop_future(),
            36..46 => self.drop_guard(),
            46..49 => self.renew(),
            49..52 => self.resize(),
            52 => self.cancel(),
            53 => self.reschedule(),
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
        let key = self.random.usize(..KEYS);
        let weight = self.random.u64(..=WEIGHT_MAX);
        let timeout_ms = [0, 1, 2, 5, 20, 20, 1000][self.random.usize(..7)];
        let timeout = timeout_ms as u32 * MS;
        let number = self.reference.all.len();
        let mut lives_ms = None;
        let future = if self.random.bool() {
            let ms = self.random.u64(1..8);
            lives_ms = Some(ms);
            let lives = ms as u32 * MS;
            Future::Lease(self.permits.lease_for(&key, weight, lives, timeout))
        } else {
            Future::Permit(self.permits.acquire_for(&key, weight, timeout))
        };
        self.reference.acquire(key, weight, lives_ms, timeout_ms);
        self.futures.push((number, future));
    }

    fn try_acquire(&mut self) {
        let key = self.random.usize(..KEYS);
        let weight = self.random.u64(..=WEIGHT_MAX);
        let permit = self.permits.try_acquire_for(&key, weight);
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
        let (number, future) = &mut self.futures[at];
        let number = *number;
        let request = &self.reference.all[number];
        let Some(ended) = future.poll() else {
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
            let (number, future) = self.futures.swap_remove(at);
            drop(future);
            self.reference.drop_one(number);
        }
    }

    fn drop_guard(&mut self) {
        if !self.guards.is_empty() {
            let at = self.random.usize(..self.guards.len());
            let (number, guard) = self.guards.swap_remove(at);
            drop(guard);
            self.reference.drop_one(number);
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

    fn resize(&mut self) {
        let before = self.reference.limit;
        let change = self.random.u64(..=WEIGHT_MAX);
        match self.random.u8(..3) {
            0 => {
                self.permits.resize(change);
                self.reference.resize(change);
            }
            1 => {
                self.permits.add(change);
                self.reference.resize(before + change);
            }
            _ => {
                assert_eq!(self.permits.remove(change), change.min(before));
                self.reference.resize(before.saturating_sub(change));
            }
        }
    }

    fn cancel(&mut self) {
        if self.futures.is_empty() {
            return;
        }
        let at = self.random.usize(..self.futures.len());
        let (number, future) = &self.futures[at];
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
        let (number, future) = &self.futures[at];
        let ms = self.random.u64(1..20);
        let expected = self.reference.reschedule(*number, ms);
        assert_eq!(future.reschedule(ms), expected);
    }

    fn compare(&self) {
        let reference = &self.reference;
        assert_eq!(self.permits.limit(), reference.limit);
        assert_eq!(self.permits.is_closed(), reference.is_closed);
        let mut waiting = 0;
        let mut busy = Vec::new();
        for (key, line) in reference.lines.iter().enumerate() {
            assert_eq!(self.permits.taken_for(&key), line.taken, "of {key}");
            waiting += line.queue.len();
            if !line.queue.is_empty() {
                busy.push((key, line.queue.len()));
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
        };
        assert_eq!(counts, reference.counts);
        crate::oracle::assert_timed(&waits.times(), &stats);
        for (number, guard) in &self.guards {
            if let Guard::Lease(lease) = guard {
                let is_lost = matches!(reference.all[*number].state, State::Lost { .. });
                assert_eq!(lease.is_lost(), is_lost, "of {number}");
            }
        }
    }

    /// Ends the case: every future yields what the reference says, and nothing is left.
    fn end(mut self) {
        for _ in 0..20 {
            self.timer.advance(MS);
            self.reference.pass();
        }
        // Nothing waits for a limit above 0.
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

#[test]
fn keyed_permits_and_leases_agree_with_plain_queues() {
    run_cases("permits", STEPS, STEPS_A_CASE, |seed| {
        let mut model = Model::new(seed);
        for _ in 0..STEPS_A_CASE {
            model.step();
        }
        model.end();
    });
}
