//! [`Permits`], their keys and leases, on a manual timer. (Random orders: `models/permits`.)

use crate::support::*;

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::on(&timer, "test", limit).unwrap();
    (timer, permits)
}

/// Returns the reason for which a request of this weight is refused.
#[track_caller]
fn refused(permits: &Permits, weight: u64) -> WaitError {
    over(&mut permits.acquire(weight, MINUTE)).unwrap_err()
}

#[test]
fn no_permits_are_given_out_after_a_shutdown() {
    let (_timer, permits) = permits(2);
    let held = permits.try_acquire(1).unwrap();
    let lease = over(&mut permits.lease(1, MINUTE, MINUTE)).unwrap();
    let mut lost = Box::pin(lease.lost());
    assert!(poll(&mut lost).is_pending());
    let mut waits = permits.acquire(1, MINUTE);
    permits.waits().shutdown(SECOND);
    let shut_down = WaitError::Cancelled(CancelReason::Shutdown);
    assert_eq!(over(&mut waits).unwrap_err(), shut_down);
    assert!(permits.is_closed());
    assert!(poll(&mut lost).is_ready() && lease.is_lost());
    // The permit is free now, and no request gets it.
    assert_eq!(
        (permits.free(), refused(&permits, 1)),
        (1, WaitError::Closed)
    );
    drop(held);
    assert_eq!(
        (permits.free(), refused(&permits, 1)),
        (2, WaitError::Closed)
    );
    assert_eq!(refused(&permits, 3), WaitError::Closed, "too heavy, too");
    assert!(permits.try_acquire(1).is_none());
}

/// A permit stores its line in the same word as its weight, if that is below 2^28 - 1.
#[test]
fn weights_of_any_size_return_to_their_key() {
    let timer = ManualTimer::new();
    let permits = Permits::<u32>::keyed_builder("test")
        .timer(&timer)
        .limit(u64::MAX);
    let permits = permits.build().unwrap();
    let weights = [1, (1 << 28) - 2, (1 << 28) - 1, 1 << 28, 1 << 40];
    for key in 0..40 {
        let taken: u64 = weights.iter().sum();
        let mut held: Vec<_> = weights
            .iter()
            .map(|&weight| permits.try_acquire_for(&key, weight).unwrap())
            .collect();
        assert_eq!(permits.taken_for(&key), taken);
        assert!(held.iter().map(|permit| permit.weight()).eq(weights));
        assert_eq!(
            format!("{:?}", held[4]),
            "Permit { weight: 1099511627776, .. }"
        );
        // Requests wait for the rest. It is dropped before it is taken, and handed to the next
        // request.
        let rest = u64::MAX - taken;
        let mut waits = permits.acquire_for(&key, rest + 1, MINUTE);
        let mut next = permits.acquire_for(&key, rest + 1, MINUTE);
        assert!(poll(&mut waits).is_pending() && poll(&mut next).is_pending());
        drop(held.remove(0));
        assert_eq!(permits.free_for(&key), 0);
        drop(waits);
        assert_eq!(over(&mut next).unwrap().weight(), rest + 1);
        drop(held);
        assert_eq!(permits.taken_for(&key), 0);
    }
}

/// A permit does not keep its semaphore open.
#[test]
fn last_handle_ends_waits_and_leases_but_no_permit() {
    let (_timer, permits) = permits(3);
    let held = permits.try_acquire(1).unwrap();
    let lease = over(&mut permits.lease(2, MINUTE, MINUTE)).unwrap();
    assert_eq!(lease.weight(), 2);
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
    drop(lease); // the lost lease returns nothing
    assert_eq!(permits.taken(), 1);
    drop(next);
    assert_eq!((task.wakers(), other.wakers()), (0, 0));
    assert_nothing_waits(&permits.waits());
}

