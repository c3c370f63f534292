//! Waits that end one at a time: queues, leases, throttles, pools, loads of a value.

use std::panic::{AssertUnwindSafe, catch_unwind};

use purgatory::{CancelReason, Permits, RefusedReason, WaitError};
use tokio::sync::oneshot;

use super::{
    guide::{
        connection_pool::{Pool, Pooled},
        leases::{Leases, Store},
        load_once::Cache,
        queue::Queue,
        single_flight::Flights,
        throttle::Throttle,
    },
    *,
};
use crate::support::assert_no_waits;

fn queue() -> Queue {
    Queue {
        jobs: Arc::default(),
        permits: no_permits(&ManualTimer::new()),
    }
}

#[test]
fn a_push_serves_one_worker_and_jobs_keep_order() {
    let queue = queue();
    let mut workers = [(); 100].map(|()| Box::pin(queue.take(SECOND)));
    queue.push("a".to_owned());
    assert_eq!(queue.permits.waits().len(), 99);
    assert_eq!(got(&mut workers[0]).done(), "a");
    assert!(
        workers[1..]
            .iter_mut()
            .all(|worker| poll(worker).is_pending())
    );
    drop(workers);
    queue.push("b".to_owned());
    queue.push("c".to_owned());
    drop(got(&mut Box::pin(queue.take(SECOND)))); // back to the front
    assert_eq!(*queue.jobs.lock().unwrap(), ["b", "c"]);
    assert_eq!((queue.permits.limit(), queue.permits.taken()), (2, 0));
    assert_no_waits(&queue.permits.waits());
}

/// A quiet minute does not let a crowd pass.
#[test]
fn permits_are_not_saved_up() {
    let timer = ManualTimer::new();
    let throttle = Throttle {
        permits: no_permits(&timer),
    };
    let releases = throttle.clone();
    let _releasing = timer
        .schedule_at_fixed_rate(100 * MS, 100 * MS, move || releases.release(2))
        .unwrap();
    timer.advance(MINUTE);
    let _clients = [(); 5].map(|()| throttle.admit(30 * SECOND));
    for (passes, ready) in [(0, 2), (99, 2), (1, 4)] {
        timer.advance(passes * MS);
        assert_eq!(throttle.permits.waits().len(), 5 - ready);
    }
}

fn cache() -> Cache {
    Cache {
        entries: Arc::default(),
        waits: by_hand().1,
    }
}

/// A load that must not begin.
async fn again() -> Option<u64> {
    unreachable!("it is loaded already, or being loaded")
}

/// A load that ends when the test says so; dropped, it fails.
fn load() -> (
    oneshot::Sender<u64>,
    impl Future<Output = Option<u64>> + Send + use<>,
) {
    let (loaded, load) = oneshot::channel();
    (loaded, async { load.await.ok() })
}

/// It fails or panics, or its client goes. A load that outlives a shutdown counts.
#[test]
fn a_load_that_fails_is_left_to_the_next_client() {
    for how in ["fails", "panics", "goes"] {
        let cache = cache();
        let (loaded, load) = load();
        let load = async move {
            let value = load.await;
            assert_ne!(how, "panics", "the load of {value:?}");
            value
        };
        let mut first = Box::pin(cache.get(1, load));
        let mut second = Box::pin(cache.get(1, again()));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        assert_eq!(cache.waits.check_and_complete(&1), 0); // an event without a load
        drop(loaded);
        match how {
            "fails" => assert_eq!(got(&mut first), None),
            "panics" => assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut first))).is_err()),
            _ => drop(first),
        }
        assert_eq!(got(&mut second), None);
        let mut anew = Box::pin(cache.get(1, async { Some(100) }));
        cache.waits.shutdown(SECOND);
        assert_eq!(
            [got(&mut anew), got(&mut Box::pin(cache.get(1, again())))],
            [Some(100); 2]
        );
    }
}

/// A client that goes before it has learned that the load is its own passes it on.
#[test]
fn a_failed_load_is_taken_over_by_one() {
    for goes in [false, true] {
        let flights = Flights {
            values: Arc::default(),
            waits: by_hand().1,
        };
        let load = got(&mut flights.get(1)).unwrap_err();
        let [mut second, mut third, mut fourth] = [(); 3].map(|()| flights.get(1));
        drop(load);
        assert!(poll(&mut third).is_pending());
        let load = if goes {
            drop(second);
            got(&mut third).unwrap_err()
        } else {
            got(&mut second).unwrap_err()
        };
        assert!(poll(&mut fourth).is_pending());
        load.loaded(100);
        assert_eq!(got(&mut fourth).ok(), Some(100));
        nothing_is_left(&flights.waits);
    }
}

fn leases() -> (ManualTimer, Leases) {
    let timer = ManualTimer::new();
    let shards = Permits::keyed_builder("leases").timer(&timer).build();
    let leases = Leases {
        shards: shards.unwrap(),
    };
    (timer, leases)
}

#[test]
fn a_returned_lease_goes_to_the_first_that_waits() {
    let (_timer, leases) = leases();
    let held = got(&mut leases.acquire(7));
    let [mut second, third, mut fourth] = [(); 3].map(|()| leases.acquire(7));
    drop(held);
    assert!(poll(&mut fourth).is_pending());
    drop(third);
    drop(got(&mut second));
    assert!(!got(&mut fourth).is_lost());
    assert_no_waits(&leases.shards.waits());
}

