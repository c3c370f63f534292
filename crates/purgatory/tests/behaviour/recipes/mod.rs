//! The guide's recipes in the orders that a network may give: answers and events that come early,
//! twice or never, clients that go, connections made anew, a shutdown. [`every_order`] takes those
//! with a future through the orders that all of them have in common; the files beside it test what
//! is particular to one recipe. The recipes compiled here are the files that the guide shows.

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

#[cfg(feature = "keyed")]
mod commits;
mod polls;
mod produces;
mod requests;
mod timers;
mod turns;

use std::{
    fmt::Debug,
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use purgatory::{CancelReason, DelayedOperation, Outcome, Purgatory, WatchKey};
use timer_core::ManualTimer;
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, yield_now},
};

use crate::support::{
    Later, MINUTE, MS, SECOND, assert_empty, by_hand, by_hand_with, over, poll, requested,
};

const EXPIRED: &str = "the time ran out";
const SHUTDOWN: &str = "cancelled: shut down";
const CLOSED: &str = "not parked: the purgatory was shut down";

/// The purgatory of a recipe.
trait Waits: Sync {
    fn is_empty(&self) -> bool;
    fn shut_down(&self);
    fn nothing_is_left(&self);
}

impl<K: WatchKey + Send, O: DelayedOperation + Send> Waits for Purgatory<K, O> {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shut_down(&self) {
        self.shutdown(SECOND);
    }

    /// No key is watched either, and no callback panicked.
    fn nothing_is_left(&self) {
        assert_empty(self);
        assert_eq!(self.stats().panics, 0);
    }
}

/// A wait that is under way, and how it failed, if it did.
type Waiting = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A recipe's wait, in a purgatory of its own.
struct Wait {
    timer: ManualTimer,
    waits: Box<dyn Waits>,
    limit: Duration,
    begin: Box<dyn Fn() -> Waiting>,
    complete: Arc<dyn Fn() + Send + Sync>,
}

impl Wait {
    /// It waits up to `limit`; how it begins, and what completes it.
    fn new<F, T, E>(
        timer: ManualTimer,
        waits: &(impl Waits + Clone + 'static),
        limit: Duration,
        begin: impl Fn() -> F + 'static,
        complete: impl Fn() + Send + Sync + 'static,
    ) -> Wait
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        E: ToString,
    {
        let begin = move || -> Waiting {
            let wait = begin();
            Box::pin(async { wait.await.err().map(|error| error.to_string()) })
        };
        let (waits, complete) = (Box::new(waits.clone()), Arc::new(complete));
        Wait { timer, waits, limit, begin: Box::new(begin), complete }
    }

    /// A task that waits; returns when it is parked.
    fn spawn(&self, runtime: &Runtime) -> JoinHandle<Option<String>> {
        let task = runtime.spawn((self.begin)());
        while self.waits.is_empty() {
            runtime.block_on(yield_now());
        }
        task
    }

    fn assert_ended(&self, ended: Option<String>, expected: Option<&str>) {
        assert_eq!(ended.as_deref(), expected);
        self.waits.nothing_is_left();
    }
}

/// Takes a wait through every order of its beginning, what completes it, and what else may end it.
/// `set_up` makes a new one for each.
fn every_order(set_up: impl Fn() -> Wait) {
    let wait = set_up(); // and twice
    let mut waiting = (wait.begin)();
    assert!(poll(&mut waiting).is_pending());
    (wait.complete)();
    (wait.complete)();
    wait.assert_ended(over(&mut waiting), None);
    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for runtime in runtimes.map(|mut builder| builder.worker_threads(2).build().unwrap()) {
        for on_runtime in [false, true] {
            let wait = set_up();
            let (task, complete) = (wait.spawn(&runtime), wait.complete.clone());
            if on_runtime {
                runtime.block_on(runtime.spawn(async move { complete() })).unwrap();
            } else {
                off_runtime(&*complete);
            }
            wait.assert_ended(runtime.block_on(task).unwrap(), None);
        }
        // It never comes, or too late.
        let wait = set_up();
        let task = wait.spawn(&runtime);
        wait.timer.advance(wait.limit - MS);
        assert!(!wait.waits.is_empty());
        off_runtime(|| wait.timer.advance(MS));
        let expired = runtime.block_on(task).unwrap();
        (wait.complete)();
        wait.assert_ended(expired, Some(EXPIRED));
        // The client goes, and may come back.
        let wait = set_up();
        let task = wait.spawn(&runtime);
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        wait.waits.nothing_is_left();
        let again = wait.spawn(&runtime);
        (wait.complete)();
        wait.assert_ended(runtime.block_on(again).unwrap(), None);
    }
    let wait = set_up();
    let mut waiting = (wait.begin)();
    assert!(poll(&mut waiting).is_pending());
    wait.waits.shut_down();
    wait.assert_ended(over(&mut waiting), Some(SHUTDOWN));
    wait.assert_ended(over(&mut (wait.begin)()), Some(CLOSED));
}

/// The same for a wait that still sees a change from before it began.
fn every_order_and_early(set_up: impl Fn() -> Wait) {
    let wait = set_up();
    (wait.complete)();
    wait.assert_ended(over(&mut (wait.begin)()), None);
    every_order(set_up);
}

/// What a wait that is over has yielded, as it has to.
#[track_caller]
fn got<T, E: ToString>(waiting: &mut (impl Future<Output = Result<T, E>> + Unpin)) -> T {
    over(waiting).unwrap_or_else(|error| panic!("{}", error.to_string()))
}

/// These answers, reports or saves have come since the last look.
#[track_caller]
fn told<T: Debug + PartialEq<U>, U: Debug>(seen: &mpsc::Receiver<T>, expected: &[U]) {
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected);
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
