//! Callbacks inside a tokio runtime (feature `tokio`).
#![cfg(all(feature = "tokio", not(loom)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{thread, time::Duration};

use purgatory::{Outcome, Purgatory, Timeout, TokioExecutor};
use support::{Probe, Waiting};
use timer_core::ManualTimer;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

const MS: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Parks an operation whose callback spawns a task, which tells how it ended.
fn park_spawning(
    purgatory: &Waiting,
    told: &UnboundedSender<Outcome>,
    timeout: impl Into<Timeout>,
) -> Probe {
    let (probe, told) = (Probe::new(), told.clone());
    let spawn = move |outcome| drop(tokio::spawn(async move { told.send(outcome) }));
    let operation = probe.operation().then(spawn);
    purgatory.try_complete_else_watch(operation, &["a"], timeout).unwrap();
    probe
}

/// From threads that are in no runtime.
#[test]
fn what_completes_and_what_expires_may_spawn() {
    let (runtime, timer) = (runtime(), ManualTimer::new());
    let purgatory: Waiting = Purgatory::builder("spawning")
        .timer(&timer)
        .executor(TokioExecutor::new(runtime.handle().clone()))
        .callbacks_on_executor()
        .build()
        .unwrap();
    let (told, mut outcomes) = unbounded_channel();
    park_spawning(&purgatory, &told, MS);
    let completes = park_spawning(&purgatory, &told, Timeout::Never);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(Handle::try_current().is_err());
            timer.advance(MS);
            completes.make_ready();
            assert_eq!(purgatory.check_and_complete(&"a"), 1);
        });
    });
    assert_eq!(purgatory.stats().callbacks_waiting, 2);
    let both = runtime.block_on(async { [outcomes.recv().await, outcomes.recv().await] });
    assert_eq!(both, [Some(Outcome::Expired), Some(Outcome::Completed)]);
    assert_eq!(purgatory.stats().panics, 0);
}

/// Completed by a task, in the task; expired on the executor.
#[test]
fn a_task_that_completes_an_operation_runs_its_callback_inside_the_runtime() {
    let timer = ManualTimer::new();
    runtime().block_on(async {
        let executor = TokioExecutor::current().unwrap();
        let builder = Purgatory::builder("spawning").timer(&timer).executor(executor);
        let purgatory: Waiting = builder.build().unwrap();
        let (told, mut outcomes) = unbounded_channel();
        let completes = park_spawning(&purgatory, &told, Timeout::Never);
        park_spawning(&purgatory, &told, MS);
        completes.make_ready();
        assert_eq!(purgatory.check_and_complete(&"a"), 1);
        assert_eq!(completes.endings(), [Outcome::Completed]); // here and now
        assert_eq!(outcomes.recv().await, Some(Outcome::Completed));
        timer.advance(MS);
        assert_eq!(outcomes.recv().await, Some(Outcome::Expired));
        assert_eq!(purgatory.stats().panics, 0);
    });
}

/// As the documentation of `on_complete` says: on the timer's own threads there is no runtime.
#[test]
fn without_it_a_spawn_in_the_callback_of_what_expired_panics() {
    let timer = ManualTimer::new();
    let purgatory: Waiting = Purgatory::builder("spawning").timer(&timer).build().unwrap();
    let (told, _outcomes) = unbounded_channel();
    let probe = park_spawning(&purgatory, &told, MS);
    timer.advance(MS);
    assert_eq!((probe.endings(), purgatory.stats().panics), (vec![Outcome::Expired], 1));
}

#[test]
fn a_runtime_that_is_gone_loses_no_callback() {
    let (gone, timer) = (runtime(), ManualTimer::new());
    let purgatory: Waiting = Purgatory::builder("spawning")
        .timer(&timer)
        .executor(TokioExecutor::new(gone.handle().clone()))
        .build()
        .unwrap();
    let (told, mut outcomes) = unbounded_channel();
    let queued = park_spawning(&purgatory, &told, MS);
    timer.advance(MS);
    assert!(!queued.ended());
    drop(gone);
    assert_eq!(queued.endings(), [Outcome::Expired]);
    let refused = park_spawning(&purgatory, &told, MS);
    timer.advance(MS);
    assert_eq!(refused.endings(), [Outcome::Expired]);
    assert_eq!(purgatory.stats().panics, 0); // nothing was spawned, and nothing panicked
    assert!(outcomes.try_recv().is_err());
}

#[test]
fn outside_of_a_runtime_there_is_no_current_one() {
    assert!(TokioExecutor::current().is_err());
}
