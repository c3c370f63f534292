//! The guide's recipes, from the files that the guide shows. Doc tests run the `main` of each file;
//! these tests add orders of events that a network may produce.

#[path = "../../../src/guide/recipes"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "for the guide's readers, who run each file's `main`"
)]
mod guide {
    pub mod acks_all;
    pub mod alter_partition;
    pub mod connection;
    pub mod connection_pool;
    pub mod cores;
    pub mod deadline;
    pub mod debounce;
    pub mod drain;
    pub mod held_pulls;
    pub mod joint_consensus;
    pub mod load_once;
    pub mod lock_waits;
    pub mod long_poll;
    pub mod one_thread;
    pub mod queue;
    pub mod read_index;
    pub mod retry;
    pub mod sessions;
    pub mod signal_after_unlock;
    pub mod single_flight;
    pub mod stored_poll;
}

mod controllers;
mod one_at_a_time;
mod polls;
mod pools;
mod produces;
mod quorums;
mod reached;
mod reads;
mod requests;
mod timers;

use std::fmt::Debug;

use crate::support::*;

/// Checks that no operation and no watched key is left, and that no callback panicked.
#[track_caller]
fn nothing_is_left<K, O>(waits: &Purgatory<K, O>)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    assert_empty(waits);
    assert_eq!(waits.stats().panics, 0);
}

/// Checks that no wait of a form is left, and that nothing panicked.
#[track_caller]
fn nothing_waits<K>(waits: &Waits<K>) {
    assert_nothing_waits(waits);
    assert_eq!(waits.stats().panics, 0);
}

/// Returns the value of a wait that has ended.
#[track_caller]
fn got<T, E: ToString>(waiting: &mut (impl Future<Output = Result<T, E>> + Unpin)) -> T {
    over(waiting).unwrap_or_else(|error| panic!("{}", error.to_string()))
}

/// Checks that exactly these answers, reports or saves have come since the last call.
#[track_caller]
fn reported<T: Debug + PartialEq<U>, U: Debug>(seen: &mpsc::Receiver<T>, expected: &[U]) {
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected);
}

/// Creates a purgatory on a manual timer whose callbacks wait for [`Later::run`].
fn manual_and_late<K, O>() -> (ManualTimer, Purgatory<K, O>, Later)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    let later = Later::default();
    let (timer, purgatory) =
        by_hand_with(|builder| builder.executor(later.clone()).callbacks_on_executor());
    (timer, purgatory, later)
}

/// Creates permits without keys, with a limit of 0.
fn no_permits(timer: &ManualTimer) -> Permits {
    Permits::on(timer, "permits", 0).unwrap()
}
