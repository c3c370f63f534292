//! A model test of [`Permits`]: a plain queue of requests with weights is the reference. Each
//! random step is made on both, and the requests that were served or expired are compared.

use std::{collections::VecDeque, task::Poll};

use fastrand::Rng;
use purgatory::{Permit, Permits, WaitFuture};
use timer_core::ManualTimer;

use crate::support::{MS, assert_no_waits, poll};

const STEPS: usize = 20_000;
const WEIGHT_MAX: u64 = 6;

/// A request that waits in the reference.
struct Waiting {
    number: usize,
    weight: u64,
    deadline_ms: u64,
}

/// The rule, on a plain queue: only the first request is looked at.
#[derive(Default)]
struct Reference {
    limit: u64,
    taken: u64,
    now_ms: u64,
    /// In the order they came.
    queue: VecDeque<Waiting>,
}

impl Reference {
    /// Serves the first as long as it fits. Returns the numbers of those served.
    fn serve(&mut self) -> Vec<usize> {
        let mut served = Vec::new();
        while let Some(first) = self.queue.front() {
            if self.taken + first.weight > self.limit {
                break;
            }
            self.taken += first.weight;
            served.push(first.number);
            self.queue.pop_front();
        }
        served
    }
}

/// The permits, and the requests that wait for some or have them.
struct World {
    timer: ManualTimer,
    permits: Permits,
    reference: Reference,
    waits: Vec<(usize, WaitFuture<Permit>)>,
    held: Vec<Permit>,
    made: usize,
}

impl World {
    fn new(limit: u64) -> Self {
        let timer = ManualTimer::new();
        let permits = Permits::builder("test").timer(&timer).limit(limit).build();
        World {
            timer,
            permits: permits.unwrap(),
            reference: Reference {
                limit,
                ..Reference::default()
            },
            waits: Vec::new(),
            held: Vec::new(),
            made: 0,
        }
    }

    fn step(&mut self, random: &mut Rng) {
        let mut expired = Vec::new();
        match random.u8(..14) {
            0..4 => self.acquire(random.u64(..=WEIGHT_MAX), random.u64(1..20)),
            4 if !self.waits.is_empty() => {
                let (number, wait) = self.waits.swap_remove(random.usize(..self.waits.len()));
                self.reference.queue.retain(|wait| wait.number != number);
                drop(wait);
            }
            5 => {
                // None is too heavy for it.
                let limits = [0, WEIGHT_MAX + random.u64(..WEIGHT_MAX)];
                self.reference.limit = limits[random.usize(..2)];
                self.permits.resize(self.reference.limit);
            }
            6 => {
                self.timer.advance(MS);
                self.reference.now_ms += 1;
                let now_ms = self.reference.now_ms;
                for late in self.reference.queue.iter() {
                    if late.deadline_ms <= now_ms {
                        expired.push(late.number);
                    }
                }
                self.reference
                    .queue
                    .retain(|wait| wait.deadline_ms > now_ms);
            }
            7 => {
                let fits = self.reference.queue.is_empty();
                let weight = random.u64(1..=WEIGHT_MAX);
                let taken = self.permits.try_acquire(weight);
                let free = self.reference.limit.saturating_sub(self.reference.taken);
                assert_eq!(taken.is_some(), fits && weight <= free);
                self.reference.taken += taken.as_ref().map_or(0, Permit::weight);
                self.held.extend(taken);
            }
            8 if !self.held.is_empty() => {
                let permit = self.held.swap_remove(random.usize(..self.held.len()));
                self.reference.taken -= permit.weight();
                self.reference.limit = self.reference.limit.saturating_sub(permit.weight());
                permit.forget();
            }
            9 => {
                let free = WEIGHT_MAX + random.u64(..WEIGHT_MAX);
                self.reference.limit = self.reference.taken + free;
                self.permits.refill(free);
            }
            _ if !self.held.is_empty() => {
                let permit = self.held.swap_remove(random.usize(..self.held.len()));
                self.reference.taken -= permit.weight();
                drop(permit);
            }
            _ => {}
        }
        self.compare(expired);
    }

    fn acquire(&mut self, weight: u64, timeout_ms: u64) {
        let wait = self.permits.acquire(weight, timeout_ms as u32 * MS);
        self.waits.push((self.made, wait));
        self.reference.queue.push_back(Waiting {
            number: self.made,
            weight,
            deadline_ms: self.reference.now_ms + timeout_ms,
        });
        self.made += 1;
    }

    /// Compares the futures that are ready with the requests served, or expired.
    fn compare(&mut self, expired: Vec<usize>) {
        let mut expected: Vec<_> = expired.iter().map(|&number| (number, false)).collect();
        for number in self.reference.serve() {
            expected.push((number, true));
        }
        expected.sort_unstable();
        let mut ready = Vec::new();
        let mut waiting = Vec::new();
        for (number, mut wait) in self.waits.drain(..) {
            match poll(&mut wait) {
                Poll::Ready(ended) => {
                    ready.push((number, ended.is_ok()));
                    self.held.extend(ended);
                }
                Poll::Pending => waiting.push((number, wait)),
            }
        }
        self.waits = waiting;
        ready.sort_unstable();
        assert_eq!(ready, expected);
        assert_eq!(self.permits.taken(), self.reference.taken);
        assert_eq!(self.permits.limit(), self.reference.limit);
    }
}

#[test]
fn permits_agree_with_a_plain_queue() {
    for seed in 0..8 {
        let mut random = Rng::with_seed(seed);
        let mut world = World::new(WEIGHT_MAX);
        for _ in 0..STEPS / 8 {
            world.step(&mut random);
        }
        world.waits.clear();
        world.held.clear();
        assert_no_waits(&world.permits.waits());
        assert_eq!(world.permits.taken(), 0);
    }
}
