//! Users' code that misbehaves: callbacks that park again without end, executors that drop their
//! jobs, hooks and wakers that panic, keys that panic where nobody is there to be told.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use crate::support::{MINUTE, MS, Park, by_hand};
use purgatory::{
    BoxedOperation, CancelReason, DelayedOperation, Outcome, Purgatory, WaitError, WatchKey,
    Watches, when,
};
use timer_core::{Executor, Job, ManualTimer, SystemTimer, Timer};

type Waits<K> = Purgatory<K, BoxedOperation>;

fn waits<K: WatchKey + Send>() -> Waits<K> {
    Purgatory::builder("hostile").timer(&ManualTimer::new()).build().unwrap()
}

/// Parks again when it is cancelled, until so many have: for ever, were it not for the test.
#[derive(Clone)]
struct Again {
    purgatory: Purgatory<u32, Again>,
    parked: Arc<AtomicUsize>,
}

const ENOUGH: usize = 10_000;

impl Again {
    fn park(self) {
        if self.parked.fetch_add(1, SeqCst) < ENOUGH {
            let purgatory = self.purgatory.clone();
            let watches = Watches::up_to(&[(1, 5)]);
            drop(purgatory.try_complete_else_watch(self, watches, MINUTE).unwrap());
        }
    }
}

impl DelayedOperation for Again {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        if outcome != Outcome::Cancelled(CancelReason::Shutdown) {
            self.park();
        }
    }
}

#[test]
fn what_a_cancelled_operation_parks_is_not_cancelled() {
    let (_timer, purgatory) = by_hand();
    let again = Again { purgatory: purgatory.clone(), parked: Arc::default() };
    (0..300).for_each(|_| again.clone().park());
    assert_eq!((purgatory.cancel_for_key(&1, "over"), purgatory.len()), (300, 300));
    purgatory.shutdown(Duration::from_secs(60));
}

/// On the one worker that would have to tell it that its time is up.
#[test]
fn a_blocking_wait_on_a_timers_worker_is_refused() {
    let timer = SystemTimer::new().unwrap();
    let purgatory: Waits<u32> = Purgatory::builder("worker").timer(&timer).build().unwrap();
    let (send, result) = mpsc::channel();
    let inside = purgatory.clone();
    let task = move || send.send(inside.wait(&[1], MS, || None::<()>).wait_blocking()).unwrap();
    timer.schedule(MS, task).unwrap();
    assert_eq!(result.recv(), Ok(Err(WaitError::InsideCallback)));
    assert!(purgatory.is_empty());
}

#[test]
fn a_wait_that_is_over_may_be_taken_inside_a_callback() {
    let purgatory: Waits<u32> = waits();
    let over = purgatory.wait(&[1], MINUTE, || Some(7));
    let waits = purgatory.wait(&[1], MINUTE, || None::<()>);
    let (send, result) = mpsc::channel();
    let then = move |_| send.send((over.wait_blocking(), waits.wait_blocking())).unwrap();
    purgatory.try_complete_else_watch(when(|| true, then), &[1], MINUTE).unwrap();
    assert_eq!(result.recv(), Ok((Ok(7), Err(WaitError::InsideCallback))));
    assert!(purgatory.is_empty());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

/// Two panics at once would end the process.
#[test]
fn a_waker_may_panic_with_its_condition() {
    let purgatory: Waits<u32> = waits();
    let mut first = true;
    let condition = move || {
        assert!(std::mem::take(&mut first), "in a condition");
        None::<()>
    };
    let mut wait = purgatory.wait(Watches::up_to(&[(1, 5)]), MINUTE, condition);
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(purgatory.complete_up_to(&1, 5), 1);
    assert_eq!(wait.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Panicked)));
}

/// The reaper and the worker, by their names.
#[cfg(target_os = "linux")]
#[test]
fn a_held_future_keeps_no_threads() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("lingers")).count()
    };
    let purgatory: Waits<u32> = Purgatory::new("lingers").unwrap();
    let wait = purgatory.wait(&[1], MINUTE, || None::<()>);
    drop(purgatory);
    while threads() > 0 {
        std::thread::yield_now(); // for ever, if they stayed
    }
    assert_eq!(wait.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Dropped)));
}

/// Does not know how many threads it has.
#[derive(Debug)]
struct CannotCount;

impl Executor for CannotCount {
    fn execute(&self, job: Job) {
        job.run();
    }

    fn parallelism(&self) -> usize {
        panic!("how many?")
    }
}

#[test]
fn an_executor_that_cannot_count_loses_nothing() {
    let (send, told) = std::sync::mpsc::channel();
    for own in [false, true] {
        let mut timer = SystemTimer::builder();
        if !own {
            timer = timer.executor(CannotCount);
        }
        let timer = timer.build().unwrap();
        let builder = Purgatory::builder("count").timer(&timer);
        let builder = if own { builder.executor(CannotCount) } else { builder };
        let purgatory: Purgatory<u32, BoxedOperation> = builder.build().unwrap();
        for timeout in [Duration::from_millis(1), MINUTE] {
            let send = send.clone();
            let waits = when(|| false, move |outcome| send.send(outcome).unwrap());
            purgatory.park(waits, &[1], timeout);
        }
        assert_eq!(told.recv().unwrap(), Outcome::Expired);
        purgatory.shutdown(MINUTE);
        assert_eq!(told.recv().unwrap(), Outcome::Cancelled(CancelReason::Shutdown));
        timer.shutdown(Duration::MAX);
    }
}
