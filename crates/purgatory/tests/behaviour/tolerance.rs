//! Timeouts with a tolerance: `Timeout::Within`.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, time::Duration};

use purgatory::{LocalBoxed, LocalPurgatory, Outcome, ParkResult, Timeout, when};
use timer_core::Clock;

use crate::support::{MS, Park, Probe, waiting};

const MS_NS: u64 = 1_000_000;

/// 200 requests, one parked or rescheduled every 1.3 ms; time goes on by half milliseconds. Returns
/// when each was parked, and when it expired.
fn moments(timeout: Timeout, rescheduled: bool) -> Vec<(u64, u64)> {
    let (timer, purgatory) = waiting();
    let mut moments = Vec::new();
    let mut waiting: Vec<(u64, Probe)> = Vec::new();
    let mut next_ns = 0;
    while moments.len() < 200 {
        let now_ns = timer.clock().now_ns();
        if now_ns >= next_ns && moments.len() + waiting.len() < 200 {
            next_ns += 1_300_000;
            let probe = Probe::new();
            let parked_with = if rescheduled { Timeout::Never } else { timeout };
            let id = purgatory.park(probe.operation(), &["a", "b"], parked_with);
            assert!(!rescheduled || purgatory.reschedule(id, timeout));
            waiting.push((now_ns, probe));
        }
        timer.advance(MS / 2);
        let now_ns = timer.clock().now_ns();
        waiting.retain(|(parked_ns, probe)| {
            let expired = probe.ended();
            if expired {
                assert_eq!(probe.endings(), [Outcome::Expired]);
                moments.push((*parked_ns, now_ns));
            }
            !expired
        });
    }
    moments
}

#[test]
fn they_expire_together_none_early_and_none_later_than_the_tolerance() {
    let (delay, tolerance) = (Duration::from_micros(200_250), Duration::from_micros(99_900));
    let least_ns = delay.as_nanos() as u64;
    let most_ns = (delay + tolerance).as_nanos() as u64 + MS_NS; // rounded up to a tick
    let within = Timeout::Within { delay, tolerance };
    for rescheduled in [false, true] {
        let moments = moments(within, rescheduled);
        let waited = |&(parked_ns, expired_ns): &(u64, u64)| expired_ns - parked_ns;
        assert!(moments.iter().map(waited).all(|ns| (least_ns..=most_ns).contains(&ns)));
        let different: BTreeSet<u64> = moments.iter().map(|&(_, expired_ns)| expired_ns).collect();
        assert!(different.len() <= 6, "{different:?}");
    }
}

#[test]
fn a_tolerance_of_nothing_is_none() {
    let exact = moments((20 * MS).into(), false);
    assert_eq!(
        moments(Timeout::Within { delay: 20 * MS, tolerance: Duration::ZERO }, false),
        exact
    );
}

#[test]
fn those_of_one_thread_expire_together_too() {
    let waits = LocalPurgatory::<&str, LocalBoxed>::new();
    let within = Timeout::Within { delay: 10 * MS, tolerance: 100 * MS };
    for number in 0..40 {
        let operation = when(|| false, |outcome| assert_eq!(outcome, Outcome::Expired));
        let rescheduled = number % 2 == 0;
        let timeout = if rescheduled { Timeout::Never } else { within };
        let id = waits.park(operation, &["a"], timeout);
        assert!(!rescheduled || waits.reschedule(id, within));
        waits.advance(waits.now_ns() + MS_NS);
    }
    waits.advance(63 * MS_NS);
    assert_eq!(waits.len(), 40);
    waits.advance(64 * MS_NS); // a coarse bucket begins
    assert_eq!(waits.len(), 0);
}

/// As with `Timeout::After`.
#[test]
fn no_delay_is_one_check_at_park_and_the_next_tick_when_rescheduled() {
    let none = Timeout::Within { delay: Duration::ZERO, tolerance: 100 * MS };
    let (timer, purgatory) = waiting();
    let parked = purgatory.try_complete_else_watch(Probe::new().operation(), &["a"], none);
    assert_eq!(parked.unwrap(), ParkResult::Ended(Outcome::Expired));
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a"], Timeout::Never);
    timer.advance(5 * MS);
    assert!(purgatory.reschedule(id, none));
    timer.advance(MS);
    assert_eq!(probe.endings(), [Outcome::Expired]);

    let (waits, ended) = (LocalPurgatory::<&str, LocalBoxed>::new(), Rc::new(Cell::new(false)));
    let ends = ended.clone();
    let operation = when(|| false, move |_| ends.set(true));
    let id = waits.park(operation, &["a"], Timeout::Never);
    waits.advance(5 * MS_NS);
    assert!(waits.reschedule(id, none));
    waits.advance(6 * MS_NS);
    assert!(ended.get());
}
