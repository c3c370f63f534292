//! [`Permits`], on a manual timer.

use crate::support::{MINUTE, MS, SECOND, assert_no_waits, over, poll};
use purgatory::{CancelReason, Permits, RefusedReason, WaitError};
use timer_core::ManualTimer;

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::builder("test").timer(&timer).limit(limit).build();
    (timer, permits.unwrap())
}

#[test]
fn four_of_four_large_requests_are_served() {
    let (_timer, permits) = permits(4);
    let mut out: Vec<_> = (0..4).map(|_| permits.try_acquire(1).unwrap()).collect();
    let mut waiting = Vec::new();
    for number in 0..40 {
        let weight = if number % 10 == 0 { 4 } else { 1 };
        waiting.push((weight, permits.acquire(weight, MINUTE)));
    }
    let mut large = 0;
    for (weight, mut wait) in waiting {
        while poll_ready(&mut out, &permits, weight) {}
        let permit = over(&mut wait).unwrap();
        large += u64::from(permit.weight() == 4);
        out.push(permit);
    }
    assert_eq!(large, 4);
    drop(out);
    assert_eq!(permits.free(), 4);
    assert_no_waits(&permits.waits());
}

/// Returns the oldest permit while the next request does not fit.
fn poll_ready(out: &mut Vec<purgatory::Permit>, permits: &Permits, weight: u64) -> bool {
    let taken: u64 = out.iter().map(|permit| permit.weight()).sum();
    if taken + weight <= permits.limit() {
        return false;
    }
    drop(out.remove(0));
    true
}

#[test]
fn permits_return_by_every_way_out() {
    let (timer, permits) = permits(2);
    let held = permits.acquire(2, SECOND).wait_blocking().unwrap();
    let mut expires = permits.acquire(1, 10 * MS);
    let dropped = permits.acquire(1, SECOND);
    let untaken = permits.acquire(2, SECOND);
    let mut last = permits.acquire(2, SECOND);
    timer.advance(10 * MS);
    assert_eq!(over(&mut expires).unwrap_err(), WaitError::Expired);
    drop(dropped);
    drop(held);
    assert!(poll(&mut last).is_pending());
    drop(untaken);
    assert_eq!(over(&mut last).unwrap().weight(), 2);
    assert_eq!(permits.free(), 2);
    assert_no_waits(&permits.waits());
}

#[test]
fn resized_permits_serve_those_that_fit() {
    let (_timer, permits) = permits(3);
    let held = permits.try_acquire(1).unwrap();
    let mut large = permits.acquire(3, MINUTE);
    let mut small = permits.acquire(1, MINUTE);
    permits.resize(3);
    assert!(poll(&mut large).is_pending() && permits.try_acquire(1).is_none());
    permits.resize(5);
    let both = (over(&mut large).unwrap(), over(&mut small).unwrap());
    permits.resize(2);
    assert_eq!((permits.taken(), permits.free()), (5, 0));
    drop(both);
    assert_eq!(permits.free(), 1);
    held.forget();
    assert_eq!((permits.limit(), permits.taken()), (1, 0));
    permits.refill(7);
    assert_eq!(permits.free(), 7);
    assert!(permits.try_acquire(u64::MAX).is_none());
}

#[test]
fn closed_permits_end_all_with_one_error() {
    let (_timer, permits) = permits(1);
    let held = permits.try_acquire(1).unwrap();
    let mut waits = permits.acquire(1, MINUTE);
    permits.close();
    let closed = WaitError::Cancelled(CancelReason::Closed("the permits were closed".into()));
    assert!(permits.is_closed() && closed.is_shutdown());
    assert_eq!(over(&mut waits).unwrap_err(), closed);
    drop(held);
    assert!(permits.try_acquire(1).is_none());
    // Also a request that would fit.
    for weight in 0..=2 {
        let late = permits.acquire(weight, MINUTE).wait_blocking();
        assert_eq!(late.unwrap_err(), closed);
    }
    assert_eq!((permits.taken(), permits.waits().len()), (0, 0));
}

/// Heavy requests end under one lock hold, and the next would fit before it ends in another.
#[test]
fn nobody_is_served_while_all_end() {
    type End = fn(&Permits);
    let ends: [End; 2] = [Permits::close, |permits| {
        _ = permits.waits().shutdown(MINUTE)
    }];
    for (end, heavy) in ends
        .into_iter()
        .flat_map(|end| [63, 64, 65].map(|n| (end, n)))
    {
        let (_timer, permits) = permits(2);
        let _held = permits.try_acquire(1).unwrap();
        let _heavy: Vec<_> = (0..heavy).map(|_| permits.acquire(2, MINUTE)).collect();
        let mut light = permits.acquire(1, MINUTE);
        end(&permits);
        assert!(over(&mut light).is_err(), "behind {heavy}");
        assert_eq!(permits.free(), 1);
    }
}

#[test]
fn no_permits_are_given_out_after_a_shutdown() {
    let (_timer, permits) = permits(1);
    let held = permits.try_acquire(1).unwrap();
    let mut waits = permits.acquire(1, MINUTE);
    permits.waits().shutdown(SECOND);
    let shut_down = WaitError::Cancelled(CancelReason::Shutdown);
    assert_eq!(over(&mut waits).unwrap_err(), shut_down);
    assert!(permits.is_closed());
    let refused = || permits.acquire(1, MINUTE).wait_blocking().unwrap_err();
    assert_eq!(refused(), WaitError::Refused(RefusedReason::Closed));
    drop(held); // free now, and given to nobody
    assert_eq!(refused(), WaitError::Refused(RefusedReason::Closed));
    assert!(permits.try_acquire(1).is_none());
}
