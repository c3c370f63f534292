//! The guide's recipes in every order that a network may give: answers and events that come early,
//! twice or never, clients that go, connections made anew, a shutdown. What is compiled here are
//! the files that the guide shows.
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

use std::thread;

use purgatory::{CancelReason, DelayedOperation, Purgatory, RefusedReason, WaitError, WatchKey};
use timer_core::ManualTimer;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::support::{Later, MS, SECOND, assert_empty, by_hand, by_hand_with, poll};

const SHUTDOWN: WaitError = WaitError::Cancelled(CancelReason::Shutdown);
const CLOSED: WaitError = WaitError::Refused(RefusedReason::Closed);

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

/// Runs a test on a runtime of one thread and on one of two.
fn on_runtimes(test: impl Fn(&On)) {
    test(&On(Builder::new_current_thread().enable_time().build().unwrap()));
    test(&On(Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()));
}

struct On(Runtime);

impl On {
    fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.spawn(task)
    }

    /// What waits for ever by mistake fails after a minute.
    #[track_caller]
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let limited = async { tokio::time::timeout(60 * SECOND, future).await };
        self.0.block_on(limited).expect("an end within a minute")
    }
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