#[test]
fn lease_without_time_is_lost_at_the_next_tick() {
    let (timer, permits) = permits(1);
    for renews in [false, true] {
        let time_to_live = if renews { SECOND } else { Duration::ZERO };
        let lease = over(&mut permits.lease(1, time_to_live, SECOND)).unwrap();
        assert!(!renews || lease.renew(Duration::ZERO));
        assert!(!lease.is_lost());
        timer.advance(MS);
        assert!(lease.is_lost());
    }
}

/// The time to live of a lease that an expiry hands over begins when a late executor wakes its
/// task.
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

/// More waits than end under one lock hold: none gets the permits that a heavy head leaves.
#[test]
fn cancel_all_reaches_waits_behind_a_heavy_head() {
    let (_timer, permits) = permits(2);
    let held = permits.try_acquire(1).unwrap();
    let mut waits = vec![permits.acquire(2, MINUTE)];
    for _ in 0..99 {
        waits.push(permits.acquire(1, MINUTE));
    }
    assert_eq!(permits.waits().cancel_all("over"), 100);
    for mut wait in waits {
        assert!(over(&mut wait).is_err());
    }
    drop(held);
    assert_eq!(permits.free(), 2);
}

/// Each waiting task is found under its key's lock without a look at the others: otherwise this
/// takes seconds.
#[test]
fn many_waits_for_a_lost_lease_come_and_leave() {
    let (_timer, permits) = permits(1);
    let lease = over(&mut permits.lease(1, MINUTE, SECOND)).unwrap();
    let task = Woken::task();
    let mut lost: Vec<_> = (0..20_000).map(|_| Box::pin(lease.lost())).collect();
    for lost in &mut lost {
        assert!(poll(lost).is_pending());
        assert!(task.poll(lost).is_pending());
    }
    let stays = lost.pop();
    drop(lost);
    drop(lease);
    assert_eq!((task.times(), task.wakers()), (1, 0));
    drop(stays);
}

/// Even if a thread is late, ends take effect in the order of their moments.
#[test]
fn late_round_serves_before_the_next_deadline() {
    // The lease ends at 5 ms, and the request that waits for it at 7 ms.
    let (timer, permits) = permits(1);
    let lease = over(&mut permits.lease(1, 5 * MS, MINUTE)).unwrap();
    let mut next = permits.acquire(1, 7 * MS);
    timer.pass(10 * MS);
    timer.advance(Duration::ZERO);
    assert!(lease.is_lost());
    assert_eq!(over(&mut next).map(|permit| permit.weight()), Ok(1));
    // A heavy head leaves at 5 ms, and the next request fits until 7 ms.
    let held = permits.try_acquire(1).unwrap();
    permits.resize(2);
    let mut heavy = permits.acquire(2, 5 * MS);
    let mut light = permits.acquire(1, 7 * MS);
    timer.pass(10 * MS);
    timer.advance(Duration::ZERO);
    assert_eq!(over(&mut heavy).unwrap_err(), WaitError::Expired);
    assert_eq!(over(&mut light).map(|permit| permit.weight()), Ok(1));
    drop(held);
}

/// Leases are handed on in the order in which they expire on a manual timer, whichever shard a key
/// is in.
#[test]
fn leases_of_one_tick_are_handed_on_in_order() {
    let timer = ManualTimer::new();
    let builder = Permits::keyed_builder("test").timer(&timer);
    let permits = builder.shards(2).build().unwrap();
    let lease = |key: u32| over(&mut permits.lease_for(&key, 1, 5 * MS, MINUTE)).unwrap();
    let _leases: Vec<_> = (0..64).map(lease).collect();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waits = Vec::new();
    for key in 0..64 {
        let mut wait = permits.acquire_for(&key, 1, MINUTE);
        let served = order.clone();
        let woken = waker(move || served.lock().unwrap().push(key));
        assert!(poll_by(&mut wait, &woken).is_pending());
        waits.push(wait);
    }
    timer.advance(5 * MS);
    assert!(order.lock().unwrap().iter().copied().eq(0..64));
}
