//! A cache that loads once, in every order.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

use purgatory::WaitError;
use timer_core::ManualTimer;
use tokio::sync::oneshot;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, guide::load_once::Cache, off_runtime, on_runtimes, poll,
};

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
fn what_was_loaded_before_is_there_and_what_failed_is_loaded_anew() {
    on_runtimes(|runtime| {
        let (_timer, cache) = cache();
        runtime.block_on(async {
            assert_eq!(cache.get(1, async { None }).await, Ok(None));
            assert_eq!(cache.get(1, async { Some(100) }).await, Ok(Some(100)));
            assert_eq!(cache.get(1, again()).await, Ok(Some(100)));
            assert_eq!(cache.get(2, async { Some(200) }).await, Ok(Some(200)));
        });
        super::nothing_is_left(&cache.waits);
    });
}

/// The load ends on a task of the runtime, or its answer comes from a thread off it.
#[test]
fn those_who_ask_during_a_load_are_told_how_it_ended() {
    for end in [Some(100), None] {
        on_runtimes(|runtime| {
            let (_timer, cache) = cache();
            let (tell, load) = told();
            let mut first = Box::pin(cache.get(1, load));
            assert!(poll(&mut first).is_pending());
            let others = [(); 2].map(|()| {
                let cache = cache.clone();
                runtime.spawn(async move { cache.get(1, again()).await })
            });
            while cache.waits.len() < 2 {
                runtime.block_on(tokio::task::yield_now());
            }
            assert_eq!(cache.waits.check_and_complete(&1), 0); // an event without a load
            off_runtime(|| end.map(|value| tell.send(value).unwrap()));
            assert_eq!(runtime.block_on(first), Ok(end));
            assert_eq!(others.map(|other| runtime.block_on(other).unwrap()), [Ok(end), Ok(end)]);
            assert_eq!(cache.waits.check_and_complete(&1), 0); // once more
            super::nothing_is_left(&cache.waits);
        });
    }
}

#[test]
fn a_load_that_takes_too_long_is_not_waited_for_and_still_counts() {
    let (timer, cache) = cache();
    let (tell, load) = told();
    let (mut first, mut second) = (Box::pin(cache.get(1, load)), Box::pin(cache.get(1, again())));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    timer.advance(5 * SECOND - MS);
    assert!(poll(&mut second).is_pending());
    timer.advance(MS);
    assert_eq!(poll(&mut second), Poll::Ready(Err(WaitError::Expired)));
    tell.send(100).unwrap();
    assert_eq!(poll(&mut first), Ok(Some(100)).into());
    assert_eq!(poll(&mut Box::pin(cache.get(1, again()))), Ok(Some(100)).into());
    super::nothing_is_left(&cache.waits);
}

#[test]
fn a_client_that_goes_while_it_loads_leaves_the_load_to_the_next() {
    on_runtimes(|runtime| {
        let (_timer, cache) = cache();
        let of_task = cache.clone();
        let loads = runtime.spawn(async move { of_task.get(1, pending()).await });
        while cache.entries.lock().unwrap().is_empty() {
            runtime.block_on(tokio::task::yield_now());
        }
        let mut waits = Box::pin(cache.get(1, again()));
        assert!(poll(&mut waits).is_pending());
        loads.abort();
        assert!(runtime.block_on(loads).unwrap_err().is_cancelled());
        assert_eq!(poll(&mut waits), Ok(None).into());
        assert_eq!(runtime.block_on(cache.get(1, async { Some(100) })), Ok(Some(100)));
        super::nothing_is_left(&cache.waits);
    });
}

#[test]
fn a_load_that_panics_leaves_the_load_to_the_next() {
    on_runtimes(|runtime| {
        let (_timer, cache) = cache();
        let (tell, load) = told();
        let of_task = cache.clone();
        let loads = runtime.spawn(async move {
            let load = async { panic!("load {:?}", load.await) };
            of_task.get(1, load).await
        });
        while cache.entries.lock().unwrap().is_empty() {
            runtime.block_on(tokio::task::yield_now());
        }
        let waits = cache.get(1, again());
        let panics = async {
            tell.send(0).unwrap();
            loads.await.unwrap_err().is_panic()
        };
        assert_eq!(runtime.block_on(async { tokio::join!(waits, panics) }), (Ok(None), true));
        assert_eq!(runtime.block_on(cache.get(1, async { Some(100) })), Ok(Some(100)));
        super::nothing_is_left(&cache.waits);
    });
}

#[test]
fn a_client_that_goes_while_it_waits_leaves_nothing() {
    let (_timer, cache) = cache();
    let (tell, load) = told();
    let (mut first, mut second) = (Box::pin(cache.get(1, load)), Box::pin(cache.get(1, again())));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(second);
    super::nothing_is_left(&cache.waits);
    tell.send(100).unwrap();
    assert_eq!(poll(&mut first), Ok(Some(100)).into());
}

#[test]
fn a_shutdown_ends_who_waits_and_not_who_loads() {
    let (_timer, cache) = cache();
    let (tell, load) = told();
    let (mut first, mut second) = (Box::pin(cache.get(1, load)), Box::pin(cache.get(1, again())));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    cache.waits.shutdown(SECOND);
    assert_eq!(poll(&mut second), Err(SHUTDOWN).into());
    assert_eq!(poll(&mut Box::pin(cache.get(1, again()))), Err(CLOSED).into());
    tell.send(100).unwrap();
    assert_eq!(poll(&mut first), Ok(Some(100)).into());
    assert_eq!(poll(&mut Box::pin(cache.get(1, again()))), Ok(Some(100)).into());
}

/// Loads that succeed, fail or are given up, and many that ask: each is told, and of each key one
/// load has succeeded.
#[test]
fn of_many_that_ask_one_loads_and_all_are_told() {
    const KEYS: usize = 50;
    const ASKING: usize = 8;
    on_runtimes(|runtime| {
        let (_timer, cache) = cache();
        let (begun, loaded) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let asks = |key: u32, at: usize| {
            let (cache, begun, loaded) = (cache.clone(), begun.clone(), loaded.clone());
            runtime.spawn(async move {
                let load = async {
                    begun.fetch_add(1, SeqCst);
                    tokio::task::yield_now().await;
                    let value = (at % 3 != 0).then_some(u64::from(key));
                    loaded.fetch_add(usize::from(value.is_some()), SeqCst);
                    value
                };
                tokio::select! {
                    biased;
                    told = cache.get(key, load) => Some(told),
                    () = tokio::task::yield_now(), if at % 4 == 3 => None,
                }
            })
        };
        let keys = 0..KEYS as u32;
        let asking = keys.clone().flat_map(|key| (0..ASKING).map(move |at| (key, at)));
        let tasks: Vec<_> = asking.map(|(key, at)| (key, asks(key, at))).collect();
        let (mut told, mut gone) = (0, 0);
        for (key, task) in tasks {
            match runtime.block_on(task).unwrap() {
                Some(value) => {
                    assert!([Ok(None), Ok(Some(key.into()))].contains(&value), "{value:?}");
                    told += 1;
                }
                None => gone += 1,
            }
        }
        assert_eq!(told + gone, KEYS * ASKING);
        for key in keys {
            let load = async {
                loaded.fetch_add(1, SeqCst);
                Some(key.into())
            };
            assert_eq!(runtime.block_on(cache.get(key, load)), Ok(Some(key.into())));
        }
        assert_eq!(loaded.load(SeqCst), KEYS);
        assert!(begun.load(SeqCst) >= KEYS);
        super::nothing_is_left(&cache.waits);
    });
}
