//! Permits of keys, and leases, on a manual timer. (Beside a reference: `models/permits`.)

use crate::support::{Later, MINUTE, MS, SECOND, Woken, assert_nothing_waits, over, poll};
use purgatory::{CancelReason, Permits, WaitError};
use timer_core::ManualTimer;

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::builder("test").timer(&timer).limit(limit).build();
    (timer, permits.unwrap())
}

fn too_heavy(weight: u64, limit: u64) -> WaitError {
    WaitError::TooHeavy { weight, limit }
}

/// A limit of 0 is a pause; what was used up may return.
#[test]
fn paused_and_used_up_permits_refuse_nothing() {
    let (_timer, permits) = permits(2);
    permits.resize(0);
    let mut waits = permits.acquire(2, MINUTE);
    let mut heavy = permits.acquire(3, MINUTE);
    assert!(poll(&mut waits).is_pending() && poll(&mut heavy).is_pending());
    permits.resize(2);
    assert_eq!(over(&mut heavy).unwrap_err(), too_heavy(3, 2));
    over(&mut waits).unwrap().forget();
    assert_eq!(permits.limit(), 0);
    let mut next = permits.acquire(2, MINUTE);
    permits.refill(1);
    assert!(poll(&mut next).is_pending());
    permits.refill(2);
    assert_eq!(over(&mut next).unwrap().weight(), 2);
}

/// Keyed permits whose keys have one value are those without keys: a resize brings back what was used
/// up.
#[test]
fn used_up_permits_of_the_one_key_come_back() {
    let timer = ManualTimer::new();
    let permits = Permits::<()>::keyed_builder("test").timer(&timer).limit(5);
    let permits = permits.build().unwrap();
    permits.try_acquire_for(&(), 5).unwrap().forget();
    assert_eq!((permits.limit(), permits.free_for(&())), (0, 0));
    permits.resize(2);
    assert_eq!(permits.try_acquire_for(&(), 2).unwrap().weight(), 2);
}

/// Permits do not keep their semaphore open.
#[test]
fn last_handle_ends_waits_and_leases_but_no_permit() {
    let (_timer, permits) = permits(2);
    let held = permits.try_acquire(1).unwrap();
    let lease = over(&mut permits.lease(1, MINUTE, MINUTE)).unwrap();
    let mut waits = permits.acquire(2, MINUTE);
    drop(permits);
    let dropped = WaitError::Cancelled(CancelReason::Dropped);
    assert_eq!(over(&mut waits).unwrap_err(), dropped);
    assert!(lease.is_lost() && !lease.renew(MINUTE));
    drop((held, lease));
}

#[test]
fn expired_lease_goes_on_and_its_holder_learns() {
    let (timer, permits) = permits(1);
    let lease = over(&mut permits.lease(1, 10 * MS, SECOND)).unwrap();
    let mut next = permits.lease(1, 10 * MS, SECOND);
    let [task, other] = [(); 2].map(|()| Woken::task());
    let mut lost = Box::pin(lease.lost());
    let mut also = Box::pin(lease.lost());
    assert!(task.poll(&mut lost).is_pending() && other.poll(&mut also).is_pending());
    timer.advance(9 * MS);
    assert!(!lease.is_lost() && lease.renew(10 * MS));
    timer.advance(9 * MS);
    assert!(poll(&mut next).is_pending());
    assert!(other.poll(&mut also).is_pending());
    drop(also);
    timer.advance(MS);
    assert_eq!((task.times(), other.times()), (1, 0));
    assert!(task.poll(&mut lost).is_ready());
    assert!(lease.is_lost() && !lease.renew(SECOND));
    let next = over(&mut next).unwrap();
    assert!(next.fencing() > lease.fencing());
    drop(lease); // it has nothing to return
    assert_eq!(permits.taken(), 1);
    drop(next);
    assert_eq!((task.wakers(), other.wakers()), (0, 0));
    assert_nothing_waits(&permits.waits());
}

/// A lease that expiry hands over lives from when its task is woken, on an executor that is late.
#[test]
fn time_to_live_begins_as_the_task_is_woken() {
    let timer = ManualTimer::new();
    let later = Later::default();
    let builder = Permits::builder("test").timer(&timer);
    let permits = builder.executor(later.clone()).build().unwrap();
    let first = over(&mut permits.lease(1, 10 * MS, MINUTE)).unwrap();
    let mut next = permits.lease(1, 10 * MS, MINUTE);
    timer.advance(20 * MS);
    assert!(first.is_lost());
    let next = over(&mut next).unwrap();
    timer.advance(20 * MS);
    assert!(!next.is_lost());
    assert!(later.run() > 0);
    timer.advance(9 * MS);
    assert!(!next.is_lost());
    timer.advance(MS);
    assert!(next.is_lost());
}

#[test]
fn shutdown_ends_leases() {
    let (_timer, permits) = permits(1);
    let lease = over(&mut permits.lease(1, MINUTE, MINUTE)).unwrap();
    let mut lost = Box::pin(lease.lost());
    assert!(poll(&mut lost).is_pending());
    permits.waits().shutdown(SECOND);
    assert!(poll(&mut lost).is_ready() && lease.is_lost());
    assert_eq!(permits.free(), 1);
}

/// How late a lease is lost is no lateness of a wait: each of these has an outcome.
#[test]
fn a_lost_lease_counts_among_no_waits() {
    let (timer, permits) = permits(1);
    let waits = permits.waits();
    waits.times(); // timing begins
    let lease = over(&mut permits.lease(1, SECOND, MINUTE)).unwrap();
    let late = permits.acquire(1, MS);
    timer.advance(SECOND);
    assert!(lease.is_lost());
    let times = waits.times();
    assert_eq!((times.expired.count(), times.lateness.count()), (1, 1));
    drop(late);
}
