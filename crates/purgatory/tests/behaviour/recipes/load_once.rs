//! A cache that loads once: loads that fail, hang, panic or are given up.

use std::sync::{Arc, Mutex};

use timer_core::ManualTimer;
use tokio::sync::oneshot;

use super::{SECOND, Wait, by_hand, every_order, got, guide::load_once::Cache, over, poll};

fn cache() -> (ManualTimer, Arc<Cache>) {
    let (timer, waits) = by_hand();
    (timer, Arc::new(Cache { entries: Arc::default(), waits }))
}

/// What must not be loaded.
async fn again() -> Option<u64> {
    unreachable!("it is loaded already, or being loaded")
}

/// A load that ends when the test says so; dropped, it fails.
fn told() -> (oneshot::Sender<u64>, impl Future<Output = Option<u64>> + Send + use<>) {
    let (tell, load) = oneshot::channel();
    (tell, async { load.await.ok() })
}

#[test]
fn a_client_waits_for_the_load_of_another() {
    every_order(|| {
        let (timer, cache) = cache();
        let waits = cache.waits.clone();
        let (tell, load) = told();
        let loads = cache.clone();
        let mut first = Box::pin(async move { loads.get(1, load).await });
        assert!(poll(&mut first).is_pending());
        let first = Arc::new(Mutex::new(Some((tell, first))));
        let complete = move || {
            if let Some((tell, mut first)) = first.lock().unwrap().take() {
                tell.send(100).unwrap();
                assert_eq!(got(&mut first), Some(100));
            }
        };
        let begin = move || {
            let cache = cache.clone();
            async move { cache.get(1, again()).await }
        };
        (Wait { timer, waits, limit: 5 * SECOND, remembers: true }, begin, complete)
    });
}

#[test]
fn a_failed_load_is_told_and_loaded_anew() {
    let (_timer, cache) = cache();
    let (tell, load) = told();
    let (mut first, mut second) = (Box::pin(cache.get(1, load)), Box::pin(cache.get(1, again())));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!(cache.waits.check_and_complete(&1), 0); // an event without a load
    drop(tell);
    assert_eq!((got(&mut first), got(&mut second)), (None, None));
    assert_eq!(got(&mut Box::pin(cache.get(1, async { Some(100) }))), Some(100));
    assert_eq!(got(&mut Box::pin(cache.get(1, again()))), Some(100));
    super::nothing_is_left(&cache.waits);
}

/// And the load of a client that outlives a shutdown counts.
#[test]
fn a_load_given_up_or_panicked_is_left_to_the_next() {
    for panics in [false, true] {
        let (_timer, cache) = cache();
        let (tell, load) = told();
        let load = async move {
            let value = load.await;
            assert!(!panics, "the load of {value:?}");
            value
        };
        let (mut first, mut second) =
            (Box::pin(cache.get(1, load)), Box::pin(cache.get(1, again())));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        if panics {
            tell.send(0).unwrap();
            let polls = std::panic::AssertUnwindSafe(|| poll(&mut first));
            assert!(std::panic::catch_unwind(polls).is_err());
        } else {
            drop(first);
        }
        assert_eq!(got(&mut second), None);
        let mut anew = Box::pin(cache.get(1, async { Some(100) }));
        cache.waits.shutdown(SECOND);
        assert_eq!((got(&mut anew), over(&mut Box::pin(cache.get(1, again())))), (Some(100), None));
    }
}
