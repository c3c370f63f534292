//! Blocking waits on threads that are needed to end the wait (feature `tokio`): refused at once.
#![cfg(all(feature = "tokio", not(loom)))]

use std::thread::{self, ThreadId};

use purgatory::WaitError::{Expired, MustNotBlock};
use tokio::{
    runtime::{self, Handle},
    task::{block_in_place, spawn, spawn_blocking},
};

use crate::support::*;

/// Runs a test in a runtime on a thread of its own; a test that hangs fails.
fn watched<T: Send + 'static>(
    mut runtime: runtime::Builder,
    test: impl Future<Output = T> + Send + 'static,
) -> T {
    let (done, result) = mpsc::channel();
    let runtime = runtime.worker_threads(2).enable_time().build().unwrap();
    thread::spawn(move || done.send(runtime.block_on(test)));
    result
        .recv_timeout(MINUTE)
        .expect("it hangs, or has panicked")
}

fn one_thread() -> runtime::Builder {
    runtime::Builder::new_current_thread()
}

fn two_threads() -> runtime::Builder {
    runtime::Builder::new_multi_thread()
}

fn over(build: impl FnOnce(Builder<Purgatory<u32>>) -> Builder<Purgatory<u32>>) -> Purgatory<u32> {
    build(Purgatory::builder("blocking")).build().unwrap()
}

/// Creates a purgatory whose timer is a task of the present runtime.
fn on_this_runtime() -> Purgatory<u32> {
    let timer = system_timer(|builder| builder.tokio(Handle::current()));
    over(|builder| builder.timer(&timer))
}

/// Blocks on a wait that only its timeout ends, and checks that no operation is left.
fn block_for(timeout: Duration, purgatory: Purgatory<u32>) -> WaitError {
    let never = purgatory.wait(&[1], timeout, || None::<()>).wait_blocking();
    assert!(purgatory.is_empty());
    never.unwrap_err()
}

/// Blocks on a wait that may block, until its timeout.
fn block(purgatory: Purgatory<u32>) -> WaitError {
    block_for(MS, purgatory)
}

/// Blocks on a wait that is refused, long before its timeout.
fn refused(purgatory: Purgatory<u32>) -> WaitError {
    block_for(MINUTE, purgatory)
}

#[test]
fn timer_on_the_blocked_thread_refuses_the_wait() {
    assert_eq!(
        watched(one_thread(), async { refused(on_this_runtime()) }),
        MustNotBlock
    );
    for runtime in [one_thread(), two_threads()] {
        let task = async { spawn(async { refused(on_this_runtime()) }).await.unwrap() };
        assert_eq!(watched(runtime, task), MustNotBlock);
    }
}

#[test]
fn spawn_blocking_and_block_in_place_may_wait() {
    let blocking = async {
        let purgatory = on_this_runtime();
        spawn_blocking(move || block(purgatory)).await.unwrap()
    };
    assert_eq!(watched(one_thread(), blocking), Expired);
    let in_place = async {
        let purgatory = on_this_runtime();
        spawn(async move { block_in_place(|| block(purgatory)) })
            .await
            .unwrap()
    };
    assert_eq!(watched(two_threads(), in_place), Expired);
    let own = async { block(Purgatory::new("own").unwrap()) }; // on threads of its own
    assert_eq!(watched(one_thread(), own), Expired);
}

#[test]
fn executor_on_the_blocked_thread_refuses_the_wait() {
    let purgatorys = async { refused(over(|builder| builder.executor(Handle::current()))) };
    assert_eq!(watched(one_thread(), purgatorys), MustNotBlock);
    let timers = async {
        let executor = Handle::current();
        let timer = SystemTimer::builder().executor(executor).build().unwrap();
        refused(over(|builder| builder.timer(&timer)))
    };
    assert_eq!(watched(one_thread(), timers), MustNotBlock);
}

/// The task may have entered this runtime inside a task of the executor's runtime.
#[test]
fn a_task_of_another_runtime_refuses_the_wait() {
    let other = one_thread().build().unwrap();
    let purgatory = over(|builder| builder.executor(other.handle().clone()));
    assert_eq!(
        watched(one_thread(), async { refused(purgatory) }),
        MustNotBlock
    );
}

/// An event loop of the user, as an executor.
#[derive(Debug)]
struct Loop(Option<ThreadId>);

impl Executor for Loop {
    fn execute(&self, job: Job) {
        job.run();
    }

    fn needs_this_thread(&self) -> bool {
        self.0.expect("a loop without a thread") == thread::current().id()
    }
}

#[test]
fn users_executor_tells_where_waits_are_refused() {
    let here = thread::current().id();
    let of_loop = |on| by_hand_with(|builder| builder.executor(Loop(on)));
    assert_eq!(block(of_loop(Some(here)).1), MustNotBlock);
    // The executor's thread is another one; or it panics, and so does not say.
    for on in [Some(thread::spawn(|| ()).thread().id()), None] {
        let (timer, purgatory) = of_loop(on);
        let waiting = purgatory.clone();
        let wait = thread::spawn(move || block(waiting));
        while purgatory.is_empty() {
            thread::yield_now();
        }
        timer.advance(MS);
        assert_eq!(wait.join().unwrap(), Expired);
    }
}

#[test]
fn shutdown_on_the_blocked_thread_waits_for_nothing() {
    let left = async {
        let purgatory = on_this_runtime();
        let wait = purgatory.wait(&[1], MINUTE, || None::<()>);
        let left = purgatory.shutdown(Duration::MAX); // its callback is a task of this thread
        assert!(wait.await.is_err());
        left
    };
    assert_eq!(watched(one_thread(), left), 1);
}

/// No other thread could advance the timer meanwhile.
#[test]
fn a_task_of_a_manual_timer_refuses_the_wait() {
    let task = async {
        let timer = ManualTimer::new();
        let purgatory = over(|builder| builder.timer(&timer));
        let (told, ended) = mpsc::channel();
        let beat = told.clone();
        let beats = purgatory.clone();
        let beat = move || beat.send(refused(beats.clone())).unwrap();
        let beats = timer.schedule_at_fixed_rate(MS, MINUTE, beat).unwrap();
        let task = move || told.send(refused(purgatory)).unwrap();
        timer.schedule(MS, task).unwrap();
        timer.advance(MS);
        assert!(beats.cancel());
        [ended.recv().unwrap(), ended.recv().unwrap()]
    };
    assert_eq!(watched(one_thread(), task), [const { MustNotBlock }; 2]);
}
