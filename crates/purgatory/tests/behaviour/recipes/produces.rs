//! Waits for a high watermark: acks=all, and two waits with one deadline.

use super::{
    guide::{acks_all::Partition, deadline::Produces},
    *,
};

/// Creates a partition in epoch 1, with three replicas in sync.
fn partition() -> (ManualTimer, Partition) {
    let timer = ManualTimer::new();
    let logs = ReplicaSets::on(&timer, "test").unwrap();
    let partition = Partition {
        this: "leader",
        log: Mutex::default(),
        logs,
    };
    partition
        .lead(1, &[("leader", 0), ("a", 0), ("b", 0)], 0)
        .unwrap();
    (timer, partition)
}

/// The set of replicas changes while 20 000 produces wait for it.
#[test]
fn produces_end_when_a_lagging_replica_falls_out() {
    const PRODUCES: u64 = 20_000;
    let (timer, orders) = partition();
    let mut produces: Vec<_> = (1..=PRODUCES)
        .map(|offset| orders.produce(1, offset))
        .collect();
    assert_eq!(orders.fetched(1, "leader", PRODUCES), Ok(0));
    assert_eq!(orders.fetched(1, "b", 100), Ok(0));
    assert_eq!(orders.fetched(1, "a", PRODUCES - 1), Ok(100));
    // The leader looks at each half of the limit: "a" catches up in between, and "b" does not.
    assert_eq!(orders.shrink(1), Ok(0));
    timer.advance(5 * SECOND);
    assert_eq!(orders.fetched(1, "a", PRODUCES), Ok(0));
    assert_eq!(orders.shrink(1), Ok(0));
    timer.advance(5 * SECOND);
    assert_eq!(orders.shrink(1), Ok(PRODUCES as usize - 100));
    let mut last = produces.pop().unwrap();
    assert_eq!(over(&mut last), Ok(PRODUCES));
    assert!(produces.iter_mut().all(|produce| over(produce).is_ok()));

    // A later produce does not wait for "b", which comes back once it has caught up.
    let mut later = orders.produce(1, PRODUCES + 1);
    assert_eq!(orders.fetched(1, "b", PRODUCES - 1), Ok(0));
    assert_eq!(orders.logs.members(&()).len(), 2);
    assert_eq!(orders.fetched(1, "leader", PRODUCES + 1), Ok(0));
    assert_eq!(orders.fetched(1, "b", PRODUCES), Ok(0));
    assert_eq!(orders.logs.members(&()).len(), 3);
    assert_eq!(orders.fetched(1, "a", PRODUCES + 1), Ok(0));
    assert!(poll(&mut later).is_pending(), "b is in the set again");
    assert_eq!(orders.fetched(1, "b", PRODUCES + 1), Ok(1));
    assert_eq!(over(&mut later), Ok(PRODUCES + 1));
    nothing_waits(&orders.logs.waits());
}

/// The leader appends a record each 10 ms for a minute, and is always one ahead. "b" stops half
/// way.
#[test]
fn replica_that_keeps_up_with_a_growing_log_stays() {
    let (timer, orders) = partition();
    let in_sync = || orders.logs.members(&()).len();
    let mut b_has = 0;
    for offset in 1..=6000 {
        orders.fetched(1, "leader", offset).unwrap();
        orders.fetched(1, "a", offset - 1).unwrap();
        if offset <= 3000 {
            orders.fetched(1, "b", offset - 1).unwrap();
            b_has = offset - 1;
        }
        timer.advance(Duration::from_millis(10));
        if offset % 500 == 0 {
            orders.shrink(1).unwrap();
        }
        // At 30 s "b" is seen to lag, and is taken out at the second look after that.
        assert_eq!(in_sync(), if offset < 4000 { 3 } else { 2 }, "{offset}");
    }
    assert_eq!((b_has, orders.logs.watermark(&())), (2999, Some(5999)));
}

