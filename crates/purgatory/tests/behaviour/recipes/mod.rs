//! The guide's recipes in the orders that a network may give: answers and events that come early,
//! twice or never, clients that go, connections made anew, a shutdown. [`every_order`] takes those
//! with a future through the orders that all of them have in common; the files beside it test what
//! is particular to one recipe. The recipes compiled here are the files that the guide shows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../src/guide/recipes"]
#[allow(unreachable_pub, clippy::unwrap_used, reason = "for the guide's readers")]
mod guide {
    pub mod acks_all;
    pub mod connection;
    pub mod cores;
    pub mod deadline;
    pub mod debounce;
    pub mod drain;
    #[cfg(feature = "keyed")]
    pub mod epochs;
    pub mod forgotten;
    pub mod leases;
    pub mod load_once;
    pub mod long_poll;
    pub mod one_thread;
    pub mod queue;
    #[cfg(feature = "keyed")]
    pub mod quorum_write;
    pub mod raise_after_unlock;
    pub mod request_reply;
    pub mod retry;
    pub mod sessions;
    pub mod single_flight;
    pub mod stored_poll;
    pub mod throttle;
}

mod acks_all;
mod connection;
mod cores;
mod deadline;
mod debounce;
mod drain;
#[cfg(feature = "keyed")]
mod epochs;
mod forgotten;
mod leases;
mod load_once;
mod long_poll;
mod one_thread;
mod queue;
#[cfg(feature = "keyed")]
mod quorum_write;
mod raise_after_unlock;
mod request_reply;
mod retry;
mod sessions;
mod single_flight;
mod stored_poll;
mod throttle;

use std::{task::Poll, thread, time::Duration};

use purgatory::{DelayedOperation, Purgatory, WatchKey};
use timer_core::ManualTimer;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Later, MS, SECOND, assert_empty, by_hand, by_hand_with, poll};

const EXPIRED: &str = "the time ran out";
const SHUTDOWN: &str = "cancelled: shut down";
const CLOSED: &str = "not parked: the purgatory was shut down";

/// A recipe's wait, in a purgatory of its own.
struct Wait<K: WatchKey, O: DelayedOperation> {
    timer: ManualTimer,
    waits: Purgatory<K, O>,
    /// How long it waits.
    limit: Duration,
    /// A change is still seen by a wait that begins after it.
    remembers: bool,
}

/// Takes a wait through every order of its beginning, what completes it, and what else may end it.
/// `set_up` makes a new one for each, how it begins, and what completes it.
fn every_order<K, O, T, E, Begin, Waiting, Complete>(
    set_up: impl Fn() -> (Wait<K, O>, Begin, Complete),
) where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
    T: Send + 'static,
    E: ToString + Send + 'static,
    Begin: Fn() -> Waiting,
    Waiting: Future<Output = Result<T, E>> + Send + 'static,
    Complete: Fn() + Clone + Send + Sync + 'static,
{
    completed_early_and_twice(&set_up);
    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for runtime in runtimes.map(|mut builder| builder.worker_threads(2).build().unwrap()) {
        for on_runtime in [false, true] {
            let (wait, begin, complete) = set_up();
            let task = spawn(&runtime, &wait, begin());
            if on_runtime {
                runtime.block_on(runtime.spawn(async move { complete() })).unwrap();
            } else {
                off_runtime(complete);
            }
            assert_eq!(runtime.block_on(task).unwrap(), None);
            nothing_is_left(&wait.waits);
        }
        // It never comes, or too late.
        let (wait, begin, complete) = set_up();
        let task = spawn(&runtime, &wait, begin());
        wait.timer.advance(wait.limit - MS);
        assert_eq!(wait.waits.len(), 1);
        off_runtime(|| wait.timer.advance(MS));
        assert_eq!(runtime.block_on(task).unwrap().as_deref(), Some(EXPIRED));
        complete();
        nothing_is_left(&wait.waits);
        // The client goes, and may come back.
        let (wait, begin, complete) = set_up();
        let task = spawn(&runtime, &wait, begin());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        nothing_is_left(&wait.waits);
        let again = spawn(&runtime, &wait, begin());
        complete();
        assert_eq!(runtime.block_on(again).unwrap(), None);
        nothing_is_left(&wait.waits);
    }
    let (wait, begin, _complete) = set_up();
    let mut waiting = Box::pin(begin());
    assert!(poll(&mut waiting).is_pending());
    wait.waits.shutdown(SECOND);
    assert_eq!(over(&mut waiting).as_deref(), Some(SHUTDOWN));
    assert_eq!(over(&mut Box::pin(begin())).as_deref(), Some(CLOSED));
    nothing_is_left(&wait.waits);
}

fn completed_early_and_twice<K, O, T, E, Begin, Waiting, Complete>(
    set_up: &impl Fn() -> (Wait<K, O>, Begin, Complete),
) where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
    E: ToString,
    Begin: Fn() -> Waiting,
    Waiting: Future<Output = Result<T, E>>,
    Complete: Fn(),
{
    let (wait, begin, complete) = set_up();
    if wait.remembers {
        complete();
        assert_eq!(over(&mut Box::pin(begin())), None);
        nothing_is_left(&wait.waits);
    }
    let (wait, begin, complete) = set_up();
    let mut waiting = Box::pin(begin());
    assert!(poll(&mut waiting).is_pending());
    complete();
    complete();
    assert_eq!(over(&mut waiting), None);
    nothing_is_left(&wait.waits);
}

/// How a wait failed; `None` when it did not.
#[track_caller]
fn over<T, E: ToString>(
    waiting: &mut (impl Future<Output = Result<T, E>> + Unpin),
) -> Option<String> {
    match poll(waiting) {
        Poll::Ready(told) => told.err().map(|error| error.to_string()),
        Poll::Pending => panic!("it still waits"),
    }
}

/// A wait that is over, as it has to be.
#[track_caller]
fn got<T, E: ToString>(waiting: &mut (impl Future<Output = Result<T, E>> + Unpin)) -> T {
    match poll(waiting) {
        Poll::Ready(Ok(value)) => value,
        Poll::Ready(Err(error)) => panic!("{}", error.to_string()),
        Poll::Pending => panic!("it still waits"),
    }
}

/// A task that waits; returns when it is parked.
fn spawn<K, O, T, E>(
    runtime: &Runtime,
    wait: &Wait<K, O>,
    waiting: impl Future<Output = Result<T, E>> + Send + 'static,
) -> tokio::task::JoinHandle<Option<String>>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
    E: ToString,
{
    let task = runtime.spawn(async { waiting.await.err().map(|error| error.to_string()) });
    while wait.waits.is_empty() {
        runtime.block_on(tokio::task::yield_now());
    }
    task
}

/// A purgatory under a hand-turned clock whose callbacks all wait for [`Later::run`].
fn by_hand_and_late<K, O>() -> (ManualTimer, Purgatory<K, O>, Later)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    let later = Later::default();
    let (timer, purgatory) =
        by_hand_with(|builder| builder.executor(later.clone()).callbacks_on_executor());
    (timer, purgatory, later)
}

/// Does something on a thread that is in no runtime, and waits for it.
fn off_runtime<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// Nothing waits, no key is watched, and no callback panicked.
#[track_caller]
fn nothing_is_left<K, O>(purgatory: &Purgatory<K, O>)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    assert_empty(purgatory);
    assert_eq!(purgatory.stats().panics, 0);
}
