//! Permits of keys, relative changes, requests that are too heavy, and leases, on a manual timer.

use crate::support::{Later, MINUTE, MS, SECOND, Woken, assert_no_waits, over, poll};
use purgatory::{CancelReason, Permits, RefusedReason, WaitError};
use timer_core::ManualTimer;

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::builder("test").timer(&timer).limit(limit).build();
    (timer, permits.unwrap())
}

fn keyed(limit: u64) -> (ManualTimer, Permits<u32>) {
    let timer = ManualTimer::new();
    let permits = Permits::keyed_builder("test").timer(&timer).limit(limit);
    (timer, permits.build().unwrap())
}

fn too_heavy(weight: u64, limit: u64) -> WaitError {
    WaitError::Refused(RefusedReason::TooHeavy { weight, limit })
}

#[test]
fn keys_have_permits_of_their_own_and_leave_nothing() {
    let (_timer, permits) = keyed(1);
    let held = permits.try_acquire_for(&1, 1).unwrap();
    let mut next = permits.acquire_for(&1, 1, MINUTE);
    let other = permits.try_acquire_for(&2, 1).unwrap();
    assert!(permits.try_acquire_for(&1, 1).is_none());
    assert_eq!((permits.taken_for(&1), permits.free_for(&3)), (1, 1));
    assert_eq!(permits.waits().snapshot(9).busiest, [(1, 1)]);
    drop((held, other));
    drop(over(&mut next));
    assert_eq!((permits.taken_for(&1), permits.taken_for(&2)), (0, 0));
    assert_no_waits(&permits.waits());
}

#[test]
fn each_key_and_guard_tells_its_weight() {
    let (_timer, permits) = keyed(5);
    let permit = permits.try_acquire_for(&1, 2).unwrap();
    let lease = over(&mut permits.lease_for(&2, 3, MINUTE, MINUTE)).unwrap();
    assert_eq!((permit.weight(), lease.weight()), (2, 3));
    assert_eq!([1, 2, 3].map(|key| permits.taken_for(&key)), [2, 3, 0]);
    assert_eq!([1, 2, 3].map(|key| permits.free_for(&key)), [3, 2, 5]);
}

/// A request of weight 0 takes nothing, and leaves no key behind.
#[test]
fn weightless_request_waits_in_turn_and_takes_nothing() {
    let (_timer, permits) = keyed(1);
    let nothing = permits.try_acquire_for(&1, 0).unwrap();
    let held = permits.try_acquire_for(&1, 1).unwrap();
    let mut heavy = permits.acquire_for(&1, 1, MINUTE);
    let mut light = permits.acquire_for(&1, 0, MINUTE);
    assert!(poll(&mut light).is_pending());
    drop(held);
    let heavy = over(&mut heavy).unwrap();
    let light = over(&mut light).unwrap();
    drop(heavy);
    let of_another = permits.try_acquire_for(&2, 1).unwrap(); // in the place of key 1
    drop((light, nothing));
    assert_eq!(permits.taken_for(&2), 1);
    drop(of_another);
    assert_no_waits(&permits.waits());
}

#[test]
fn request_above_the_limit_is_refused_at_once() {
    let (_timer, permits) = permits(2);
    let mut heavy = permits.acquire(3, MINUTE);
    assert_eq!(over(&mut heavy).unwrap_err(), too_heavy(3, 2));
    assert!(over(&mut permits.acquire(2, MINUTE)).is_ok());
    assert_eq!(permits.waits().stats().refused_too_heavy, 1);
}

