//! `Watermarks` on a manual timer against a reference of plain lists, written from the
//! documentation: random steps, each compared with the results of its calls, and all values,
//! epochs, waits with their keys, and counts after it. `TEST_EFFORT` sets the number of steps: 5000
//! without it, a million in CI. `MODEL_SEED` changes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fastrand::Rng;
use purgatory::{CancelReason, Purgatory, WaitError, WaitFuture, WatermarkWait, Watermarks};
use timer_core::ManualTimer;

use crate::effort::{effort, number};

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 400;
const KEYS: u64 = 6;

type Key = u64;
type Quorum = Vec<(Key, u64)>;

/// A wait that has not ended.
struct Waiting {
    future: Future1,
    /// The number of members that are needed; `None` for all that are left.
    needed: Option<usize>,
    /// Keys, thresholds, and true for a key that was removed since.
    members: Vec<(Key, u64, bool)>,
    deadline_ms: u64,
}

enum Future1 {
    One(WaitFuture<u64>),
    Several(WaitFuture<Quorum>),
}

/// The end of a wait, as its future yields it.
type End = Result<Quorum, WaitError>;

impl Future1 {
    fn poll(&mut self, key: Key) -> Option<End> {
        let mut context = Context::from_waker(Waker::noop());
        match self {
            Future1::One(wait) => match Pin::new(wait).poll(&mut context) {
                Poll::Ready(end) => Some(end.map(|value| vec![(key, value)])),
                Poll::Pending => None,
            },
            Future1::Several(wait) => match Pin::new(wait).poll(&mut context) {
                Poll::Ready(end) => Some(end),
                Poll::Pending => None,
            },
        }
    }
}

#[derive(Default)]
struct Reference {
    /// Values and epochs.
    values: BTreeMap<Key, (u64, u64)>,
    waits: Vec<Waiting>,
    now_ms: u64,
}

fn cancelled(reason: &'static str) -> End {
    Err(WaitError::Cancelled(CancelReason::Requested(reason.into())))
}

impl Reference {
    fn value(&self, key: Key) -> u64 {
        self.values.get(&key).map_or(0, |of| of.0)
    }

    /// Returns how a wait ends by the present values, if it does.
    fn judged(&self, wait: &Waiting) -> Option<End> {
        let left = wait.members.iter().filter(|member| !member.2);
        let met: Quorum = left
            .clone()
            .map(|&(key, threshold, _)| (key, threshold))
            .filter(|&(key, threshold)| self.value(key) >= threshold)
            .map(|(key, _)| (key, self.value(key)))
            .collect();
        let left = left.count();
        let needed = wait.needed.unwrap_or(left.max(1));
        if left < needed {
            let lost = CancelReason::QuorumLost { left, needed };
            return Some(Err(WaitError::Cancelled(lost)));
        }
        if met.len() >= needed {
            Some(Ok(met))
        } else {
            None
        }
    }

    /// Returns the keys of each wait that were not removed, in the order given.
    fn visited(&self) -> Vec<Vec<Key>> {
        let mut visited = Vec::new();
        for wait in &self.waits {
            let left = wait.members.iter().filter(|member| !member.2);
            visited.push(left.map(|member| member.0).collect());
        }
        visited.sort();
        visited
    }

    /// Ends waits as `end` says, and compares with their futures; returns how many.
    fn end(&mut self, mut end: impl FnMut(&Reference, &Waiting) -> Option<End>) -> usize {
        let mut ended = 0;
        for mut wait in std::mem::take(&mut self.waits) {
            match end(self, &wait) {
                Some(expected) => {
                    assert_eq!(wait.future.poll(wait.members[0].0), Some(expected));
                    ended += 1;
                }
                None => self.waits.push(wait),
            }
        }
        ended
    }

    fn judge(&mut self) -> usize {
        self.end(|reference, wait| reference.judged(wait))
    }
}

