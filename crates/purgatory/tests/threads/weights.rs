//! `max_weight` is exact under eight threads: in a race to fill it, and after every kind of end.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use fastrand::Rng;
use purgatory::{DelayedOperation, Outcome, Purgatory, RefusedReason, Timeout};
use timer_core::{SystemTimer, Timer};

use crate::effort::effort;

const THREADS: u64 = 8;
const MAX: u64 = 10_000;
/// Without `TEST_EFFORT`.
const ROUNDS: u64 = 20;

struct Heavy(u64);

impl DelayedOperation for Heavy {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Outcome) {}

    fn weight(&self) -> u64 {
        self.0
    }
}

/// Eight threads fill it: what is accepted is its weight, and what was refused does not fit.
fn fill(waits: &Purgatory<u64, Heavy>, round: u64) {
    let (accepted, lightest) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (accepted, lightest) = (&accepted, &lightest);
            scope.spawn(move || {
                let mut random = Rng::with_seed(round * THREADS + thread);
                let mut refused = 0;
                while refused < 20 {
                    let weight = random.u64(0..30);
                    let keys = [random.u64(..50), random.u64(..50)];
                    let parked =
                        waits.try_complete_else_watch(Heavy(weight), &keys, Timeout::Never);
                    match parked.map_err(|refused| refused.reason) {
                        Ok(_) => accepted.fetch_add(weight, SeqCst),
                        Err(RefusedReason::TooHeavy { .. }) => {
                            refused += 1;
                            lightest.fetch_min(weight, SeqCst)
                        }
                        Err(reason) => panic!("{reason}"),
                    };
                }
            });
        }
    });
    let (accepted, lightest) = (accepted.into_inner(), lightest.into_inner());
    assert!(accepted <= MAX && accepted + lightest > MAX, "{accepted}, {lightest} refused");
    assert_eq!(waits.stats().weight, accepted);
}

/// Eight threads park, complete, cancel and let expire.
fn race(waits: &Purgatory<u64, Heavy>, round: u64) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut random = Rng::with_seed(!(round * THREADS + thread));
                for _ in 0..300 {
                    let key = random.u64(..50);
                    let timeout = Duration::from_micros(random.u64(..3000));
                    let heavy = Heavy(random.u64(0..300));
                    match random.u64(..8) {
                        0 => _ = waits.complete_for_key(&key),
                        1 => _ = waits.cancel_for_key(&key, "race"),
                        2 if random.u64(..20) == 0 => _ = waits.cancel_all("race"),
                        _ => drop(waits.try_complete_else_watch(heavy, &[key, 7], timeout)),
                    }
                }
            });
        }
    });
    waits.cancel_all("over");
}

#[test]
fn max_weight_is_exact_on_real_threads() {
    let timer = SystemTimer::new().unwrap();
    let waits = || Purgatory::builder("weights").timer(&timer).max_weight(MAX).build().unwrap();
    let raced = waits();
    for round in 0..effort(ROUNDS) {
        let filled = waits();
        fill(&filled, round);
        filled.cancel_all("full");
        assert_eq!(filled.stats().weight, 0);
        race(&raced, round);
    }
    timer.shutdown(Duration::MAX); // what had expired is called back
    assert_eq!((raced.stats().weight, raced.len()), (0, 0));
}

/// A thread that offers what is too heavy again and again.
#[test]
fn too_heavy_takes_no_place_on_real_threads() {
    let builder = Purgatory::builder("test").max_parked(1).max_weight(10);
    let purgatory: Purgatory<u8, Heavy> = builder.build().unwrap();
    let over = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(SeqCst) == 0 {
                let refused = purgatory.try_complete_else_watch(Heavy(11), &[1], Timeout::Never);
                assert!(refused.is_err());
            }
        });
        let mut refused = None;
        for _ in 0..effort(200_000) {
            match purgatory.try_complete_else_watch(Heavy(1), &[2], Timeout::Never) {
                Ok(_) => assert_eq!(purgatory.cancel_all("over"), 1),
                Err(by) => refused = Some(by.reason),
            }
        }
        over.store(1, SeqCst); // or a failure would wait for that thread
        assert_eq!(refused, None);
    });
}
