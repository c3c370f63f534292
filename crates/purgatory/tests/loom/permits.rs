//! Permits: none is lost or given twice, and no request is left waiting for a free one.

use loom::thread;
use purgatory::{CancelReason, Permits, WaitError, sync::make_late};
use timer_core::ManualTimer;

use super::{MS, beside, check, ending, failpoints::Failpoint};

fn permits(limit: u64) -> (ManualTimer, Permits) {
    let timer = ManualTimer::new();
    let permits = Permits::builder("loom").timer(&timer).limit(limit).build();
    (timer, permits.unwrap())
}

/// Asserts that no permit is taken and no request waits.
#[track_caller]
fn assert_idle(permits: &Permits) {
    assert_eq!((permits.taken(), permits.waits().len()), (0, 0));
}

/// A permit is returned while another request comes.
#[test]
fn release_against_acquire() {
    check(&[Failpoint::FreeComparedUnlocked], || {
        let (_timer, permits) = permits(1);
        let held = permits.try_acquire(1).unwrap();
        let returns = thread::spawn(move || drop(held));
        let mut next = permits.acquire(1, MS);
        returns.join().unwrap();
        let permit = ending(&mut next).expect("one is free").unwrap();
        assert_eq!(permits.taken(), 1);
        drop(permit);
        assert_idle(&permits);
    });
}

/// One permit, too few for the head, is returned while the head is dropped: the next request gets
/// it.
#[test]
fn release_against_drop_of_head() {
    check(&[Failpoint::HeadLeavesUnserved], || {
        let (_timer, permits) = permits(2);
        let [first, second] = [(); 2].map(|()| permits.try_acquire(1).unwrap());
        let head = permits.acquire(2, MS);
        let mut next = permits.acquire(1, MS);
        let returns = thread::spawn(move || drop(first));
        drop(head);
        returns.join().unwrap();
        let permit = ending(&mut next).expect("one is free").unwrap();
        assert_eq!(permits.taken(), 2);
        drop((second, permit));
        assert_idle(&permits);
    });
}

/// A granted permit whose future is dropped is returned once, not twice. No fault fits: the guard's
/// own event serves the next request.
#[test]
fn dropped_permit_counts_once() {
    check(&[], || {
        let (_timer, permits) = permits(1);
        let held = permits.try_acquire(1).unwrap();
        let first = permits.acquire(1, MS);
        let mut second = permits.acquire(1, MS);
        let returns = thread::spawn(move || drop(held));
        drop(first);
        returns.join().unwrap();
        let taken = ending(&mut second).expect("it is the only one").unwrap();
        assert_eq!((permits.taken(), taken.weight()), (1, 1));
        drop(taken);
        assert_eq!(permits.free(), 1);
    });
}

/// A lease expires while its holder returns it: the next request gets its permit, and no other
/// does.
#[test]
fn release_against_expiry_of_lease() {
    check(&[Failpoint::LostLeaseReturns], || {
        let (timer, permits) = permits(1);
        let mut lease = permits.lease(1, MS, MS);
        let lease = ending(&mut lease).expect("it is free").unwrap();
        let mut second = permits.acquire(1, 2 * MS);
        let mut third = permits.acquire(1, 2 * MS);
        let time = beside(&timer, |timer| timer.advance(MS));
        drop(lease);
        time.join().unwrap();
        let permit = ending(&mut second).expect("it came free").unwrap();
        assert!(ending(&mut third).is_none(), "it came free once");
        assert_eq!(permits.taken(), 1);
        drop(permit);
        assert!(ending(&mut third).is_some_and(|third| third.is_ok()));
        assert_idle(&permits);
    });
}

/// A lease expires while it is renewed: the renewal succeeds, or the next request gets it. No fault
/// fits: the lease's entry is there or gone.
#[test]
fn renewal_against_expiry_of_lease() {
    check(&[], || {
        let (timer, permits) = permits(1);
        let mut lease = permits.lease(1, MS, MS);
        let lease = ending(&mut lease).expect("it is free").unwrap();
        let mut next = permits.lease(1, MS, 2 * MS);
        let time = beside(&timer, |timer| timer.advance(MS));
        let renewed = lease.renew(2 * MS);
        time.join().unwrap();
        assert_eq!(lease.is_lost(), !renewed);
        match ending(&mut next) {
            None => assert!(renewed),
            Some(next) => assert!(!renewed && next.unwrap().fencing() > lease.fencing()),
        }
        drop((lease, next));
        assert_idle(&permits);
    });
}