struct Model {
    timer: ManualTimer,
    waits: Purgatory<Key, WatermarkWait>,
    watermarks: Watermarks<Key>,
    reference: Reference,
    random: Rng,
}

impl Model {
    fn new(seed: u64) -> Self {
        let timer = ManualTimer::new();
        let mut random = Rng::with_seed(seed);
        let shards = [1, 2, 8][random.usize(..3)];
        let builder = Purgatory::builder("model").timer(&timer).shards(shards);
        let waits = builder.build().unwrap();
        Model {
            watermarks: Watermarks::over(waits.clone()),
            timer,
            waits,
            reference: Reference::default(),
            random,
        }
    }

    fn step(&mut self) {
        let key = self.random.u64(..KEYS);
        let value = self.random.u64(..30);
        match self.random.u8(..20) {
            0..4 => self.wait_for(key, value),
            4..8 => self.wait_for_several(),
            8..12 => self.advance(key, value),
            12 => self.add(key, value % 4),
            13 => self.remove(key),
            14..16 => self.reset(key, value),
            16 if !self.reference.waits.is_empty() => {
                let at = self.random.usize(..self.reference.waits.len());
                self.reference.waits.swap_remove(at); // its future is dropped
            }
            _ => self.pass(),
        }
        self.compare();
    }

    fn wait_for(&mut self, key: Key, threshold: u64) {
        let ms = self.random.u64(1..20);
        let wait = self
            .watermarks
            .wait_for(&key, threshold, Duration::from_millis(ms));
        self.parked(Future1::One(wait), Some(1), vec![(key, threshold)], ms);
    }

