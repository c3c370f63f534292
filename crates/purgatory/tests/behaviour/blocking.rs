//! Blocking waits on threads that the end of the wait needs (feature `tokio`): refused at once.
#![cfg(all(feature = "tokio", not(loom)))]

use std::{
    sync::mpsc,
    thread::{self, ThreadId},
    time::Duration,
};

use crate::support::MS;
use purgatory::{
    Purgatory, WaitError,
    timer_core::{Executor, Job, ManualTimer, SystemTimer},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task,
};

/// Longer than any run takes: a test that would hang fails instead.
const HANGS: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own.
fn watched<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let test = thread::spawn(move || done.send(test()));
    let result = result.recv_timeout(HANGS);
    if let Err(mpsc::RecvTimeoutError::Timeout) = result {
        panic!("it hangs");
    }
    test.join().unwrap().unwrap();
    result.unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// A purgatory whose timer is a task of the runtime that this is called in.
fn on_this_runtime() -> Purgatory<u8> {
    let timer = SystemTimer::builder().tokio(Handle::current()).build().unwrap();
    Purgatory::builder("blocking").timer(&timer).build().unwrap()
}

/// A wait that only its time ends; with how many operations it left.
fn block(purgatory: &Purgatory<u8>) -> (WaitError, usize) {
    let never = purgatory.wait(&[1], MS, || None::<()>).wait_blocking();
    (never.unwrap_err(), purgatory.len())
}

#[test]
fn timer_on_the_blocked_thread_refuses_the_wait() {
    let ended = watched(|| one_thread().block_on(async { block(&on_this_runtime()) }));
    assert_eq!(ended, (WaitError::InsideCallback, 0));
    let in_task = async { task::spawn(async { block(&on_this_runtime()) }).await.unwrap() };
    let ended = watched(move || one_thread().block_on(in_task));
    assert_eq!(ended, (WaitError::InsideCallback, 0));
}

#[test]
fn worker_of_the_runtime_refuses_the_wait() {
    let in_task = async { task::spawn(async { block(&on_this_runtime()) }).await.unwrap() };
    let ended = watched(move || two_threads().block_on(in_task));
    assert_eq!(ended, (WaitError::InsideCallback, 0));
}

#[test]
fn spawn_blocking_and_block_in_place_may_wait() {
    let blocking = || async {
        let purgatory = on_this_runtime();
        task::spawn_blocking(move || block(&purgatory)).await.unwrap()
    };
    let ended = watched(move || one_thread().block_on(blocking()));
    assert_eq!(ended, (WaitError::Expired, 0));
    let in_place = || async {
        let purgatory = on_this_runtime();
        task::spawn(async move { task::block_in_place(|| block(&purgatory)) }).await.unwrap()
    };
    let ended = watched(move || two_threads().block_on(in_place()));
    assert_eq!(ended, (WaitError::Expired, 0));
}

#[test]
fn executor_on_the_blocked_thread_refuses_the_wait() {
    let ended = watched(|| {
        one_thread().block_on(async {
            let executor = tokio::runtime::Handle::current();
            block(&Purgatory::builder("blocking").executor(executor).build().unwrap())
        })
    });
    assert_eq!(ended, (WaitError::InsideCallback, 0));
    let ended = watched(|| {
        one_thread().block_on(async {
            let executor = tokio::runtime::Handle::current();
            let timer = SystemTimer::builder().executor(executor).build().unwrap();
            block(&Purgatory::builder("blocking").timer(&timer).build().unwrap())
        })
    });
    assert_eq!(ended, (WaitError::InsideCallback, 0));
}

#[test]
fn timer_on_threads_of_its_own_allows_the_wait() {
    let ended = watched(|| one_thread().block_on(async { block(&Purgatory::new("own").unwrap()) }));
    assert_eq!(ended, (WaitError::Expired, 0));
}

/// What an event loop of the user's own is as an executor.
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
    let (timer, here) = (ManualTimer::new(), thread::current().id());
    let of_loop = |on| {
        let builder = Purgatory::<u8>::builder("loop").timer(&timer).executor(Loop(on));
        builder.build().unwrap()
    };
    assert_eq!(block(&of_loop(Some(here))), (WaitError::InsideCallback, 0));
    let (elsewhere, waits) = (of_loop(thread::spawn(|| ()).thread().id().into()), of_loop(None));
    let others = [elsewhere, waits].map(|purgatory| {
        let waiting = purgatory.clone();
        let wait = thread::spawn(move || block(&waiting));
        while purgatory.is_empty() {
            thread::yield_now();
        }
        timer.advance(MS);
        wait.join().unwrap()
    });
    assert_eq!(others, [(WaitError::Expired, 0), (WaitError::Expired, 0)]); // a panic says nothing
}

#[test]
fn shutdown_on_the_blocked_thread_waits_for_nothing() {
    let left = watched(|| {
        one_thread().block_on(async {
            let purgatory = on_this_runtime();
            let wait = purgatory.wait(&[1], HANGS, || None::<()>);
            let left = purgatory.shutdown(Duration::MAX); // its callback is a task of this thread
            assert!(wait.await.is_err());
            left.callbacks
        })
    });
    assert_eq!(left, 1);
}