/// Nothing is appended below the floor, nor in an epoch that is over.
#[test]
fn refused_append_leaves_the_log_as_it_is() {
    let (_timer, orders) = partition();
    let appended = || orders.log.lock().unwrap().clone();
    let mut produce = orders.append(1, "first").unwrap();
    assert_eq!(orders.fetched(1, "a", 1), Ok(0));
    assert_eq!(orders.fetched(1, "b", 1), Ok(1));
    assert_eq!(over(&mut produce), Ok(1));

    let led = orders.logs.in_epoch(&(), 1);
    led.leave(&"a").unwrap();
    led.leave(&"b").unwrap();
    let (members, floor) = (1, 2);
    let below = WaitError::Cancelled(CancelReason::BelowFloor { members, floor });
    assert_eq!(orders.append(1, "too few").unwrap_err(), below);
    assert_eq!(orders.fetched(1, "a", 1), Ok(0));
    orders.lead(2, &[("a", 1), ("leader", 1)], 1).unwrap();
    assert_eq!(orders.append(1, "late").unwrap_err(), other_epoch(1, 2));
    assert_eq!(appended(), ["first"]);
    assert_eq!(orders.logs.waits().len(), 0);
}

/// "b" reports more than the leader's log has, which nothing refuses: the leader lags behind it.
#[test]
fn shrink_leaves_the_leader_in_the_set() {
    let (timer, orders) = partition();
    assert_eq!(orders.fetched(1, "b", 500), Ok(0));
    for _ in 0..3 {
        orders.shrink(1).unwrap();
        timer.advance(5 * SECOND);
    }
    let members: Vec<_> = orders
        .logs
        .members(&())
        .into_iter()
        .map(|of| of.0)
        .collect();
    assert_eq!(members, ["leader", "b"]);
}

/// A fetch of "b" on a lost connection is processed after a later fetch.
#[test]
fn a_fetch_that_comes_late_takes_nobody_out() {
    let (_timer, orders) = partition();
    let in_sync = || orders.logs.members(&()).len();
    for replica in ["leader", "a", "b"] {
        orders.fetched(1, replica, 5).unwrap();
    }
    assert_eq!(orders.logs.watermark(&()), Some(5));
    assert_eq!((orders.fetched(1, "b", 3), in_sync()), (Ok(0), 3));
    let mut produce = orders.produce(1, 6);
    for replica in ["leader", "a"] {
        assert_eq!(orders.fetched(1, replica, 6), Ok(0));
    }
    assert!(poll(&mut produce).is_pending(), "b may lack it");
    assert_eq!(orders.fetched(1, "b", 6), Ok(1));
    assert_eq!(over(&mut produce), Ok(6));
    // So is a fetch from before "b" joined.
    assert_eq!(orders.logs.in_epoch(&(), 1).leave(&"b"), Ok(0));
    for (offset, then_in_sync) in [(5, 2), (6, 3), (5, 3)] {
        let fetched = orders.fetched(1, "b", offset);
        assert_eq!((fetched, in_sync()), (Ok(0), then_in_sync), "{offset}");
    }
}

/// A look or a fetch of the last leader takes no replica out of the next leader's set.
#[test]
fn a_leader_that_was_replaced_takes_nobody_out() {
    let (timer, orders) = partition();
    orders.fetched(1, "leader", 9).unwrap();
    assert_eq!(orders.shrink(1), Ok(0));
    timer.advance(10 * SECOND);
    orders
        .lead(2, &[("a", 9), ("leader", 9), ("b", 0)], 9)
        .unwrap();
    let late = || Err(other_epoch(1, 2));
    assert_eq!(orders.shrink(2), Ok(0));
    timer.advance(10 * SECOND);
    assert_eq!(
        (orders.shrink(1), orders.fetched(1, "b", 0)),
        (late(), late())
    );
    assert_eq!(orders.logs.members(&()).len(), 3);
    orders.shrink(2).unwrap();
    assert_eq!(orders.logs.members(&()).len(), 2);
}

fn produces() -> (ManualTimer, Produces) {
    let timer = ManualTimer::new();
    let waits = || Purgatory::on(&timer, "waits").unwrap();
    let produces = Produces {
        timer: timer.clone().into(),
        places: Monitor::over(waits(), 0),
        high_watermark: Monitor::over(waits(), 0),
    };
    (timer, produces)
}

/// Either of its waits may use the time up; its place is returned.
#[test]
fn a_produce_has_one_deadline_for_both_its_waits() {
    for (place_after, replicated_at) in [(8, None), (10, None), (11, Some(7)), (11, Some(6))] {
        let (timer, produces) = produces();
        let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
        assert!(poll(&mut produce).is_pending());
        // At 11, the place was granted in time, but the task runs only after the deadline.
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

/// The client has been granted its place, and its task has not run since.
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
