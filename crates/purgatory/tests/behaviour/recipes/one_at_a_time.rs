//! Waits that an event completes one at a time: queues, leases, throttles, loads of a value.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use purgatory::{Monitor, Permits, RefusedReason, WaitError};
use timer_core::Timer;
use tokio::sync::oneshot;

use super::{
    guide::{
        leases::Leases, load_once::Cache, queue::Queue, single_flight::Flights, throttle::Throttle,
    },
    *,
};

#[test]
fn a_push_checks_few_workers_and_jobs_keep_order() {
    let queue = Queue {
        jobs: Monitor::over(by_hand().1, VecDeque::new()),
    };
    let mut workers = [(); 100].map(|()| queue.take(SECOND));
    let checks = || queue.jobs.purgatory().stats().checks;
    let before = checks();
    queue.push("a".to_owned());
    assert_eq!(checks() - before, 2); // the one that came first, and the next
    assert_eq!(queue.jobs.purgatory().len(), 99);
    assert_eq!(got(&mut workers[0]).done(), "a");
    assert!(
        workers[1..]
            .iter_mut()
            .all(|worker| poll(worker).is_pending())
    );
    drop(workers);
    queue.push("b".to_owned());
    queue.push("c".to_owned());
    drop(got(&mut queue.take(SECOND))); // back to the front
    assert_eq!(queue.jobs.read(VecDeque::clone), ["b", "c"]);
    nothing_is_left(queue.jobs.purgatory());
}

/// A quiet minute does not let a crowd pass.
#[test]
fn permits_are_not_saved_up() {
    let (timer, waits) = by_hand();
    let throttle = Throttle {
        permits: Permits::over(waits, 0),
    };
    let releases = throttle.clone();
    let _releasing = timer
        .schedule_at_fixed_rate(100 * MS, 100 * MS, move || releases.release(2))
        .unwrap();
    timer.advance(MINUTE);
    let _clients = [(); 5].map(|()| throttle.admit(30 * SECOND));
    for (passes, ready) in [(0, 2), (99, 2), (1, 4)] {
        timer.advance(passes * MS);
        assert_eq!(throttle.permits.purgatory().len(), 5 - ready);
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

fn leases(free: &[u32]) -> Leases {
    Leases {
        free: Arc::new(Mutex::new(free.iter().copied().collect())),
        waits: by_hand().1,
    }
}

#[test]
fn a_returned_lease_goes_to_the_first_that_waits() {
    let leases = leases(&[7]);
    let held = got(&mut leases.acquire(7));
    let [mut second, third, mut fourth] = [(); 3].map(|()| leases.acquire(7));
    drop(held);
    assert!(poll(&mut fourth).is_pending());
    drop(third);
    drop(got(&mut second));
    assert_eq!(got(&mut fourth).shard, 7);
    nothing_is_left(&leases.waits);
}

/// It asks after the lease was returned, before the event has reached the first that waits.
#[test]
fn a_newcomer_takes_no_lease_ahead_of_others() {
    let leases = leases(&[]);
    let mut waiting = leases.acquire(7);
    leases.free.lock().unwrap().insert(7); // a drop returns it ...
    let mut newcomer = leases.acquire(7);
    assert!(leases.waits.check_and_complete_one(&7)); // ... and signals its key
    let first = got(&mut waiting);
    assert!(poll(&mut newcomer).is_pending());
    drop(first);
    assert_eq!(got(&mut newcomer).shard, 7);
}

/// A shutdown refuses only clients that would have to wait.
#[test]
fn a_free_lease_is_given_out_after_a_shutdown() {
    let leases = leases(&[7]);
    leases.waits.shutdown(SECOND);
    let held = got(&mut leases.acquire(7));
    let late = leases.acquire(7).wait_blocking().map(|lease| lease.shard);
    assert_eq!(late, Err(WaitError::Refused(RefusedReason::Closed)));
    drop(held);
    assert_eq!(got(&mut leases.acquire(7)).shard, 7);
}

/// It asks after a job was pushed, before the event has reached the first that waits.
#[test]
fn a_newcomer_takes_no_job_ahead_of_others() {
    let queue = Queue {
        jobs: Monitor::over(by_hand().1, VecDeque::new()),
    };
    let mut waiting = queue.take(SECOND);
    queue.jobs.update_keys(|jobs| {
        jobs.push_back("a".to_owned()); // a push adds it ...
        ((), Vec::new())
    });
    let mut newcomer = queue.take(SECOND);
    queue.jobs.update_one(&(), |_| ()); // ... and signals its key
    assert_eq!(got(&mut waiting).done(), "a");
    assert!(poll(&mut newcomer).is_pending());
}

/// Clients that wait come first, in the order of parking; a permit that is left is a newcomer's.
#[test]
fn permits_go_to_clients_in_the_order_of_parking() {
    let throttle = Throttle {
        permits: Permits::over(by_hand().1, 0),
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
