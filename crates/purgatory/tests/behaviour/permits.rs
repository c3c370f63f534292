//! [`Permits`], on a manual timer. (Beside a reference: `models/permits`.)

use crate::support::*;

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::builder("test").timer(&timer).limit(limit).build();
    (timer, permits.unwrap())
}

/// What was used up comes back by a refill or a limit alone, and goes to the first in line.
#[test]
fn refill_serves_those_that_wait_in_order() {
    let (_timer, permits) = permits(3);
    for weight in [1, 2] {
        permits.try_acquire(weight).unwrap().forget();
    }
    assert_eq!((permits.limit(), permits.taken()), (0, 0));
    let mut heavy = permits.acquire(2, MINUTE);
    let mut light = permits.acquire(1, MINUTE);
    permits.refill(1);
    let task = Woken::task();
    assert!(task.poll(&mut heavy).is_pending() && task.poll(&mut light).is_pending());
    permits.refill(2);
    assert_eq!(task.times(), 1);
    let held = over(&mut heavy).unwrap();
    assert!(poll(&mut light).is_pending());
    // Those that are held stay taken, and a higher limit is kept.
    permits.refill(4);
    let last = over(&mut light).unwrap();
    assert_eq!((permits.limit(), permits.taken()), (6, 3));
    drop((held, last));
    assert_eq!(permits.free(), 6);
    // A request of weight 0 waits while more are taken than there are, and no longer.
    let used = permits.try_acquire(6).unwrap();
    permits.resize(4);
    let mut nothing = permits.acquire(0, MINUTE);
    assert!(poll(&mut nothing).is_pending());
    used.forget();
    assert!(poll(&mut nothing).is_ready());
    // A new limit counts all, and none as used up.
    permits.resize(5);
    assert_eq!((permits.limit(), permits.free()), (5, 5));
    // What waits for more is woken by a close.
    let held = permits.try_acquire(5).unwrap();
    let mut waits = permits.acquire(1, MINUTE);
    assert!(task.poll(&mut waits).is_pending());
    permits.close();
    assert_eq!(task.times(), 2);
    drop(held);
}

/// Permits without keys are those of the one key that their type has.
#[test]
fn permits_without_keys_have_one_line() {
    let (_timer, permits) = permits(1);
    let held = permits.try_acquire(1).unwrap();
    assert_eq!((permits.taken_for(&()), permits.free_for(&())), (1, 0));
    assert!(permits.try_acquire_for(&(), 1).is_none());
    let mut next = permits.acquire_for(&(), 1, MINUTE);
    assert!(poll(&mut next).is_pending());
    drop(held);
    drop(over(&mut next).unwrap());
    assert_nothing_waits(&permits.waits());
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
    assert_eq!(refused(), WaitError::Closed);
    drop(held); // free now, and given to nobody
    assert_eq!(refused(), WaitError::Closed);
    assert!(permits.try_acquire(1).is_none());
}
