//! Work that callbacks cause, where the thread or the executor makes it hard: each of these failed
//! once.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::support::{MINUTE, Op, Park, Probe};
use purgatory::{DelayedOperation, Outcome, Purgatory};
use timer_core::{Executor, Job, SystemTimer};

/// Waits until it is given an act, which it does at its end.
struct Acting {
    act: Option<Box<dyn FnOnce() + Send>>,
    ended: Arc<AtomicUsize>,
}

impl DelayedOperation for Acting {
    fn try_complete(&mut self) -> bool {
        self.act.is_some()
    }

    fn on_complete(self, _: Outcome) {
        if let Some(act) = self.act {
            act();
        }
        self.ended.fetch_add(1, SeqCst);
    }
}

/// Parks `count` operations, and one whose callback cancels them all.
fn cancel_in_a_callback(
    purgatory: &Purgatory<u32, Acting>,
    ended: &Arc<AtomicUsize>,
    count: usize,
) {
    for _ in 0..count {
        let waiting = Acting { act: None, ended: ended.clone() };
        purgatory.park(waiting, &[1], MINUTE);
    }
    let inside = purgatory.clone();
    let act = move || assert_eq!(inside.cancel_for_key(&1, "by a callback"), count);
    let acting = Acting { act: Some(Box::new(act)), ended: ended.clone() };
    purgatory.try_complete_else_watch(acting, &[2], MINUTE).unwrap();
}

thread_local! {
    static JOBS: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Keeps its jobs with the thread that hands them in.
#[derive(Debug)]
struct WithTheThread;

impl Executor for WithTheThread {
    fn execute(&self, job: Job) {
        JOBS.with(|jobs| jobs.borrow_mut().push(job));
    }
}

/// The jobs are dropped, and so run, when the thread's own trampoline is gone already.
#[test]
fn jobs_dropped_as_their_thread_ends_lose_nothing() {
    let timer = SystemTimer::builder().executor(WithTheThread).build().unwrap();
    let purgatory = Purgatory::builder("ends").timer(&timer).build().unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let (inside, counted) = (purgatory.clone(), ended.clone());
    let thread = std::thread::spawn(move || {
        JOBS.with(|jobs| assert!(jobs.borrow().is_empty())); // made first, gone last
        cancel_in_a_callback(&inside, &counted, 2000);
    });
    thread.join().unwrap();
    assert_eq!(ended.load(SeqCst), 2001);
}

/// A chain of operations that end at once, each parking the next from its callback.
fn link(purgatory: &Purgatory<u32, Op>, left: usize, ended: &Arc<AtomicUsize>) {
    let (inside, counted) = (purgatory.clone(), ended.clone());
    let probe = Probe::new();
    probe.make_ready();
    let operation = probe.operation().then(move |_| {
        counted.fetch_add(1, SeqCst);
        if left > 0 {
            link(&inside, left - 1, &counted);
        }
    });
    purgatory.try_complete_else_watch(operation, &[1], MINUTE).unwrap();
}

/// On a timer whose workers are gone: its executor runs jobs where they are handed in.
#[test]
fn a_chain_with_jobs_run_in_place_needs_no_stack() {
    let purgatory = Purgatory::new("chain").unwrap();
    purgatory.shutdown(MINUTE);
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    let small_stack = std::thread::Builder::new().stack_size(128 << 10);
    let thread = small_stack.spawn(move || link(&purgatory, 200_000, &counted)).unwrap();
    thread.join().unwrap();
    assert_eq!(ended.load(SeqCst), 200_001);
}
