//! Timeouts with a tolerance: `Timeout::Within`.

use std::{collections::BTreeSet, time::Duration};

use purgatory::{Outcome, Timeout};
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
