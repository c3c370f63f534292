//! Waits that end one at a time: queues, and loads of a value.

use tokio::sync::oneshot;

use super::{
    guide::{load_once::Cache, queue::Queue, single_flight::Flights},
    *,
};

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
    assert_nothing_waits(&queue.permits.waits());
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

/// Returns a load, which ends when the test sends a value, and fails when the sender is dropped.
fn load() -> (
    oneshot::Sender<u64>,
    impl Future<Output = Option<u64>> + Send + use<>,
) {
    let (loaded, load) = oneshot::channel();
    (loaded, async { load.await.ok() })
}

/// The load fails or panics, or its client goes. A load that outlives a shutdown answers the client
/// that started it.
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
        assert_eq!(got(&mut anew), Some(100));
        let late = poll(&mut Box::pin(cache.get(1, again())));
        assert!(matches!(late, Poll::Ready(Err(error)) if error.is_shutdown()));
    }
}

/// A client that goes before it learns that the load is its own passes it on.
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

/// The newcomer asks after a load has failed, and before the event has reached the waiting clients.
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
    flights.values.lock().unwrap().remove(&1); // the load fails: its drop removes the value ...
    let newcomer = got(&mut flights.get(1)).unwrap_err();
    assert_eq!(flights.waits.check_and_complete(&1), 0); // ... and signals the key
    newcomer.loaded(100);
    assert_eq!(got(&mut waiting).ok(), Some(100));
}