/// A lease is handed over, and its new holder renews it before its time to live has begun.
#[test]
fn hand_over_of_lease_against_its_renewal() {
    check(&[Failpoint::BeginOverridesRenewal], || {
        let (timer, permits) = permits(1);
        let held = permits.try_acquire(1).unwrap();
        let mut next = permits.lease(1, MS, MS);
        let returns = thread::spawn(move || drop(held));
        let mut renewed = false;
        let mut lease = ending(&mut next);
        if let Some(Ok(lease)) = &lease {
            renewed = lease.renew(3 * MS);
        }
        returns.join().unwrap();
        lease = lease.or_else(|| ending(&mut next));
        let lease = lease.expect("it was handed over").unwrap();
        timer.advance(2 * MS);
        assert_eq!(lease.is_lost(), !renewed, "it has its time to live");
        drop(lease);
        assert_idle(&permits);
    });
}

/// All waits are cancelled while a permit returns: one of the two forgets the key. No fault fits:
/// serving a forgotten key panics under the lock, which ends a model's process.
#[test]
fn cancel_of_all_against_release() {
    check(&[], || {
        let timer = ManualTimer::new();
        let permits = Permits::<u64>::keyed_builder("loom").timer(&timer);
        let permits = permits.build().unwrap();
        let held = permits.try_acquire_for(&1, 1).unwrap();
        let mut next = permits.acquire_for(&1, 1, MS);
        let returns = thread::spawn(move || drop(held));
        let cancelled = permits.waits().cancel_all("over");
        returns.join().unwrap();
        let permit = ending(&mut next).expect("it has ended");
        assert_eq!(permit.is_err(), cancelled == 1);
        drop(permit);
        assert_eq!((permits.taken_for(&1), permits.waits().len()), (0, 0));
    });
}

/// The permits are closed while another request comes: the request does not wait for ever.
#[test]
fn close_against_acquire() {
    check(&[Failpoint::ClosedIsJoined], || {
        let (_timer, permits) = permits(1);
        let held = permits.try_acquire(1).unwrap();
        let closes = beside(&permits, |closing| closing.close());
        let mut comes = permits.acquire(1, MS);
        closes.join().unwrap();
        let error = ending(&mut comes).expect("nobody serves it").unwrap_err();
        assert_eq!(
            error,
            WaitError::Cancelled(CancelReason::Closed("the permits were closed".into()))
        );
        drop(held);
        assert_idle(&permits);
    });
}

/// Permits with keys; the shard of key 1 is made when it is first used.
fn late_permits() -> (ManualTimer, Permits<u64>) {
    make_late();
    let timer = ManualTimer::new();
    let permits = Permits::keyed_builder("loom").timer(&timer).limit(1);
    (timer, permits.build().unwrap())
}

/// The limit rises while a key's shard is made: a request that waits there is served.
#[test]
fn change_of_the_limit_against_the_making_of_a_shard() {
    check(&[Failpoint::LookPassesTheUnmade], || {
        let (_timer, permits) = late_permits();
        let changes = beside(&permits, |changed| changed.add(1));
        let held = permits.try_acquire_for(&1, 1).expect("one is free");
        let mut next = permits.acquire_for(&1, 1, MS);
        changes.join().unwrap();
        let next = ending(&mut next).expect("there are two");
        drop((held, next));
        assert!(permits.try_acquire_for(&1, 2).is_some());
    });
}

/// The permits are closed while a key's shard is made: a request that waits there is cancelled.
#[test]
fn close_against_the_making_of_a_shard() {
    check(&[Failpoint::LookPassesTheUnmade], || {
        let (_timer, permits) = late_permits();
        let closes = beside(&permits, |closed| closed.close());
        let held = permits.try_acquire_for(&1, 1);
        let mut next = permits.acquire_for(&1, 1, MS);
        closes.join().unwrap();
        assert_eq!(held.is_none(), permits.taken_for(&1) == 0);
        assert!(ending(&mut next).expect("nobody serves it").is_err());
        assert!(permits.try_acquire_for(&1, 1).is_none());
    });
}
