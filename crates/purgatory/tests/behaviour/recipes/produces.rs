//! Waits for a high watermark: acks=all, and two waits with one deadline.

use purgatory::{CancelReason, Monitor, RefusedReason, WaitError, Watermarks};

use super::{
    guide::{acks_all::Partition, deadline::Produces},
    *,
};

fn partition() -> Partition {
    Partition {
        in_sync: Mutex::new(vec!["leader", "a", "b"]),
        log_ends: Watermarks::over(by_hand().1),
    }
}

/// The set of replicas changes while 20 000 produces wait for it.
#[test]
fn produces_end_when_a_lagging_replica_falls_out() {
    const PRODUCES: u64 = 20_000;
    let orders = partition();
    let mut produces: Vec<_> = (1..=PRODUCES)
        .map(|offset| orders.produce(offset))
        .collect();
    assert_eq!(orders.fetched("leader", PRODUCES), Ok(0));
    assert_eq!(orders.fetched("b", 100), Ok(0));
    assert_eq!(orders.fetched("a", PRODUCES - 1), Ok(100));
    // The last produce waits for a, all others for b alone.
    assert_eq!(orders.falls_out("b"), PRODUCES as usize - 101);
    let mut last = produces.pop().unwrap();
    let mut answered = produces.iter_mut().map(|produce| over(produce).unwrap());
    let ends = [("leader", PRODUCES), ("a", PRODUCES - 1)];
    assert!(answered.all(|replicas| replicas[..2] == ends));
    assert!(poll(&mut last).is_pending());

    // A produce that comes later does not wait for it, and b's late fetch answers none.
    let mut later = orders.produce(PRODUCES + 1);
    assert_eq!(orders.fetched("b", PRODUCES + 9), Ok(0));
    assert_eq!(orders.fetched("leader", PRODUCES + 1), Ok(0));
    assert_eq!(orders.fetched("a", PRODUCES + 1), Ok(2));
    assert!(over(&mut last).is_ok() && over(&mut later).is_ok());
    nothing_is_left(orders.log_ends.purgatory());
}

#[test]
fn produce_without_a_replica_in_sync_is_refused() {
    let orders = partition();
    let mut waits = orders.produce(1);
    for replica in ["leader", "a", "b"] {
        orders.falls_out(replica);
    }
    let lost = CancelReason::QuorumLost { left: 0, needed: 1 };
    assert_eq!(over(&mut waits), Err(WaitError::Cancelled(lost)));
    let none = RefusedReason::NoQuorum { k: 0, n: 0 };
    assert_eq!(over(&mut orders.produce(2)), Err(WaitError::Refused(none)));
}

fn produces() -> (ManualTimer, Produces) {
    let timer = ManualTimer::new();
    let waits = || Purgatory::builder("waits").timer(&timer).build().unwrap();
    let produces = Produces {
        timer: timer.clone().into(),
        places: Monitor::over(waits(), 0),
        high_watermark: Monitor::over(waits(), 0),
    };
    (timer, produces)
}

/// Whichever of the two waits uses the time up; and the place is returned.
#[test]
fn a_produce_has_one_deadline_for_both_its_waits() {
    for (place_after, replicated_at) in [(8, None), (10, None), (11, Some(7)), (11, Some(6))] {
        let (timer, produces) = produces();
        let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
        assert!(poll(&mut produce).is_pending());
        // At 11 its place was won in time, and its task comes to run only after the deadline.
        if let Some(at) = replicated_at {
            produces.places.update(|free| *free += 1);
            produces
                .high_watermark
                .update(|high_watermark| *high_watermark = at);
        }
        timer.advance(place_after * SECOND);
        if place_after == 8 {
            produces.places.update(|free| *free += 1);
            assert!(poll(&mut produce).is_pending());
            timer.advance(2 * SECOND - MS);
            assert!(poll(&mut produce).is_pending());
            timer.advance(MS);
        }
        let ended = if replicated_at == Some(7) {
            Ok(7)
        } else {
            Err(WaitError::Expired)
        };
        assert_eq!(over(&mut produce), ended);
        assert_eq!(
            produces.places.read(|free| *free),
            u32::from(place_after != 10)
        );
    }
}

/// Its place is won, and its task has not run since.
#[test]
fn a_client_that_goes_returns_its_place() {
    let (_timer, produces) = produces();
    let mut produce = Box::pin(produces.produce(7, SECOND));
    assert!(poll(&mut produce).is_pending());
    produces.places.update(|free| *free += 1);
    assert_eq!(produces.places.read(|free| *free), 0);
    drop(produce);
    assert_eq!(produces.places.read(|free| *free), 1);
}