    fn wait_for_several(&mut self) {
        let ms = self.random.u64(1..20);
        let timeout = Duration::from_millis(ms);
        let mut keys: Vec<Key> = (0..KEYS).collect();
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(1..5));
        let members: Quorum = keys
            .iter()
            .map(|&key| (key, self.random.u64(..30)))
            .collect();
        let k = self.random.usize(1..=members.len());
        let needed = if self.random.bool() { Some(k) } else { None };
        let wait = match needed {
            Some(k) => self.watermarks.wait_for_k(k, &members, timeout),
            None => self.watermarks.wait_for_all(&members, timeout),
        };
        self.parked(Future1::Several(wait), needed, members, ms);
    }

    /// Keeps a wait in the reference, unless it is over at once.
    fn parked(&mut self, future: Future1, needed: Option<usize>, members: Quorum, ms: u64) {
        let members = members
            .into_iter()
            .map(|(key, threshold)| (key, threshold, false));
        self.reference.waits.push(Waiting {
            future,
            needed,
            members: members.collect(),
            deadline_ms: self.reference.now_ms + ms,
        });
        self.reference.judge();
    }

    fn advance(&mut self, key: Key, value: u64) {
        let of = self.reference.values.get(&key).copied();
        let (before, epoch) = of.unwrap_or((0, 0));
        let in_epoch = self.random.u64(..3);
        let with_epoch = self.random.bool();
        let advanced = if with_epoch {
            self.watermarks.advance_in(&key, in_epoch, value)
        } else {
            self.watermarks.advance(&key, value)
        };
        if with_epoch && in_epoch != epoch {
            assert!(advanced.is_err());
            return;
        }
        self.reference
            .values
            .insert(key, (value.max(before), epoch));
        assert_eq!(advanced, Ok(self.reference.judge()));
    }

    fn add(&mut self, key: Key, by: u64) {
        let added = self.watermarks.add(&key, by);
        self.reference.values.entry(key).or_default().0 += by;
        assert_eq!(added, Ok(self.reference.judge()));
    }

    fn remove(&mut self, key: Key) {
        let removed = self.watermarks.remove(&key);
        self.reference.values.remove(&key);
        let mut ended = self.reference.end(|_, wait| match wait.future {
            Future1::One(_) if wait.members[0].0 == key => Some(cancelled("its key was removed")),
            _ => None,
        });
        for wait in &mut self.reference.waits {
            for member in &mut wait.members {
                member.2 |= member.0 == key;
            }
        }
        ended += self.reference.judge();
        assert_eq!(removed, ended);
    }

    fn reset(&mut self, key: Key, value: u64) {
        let epoch = self.random.u64(..3);
        let cancels = self.random.bool();
        let reset = if cancels {
            self.watermarks.reset_and_cancel(&key, epoch, value)
        } else {
            self.watermarks.reset(&key, epoch, value)
        };
        let present = self.reference.values.get(&key).map_or(0, |of| of.1);
        if epoch <= present {
            assert!(reset.is_err());
            return;
        }
        self.reference.values.insert(key, (value, epoch));
        let mut ended = self.reference.judge();
        if cancels {
            ended += self.reference.end(|_, wait| {
                let is_for_more = |of: &(Key, u64, bool)| of.0 == key && !of.2 && of.1 > value;
                wait.members
                    .iter()
                    .any(is_for_more)
                    .then(|| cancelled("its key was reset"))
            });
        }
        assert_eq!(reset, Ok(ended));
    }

    fn pass(&mut self) {
        let ms = self.random.u64(1..4);
        self.timer.advance(Duration::from_millis(ms));
        self.reference.now_ms += ms;
        self.reference.end(|reference, wait| {
            let is_over = wait.deadline_ms <= reference.now_ms;
            is_over.then_some(Err(WaitError::Expired))
        });
    }

    /// Returns the keys of each wait, as a visit has them.
    fn visited(&self) -> Vec<Vec<Key>> {
        let mut visited = Vec::new();
        self.waits.for_each(|_, keys, wait| {
            assert!(wait.is_some(), "no wait is under check");
            visited.push(keys.to_vec());
        });
        visited.sort();
        visited
    }

    fn compare(&mut self) {
        let mut watched = 0;
        let mut keys = 0;
        for key in 0..KEYS {
            // 1. The value.
            let of = self.reference.values.get(&key).copied();
            let found = self.watermarks.value(&key).zip(self.watermarks.epoch(&key));
            assert_eq!(found, of, "value and epoch of {key}");
            // 2. The waits for it.
            let value = self.reference.value(key);
            let members = self.reference.waits.iter().flat_map(|wait| &wait.members);
            let waiting = members.filter(|member| member.0 == key && !member.2);
            let unmet = waiting.clone().map(|member| member.1);
            let lowest = unmet.filter(|&threshold| threshold > value).min();
            assert_eq!(
                self.watermarks.lowest_waiting(&key),
                lowest,
                "lowest of {key}"
            );
            let waiting = waiting.count();
            assert_eq!(self.waits.waiters(&key), waiting, "waiters of {key}");
            keys += usize::from(waiting > 0);
            watched += self
                .reference
                .waits
                .iter()
                .flat_map(|wait| &wait.members)
                .filter(|member| member.0 == key)
                .count();
        }
        assert_eq!(self.watermarks.keys(), self.reference.values.len());
        let counts = (self.waits.len(), self.waits.keys(), self.waits.watched());
        assert_eq!(counts, (self.reference.waits.len(), keys, watched));
        assert_eq!(self.visited(), self.reference.visited());
        let pending = |wait: &mut Waiting| wait.future.poll(0).is_none();
        assert!(self.reference.waits.iter_mut().all(pending), "it is over");
    }
}

#[test]
fn watermarks_agree_with_plain_lists() {
    let mut made = 0;
    let mut seed = number("MODEL_SEED").unwrap_or(0);
    while made < effort(STEPS) {
        let mut model = Model::new(seed);
        for _ in 0..STEPS_A_CASE {
            model.step();
        }
        made += STEPS_A_CASE;
        seed += 1;
    }
    println!("{made} steps of Watermarks");
}