/// The writes of a holder that has lost its lease change nothing, though it asks again.
#[test]
fn a_late_writer_is_refused_by_the_store() {
    let (timer, leases) = leases();
    let store = Store::default();
    let mut stalls = got(&mut leases.acquire(7));
    for round in 0..3 {
        let mut next = leases.acquire(7);
        timer.advance(10 * SECOND);
        let next = got(&mut next);
        assert!(store.write(7, next.fencing(), "in time"), "{round}");
        assert!(!store.write(7, stalls.fencing(), "late"), "{round}");
        assert!(store.write(8, stalls.fencing(), "of another shard"));
        stalls = next;
    }
}

/// A shutdown refuses only clients that would have to wait.
#[test]
fn a_free_lease_is_given_out_after_a_shutdown() {
    let (_timer, leases) = leases();
    leases.shards.waits().shutdown(SECOND);
    let held = got(&mut leases.acquire(7));
    let late = leases
        .acquire(7)
        .wait_blocking()
        .map(|lease| lease.fencing());
    assert_eq!(late, Err(WaitError::Refused(RefusedReason::Closed)));
    drop(held);
    assert!(got(&mut leases.acquire(7)).fencing() > 0);
}

/// It asks as a job is pushed, before there is a permit for it.
#[test]
fn a_newcomer_takes_no_job_ahead_of_others() {
    let queue = queue();
    let mut waiting = Box::pin(queue.take(SECOND));
    queue.jobs.lock().unwrap().push_back("a".to_owned()); // a push adds it ...
    let mut newcomer = Box::pin(queue.take(SECOND));
    queue.permits.add(1); // ... and its permit
    assert_eq!(got(&mut waiting).done(), "a");
    assert!(poll(&mut newcomer).is_pending());
}

fn pool(max: u64) -> Pool {
    let timer = ManualTimer::new();
    let permits = Permits::builder("connections").timer(&timer).limit(max);
    Pool::new(permits.build().unwrap())
}

/// The number of a connection in use.
fn number(pooled: &Pooled) -> u64 {
    pooled.connection.as_ref().unwrap().number
}

#[test]
fn a_pool_opens_no_more_than_its_limit() {
    let pool = pool(2);
    let [first, second] = [(); 2].map(|()| got(&mut Box::pin(pool.get(SECOND))));
    let [mut third, fourth, mut fifth] = [(); 3].map(|()| Box::pin(pool.get(SECOND)));
    assert!(poll(&mut third).is_pending());
    assert_eq!((number(&first), number(&second)), (1, 2));
    drop(first);
    drop(second);
    drop(fourth); // it was handed one, and its client goes
    let third = got(&mut third);
    let fifth = got(&mut fifth);
    assert_eq!(number(&third) + number(&fifth), 1 + 2);
    assert_no_waits(&pool.permits.waits());
}

/// A pool that closes tells its clients, and keeps no connection.
#[test]
fn a_closed_pool_gives_no_connection() {
    let pool = pool(1);
    let mut held = got(&mut Box::pin(pool.get(SECOND)));
    let mut waits = Box::pin(pool.get(SECOND));
    pool.close();
    let closed = WaitError::Cancelled(CancelReason::Closed("the permits were closed".into()));
    assert_eq!(over(&mut waits).err(), Some(closed.clone()));
    held.connection.as_mut().unwrap().is_broken = true;
    drop(held);
    assert_eq!(over(&mut Box::pin(pool.get(SECOND))).err(), Some(closed));
}

/// Clients that wait come first, in the order of parking; a permit that is left is a newcomer's.
#[test]
fn permits_go_to_clients_in_the_order_of_parking() {
    let throttle = Throttle {
        permits: no_permits(&ManualTimer::new()),
    };
    let [mut first, second, third, mut fourth] = [(); 4].map(|()| throttle.admit(MINUTE));
    let mut fifth = throttle.admit(MINUTE);
    drop(second); // it goes while it waits
    throttle.release(2);
    got(&mut first).forget();
    drop(third); // it goes with its permit unused
    got(&mut fourth).forget();
    assert!(poll(&mut fifth).is_pending());
    throttle.release(2);
    got(&mut fifth).forget();
    got(&mut throttle.admit(MINUTE)).forget(); // one permit is left
    assert!(poll(&mut throttle.admit(MINUTE)).is_pending());
}

/// It asks after a load has failed, before the event has reached those that wait.
#[test]
fn a_newcomer_may_take_over_a_failed_load() {
    let flights = Flights {
        values: Arc::default(),
        waits: by_hand().1,
    };
    let mut waiting = {
        flights.values.lock().unwrap().insert(1, None); // a load is under way
        flights.get(1)
    };
    flights.values.lock().unwrap().remove(&1); // it fails: its drop removes the value ...
    let newcomer = got(&mut flights.get(1)).unwrap_err();
    assert_eq!(flights.waits.check_and_complete(&1), 0); // ... and signals the key
    newcomer.loaded(100);
    assert_eq!(got(&mut waiting).ok(), Some(100));
}
