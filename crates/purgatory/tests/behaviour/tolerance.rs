//! Timeouts with a tolerance: `Timeout::Within`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{LocalBoxed, LocalPurgatory, Outcome, ParkResult, Purgatory, Timeout, when};
use timer_core::{Clock, ManualTimer};

use crate::support::{Probe, Waiting};

const MS: Duration = Duration::from_millis(1);

fn setup() -> (ManualTimer, Waiting) {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::builder("test").timer(&timer).build().unwrap();
    (timer, purgatory)
}

/// Of 200 parked or rescheduled one a millisecond.
#[test]
fn with_a_tolerance_they_expire_together_none_early_and_none_later_than_that() {
    let within = Timeout::Within { delay: 200 * MS, tolerance: 100 * MS };
    for rescheduled in [false, true] {
        let (timer, purgatory) = setup();
        let ended_ms = Arc::new(Mutex::new(Vec::new()));
        for parked_ms in 0..200 {
            let (ended_ms, clock) = (ended_ms.clone(), timer.clone());
            let ended = move |outcome| {
                assert_eq!(outcome, Outcome::Expired);
                ended_ms.lock().unwrap().push((parked_ms, clock.clock().now_ns() / 1_000_000));
            };
            let operation = Probe::new().operation().then(ended);
            let timeout = if rescheduled { Timeout::Never } else { within };
            let parked = purgatory.try_complete_else_watch(operation, &["a", "b"], timeout);
            let ParkResult::Parked(id) = parked.unwrap() else { panic!("parked") };
            assert!(!rescheduled || purgatory.reschedule(id, within));
            timer.advance(MS);
        }
        (0..300).for_each(|_| timer.advance(MS));
        let ended_ms = ended_ms.lock().unwrap();
        let after = |&(parked, ended): &(u64, u64)| ended - parked;
        assert!(ended_ms.iter().map(after).all(|after| (200..=300).contains(&after)));
        let moments: BTreeSet<u64> = ended_ms.iter().map(|&(_, ended)| ended).collect();
        assert!(ended_ms.len() == 200 && moments.len() <= 5, "{moments:?}");
    }
    let (_timer, purgatory) = setup();
    let none = Timeout::Within { delay: Duration::ZERO, tolerance: 100 * MS };
    let parked = purgatory.try_complete_else_watch(Probe::new().operation(), &["a"], none);
    assert_eq!(parked.unwrap(), ParkResult::Ended(Outcome::Expired));
}

#[test]
fn those_of_one_thread_expire_together_too() {
    const MS_NS: u64 = 1_000_000;
    let waits = LocalPurgatory::<&str, LocalBoxed>::new();
    let timeout = Timeout::Within { delay: 10 * MS, tolerance: 100 * MS };
    for _ in 0..40 {
        let operation = when(|| false, |outcome| assert_eq!(outcome, Outcome::Expired));
        waits.try_complete_else_watch(operation.into(), &["a"], timeout).unwrap();
        waits.advance(waits.now_ns() + MS_NS);
    }
    waits.advance(63 * MS_NS);
    assert_eq!(waits.len(), 40);
    waits.advance(64 * MS_NS); // a coarse bucket begins
    assert_eq!(waits.len(), 0);
}