/// A head that is too heavy for a lowered limit does not hold the others up.
#[test]
fn lowered_limit_refuses_heavier_waiters_only() {
    for relative in [false, true] {
        let (_timer, permits) = permits(4);
        let held = permits.try_acquire(1).unwrap();
        let mut head = permits.acquire(4, MINUTE);
        let mut second = permits.acquire(1, MINUTE);
        let mut third = permits.acquire(3, MINUTE);
        if relative {
            assert_eq!(permits.remove(2), 2);
        } else {
            permits.resize(2);
        }
        assert_eq!(over(&mut head).unwrap_err(), too_heavy(4, 2));
        assert_eq!(over(&mut third).unwrap_err(), too_heavy(3, 2));
        assert!(over(&mut second).is_ok());
        drop(held);
        assert_no_waits(&permits.waits());
    }
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

#[test]
fn relative_changes_of_two_controllers_add_up() {
    let (_timer, permits) = permits(4);
    let all = permits.try_acquire(4).unwrap();
    permits.add(3);
    assert_eq!(permits.remove(2), 2);
    assert_eq!((permits.limit(), permits.free()), (5, 1));
    assert_eq!(permits.remove(4), 4);
    drop(all);
    assert_eq!((permits.free(), permits.remove(9)), (1, 1));
    permits.add(u64::MAX);
    permits.add(1);
    assert_eq!(permits.limit(), u64::MAX);
}

#[test]
fn changed_limit_holds_for_every_key() {
    let (_timer, permits) = keyed(1);
    let held = [1, 2].map(|key| permits.try_acquire_for(&key, 1).unwrap());
    let mut next = [1, 2].map(|key| permits.acquire_for(&key, 1, MINUTE));
    permits.add(1);
    let next = next.each_mut().map(|next| over(next).unwrap());
    assert!(permits.try_acquire_for(&3, 2).is_some());
    drop((held, next));
    permits.close();
    let late = over(&mut permits.acquire_for(&3, 1, MINUTE)).unwrap_err();
    assert_eq!(
        late,
        WaitError::Cancelled(CancelReason::Closed("the permits were closed".into()))
    );
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
    assert_no_waits(&permits.waits());
}

/// A returned lease ends its watchers, too. Untaken, it goes to the next.
#[test]
fn returned_lease_goes_to_the_next() {
    let (_timer, permits) = permits(1);
    let lease = over(&mut permits.lease(1, SECOND, SECOND)).unwrap();
    let mut lost = Box::pin(lease.lost());
    assert!(poll(&mut lost).is_pending());
    let untaken = permits.lease(1, SECOND, SECOND);
    let mut last = permits.acquire(1, SECOND);
    drop(lease);
    assert!(poll(&mut lost).is_ready());
    assert!(poll(&mut last).is_pending());
    drop(untaken);
    assert_eq!(over(&mut last).unwrap().weight(), 1);
}

/// The time to live counts though no task has polled.
#[test]
fn untaken_lease_expires() {
    let (timer, permits) = permits(1);
    let held = permits.try_acquire(1).unwrap();
    let mut untaken = permits.lease(1, 10 * MS, SECOND);
    let mut next = permits.acquire(1, SECOND);
    drop(held);
    timer.advance(10 * MS);
    let next = over(&mut next).unwrap();
    assert!(over(&mut untaken).unwrap().is_lost());
    drop(next);
    assert_eq!(permits.free(), 1);
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

/// Leases are no waits: they take no place, and no cancel or close ends them.
#[test]
fn lease_outlives_cancels_and_a_close() {
    let timer = ManualTimer::new();
    let builder = Permits::builder("test").timer(&timer).max_parked(1);
    let permits = builder.limit(2).build().unwrap();
    let lease = over(&mut permits.lease(1, SECOND, MINUTE)).unwrap();
    let mut waits = permits.acquire(2, MINUTE);
    assert_eq!(permits.waits().len(), 1);
    assert_eq!(permits.waits().snapshot(9).oldest.len(), 1);
    assert_eq!(permits.waits().cancel_all("all"), 1);
    permits.close();
    assert!(over(&mut waits).is_err() && !lease.is_lost());
    timer.advance(SECOND);
    assert!(lease.is_lost());
    assert_eq!(permits.taken(), 0);
    assert_no_waits(&permits.waits());
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

/// The numbers of a key rise, though nothing of it stays in between.
#[test]
fn fencing_numbers_rise_for_a_key_that_was_gone() {
    let (_timer, permits) = keyed(1);
    let mut last = 0;
    for round in 0..100 {
        for key in [7, round] {
            let lease = over(&mut permits.lease_for(&key, 1, SECOND, SECOND)).unwrap();
            if key == 7 {
                assert!(lease.fencing() > last);
                last = lease.fencing();
            }
        }
        assert_eq!(permits.taken_for(&7), 0);
    }
}

/// Requests that are due at one tick end before what they leave is handed over.
#[test]
fn waits_due_at_one_tick_all_expire() {
    let (timer, permits) = permits(2);
    let held = permits.try_acquire(1).unwrap();
    let mut head = permits.acquire(2, 10 * MS);
    let mut second = permits.acquire(1, 10 * MS);
    let mut third = permits.acquire(1, SECOND);
    timer.advance(10 * MS);
    assert_eq!(over(&mut head).unwrap_err(), WaitError::Expired);
    assert_eq!(over(&mut second).unwrap_err(), WaitError::Expired);
    assert_eq!(over(&mut third).unwrap().weight(), 1);
    drop(held);
}
