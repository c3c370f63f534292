//! Callbacks inside a tokio runtime (feature `tokio`).
#![cfg(all(feature = "tokio", not(loom)))]

use std::thread;

use crate::support::{MS, Park, Probe, Waiting};
use purgatory::{Outcome, Purgatory, Replies, Timeout, WaitError};
use timer_core::{ManualTimer, SystemTimer, Timer};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

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
    purgatory.park(operation, &["a"], timeout);
    probe
}

/// From threads that are in no runtime.
#[test]
fn what_completes_and_what_expires_may_spawn() {
    let (runtime, timer) = (runtime(), ManualTimer::new());
    let purgatory: Waiting = Purgatory::builder("spawning")
        .timer(&timer)
        .executor(runtime.handle().clone())
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
fn a_completing_task_runs_the_callback_in_place() {
    let timer = ManualTimer::new();
    runtime().block_on(async {
        let executor = tokio::runtime::Handle::current();
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

#[test]
fn a_runtime_that_is_gone_loses_no_callback() {
    let (gone, timer) = (runtime(), ManualTimer::new());
    let purgatory: Waiting = Purgatory::builder("spawning")
        .timer(&timer)
        .executor(gone.handle().clone())
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

/// A timer that is a task of the runtime: an hour passes at once, in order, and what expires may
/// spawn.
#[tokio::test(start_paused = true)]
async fn under_a_paused_clock_operations_expire_in_time() {
    let timer = SystemTimer::builder().tokio(Handle::current()).build().unwrap();
    let purgatory: Waiting = Purgatory::builder("paused").timer(&timer).build().unwrap();
    let (told, mut outcomes) = unbounded_channel();
    let began = tokio::time::Instant::now();
    let last = park_spawning(&purgatory, &told, MS * 3_600_000);
    let first = park_spawning(&purgatory, &told, MS * 500);
    let completes = park_spawning(&purgatory, &told, MS * 1000);
    assert_eq!(outcomes.recv().await, Some(Outcome::Expired));
    assert!(first.ended() && began.elapsed() >= MS * 500 && began.elapsed() <= MS * 502);
    completes.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!(outcomes.recv().await, Some(Outcome::Completed));
    assert_eq!(outcomes.recv().await, Some(Outcome::Expired));
    assert!(last.ended() && began.elapsed() >= MS * 3_600_000);
    assert!(began.elapsed() <= MS * 3_600_002);
    assert_eq!((purgatory.len(), purgatory.stats().panics), (0, 0));
}

/// A blocked task would keep the reaper, which is another task of the thread, from ever ending the
/// wait.
#[tokio::test(start_paused = true)]
async fn a_blocking_wait_in_a_task_of_the_timer_is_refused() {
    let timer = SystemTimer::builder().tokio(Handle::current()).build().unwrap();
    let replies = Replies::<u8, ()>::from(Purgatory::builder("r").timer(&timer).build().unwrap());
    let (told, ended) = tokio::sync::oneshot::channel();
    let task = move || {
        let reply = replies.expect(1, MS).unwrap();
        told.send(reply.wait_blocking()).unwrap();
    };
    timer.schedule(MS, task).unwrap();
    assert_eq!(ended.await.unwrap(), Err(WaitError::InsideCallback));
}
