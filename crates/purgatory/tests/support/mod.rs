//! Operations for tests: they wait for a shared condition and write down how they ended. And an
//! executor that is late.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use purgatory::{DelayedOperation, Outcome, Purgatory};
use timer_core::{Executor, Job};

/// What a test sees of an operation.
#[derive(Clone, Default)]
pub struct Probe {
    ready: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    endings: Arc<Mutex<Vec<Outcome>>>,
}

impl Probe {
    pub fn new() -> Self {
        Probe::default()
    }

    /// Makes the condition true.
    pub fn make_ready(&self) {
        self.ready.store(true, SeqCst);
    }

    pub fn checks(&self) -> usize {
        self.checks.load(SeqCst)
    }

    /// Each ending the operation was told: one, if all is well.
    pub fn endings(&self) -> Vec<Outcome> {
        self.endings.lock().unwrap().clone()
    }

    pub fn ended(&self) -> bool {
        !self.endings().is_empty()
    }

    /// An operation that waits until `make_ready`.
    pub fn operation(&self) -> Op {
        Op { probe: self.clone(), on_check: None, then: None }
    }
}

/// An operation with what a test wants to happen in its check and callback.
pub struct Op {
    probe: Probe,
    on_check: Option<Box<dyn FnMut() + Send>>,
    then: Option<Box<dyn FnOnce(Outcome) + Send>>,
}

impl Op {
    /// Also does this at each check.
    pub fn on_check(mut self, act: impl FnMut() + Send + 'static) -> Self {
        self.on_check = Some(Box::new(act));
        self
    }

    /// Also does this when it is over.
    pub fn then(mut self, act: impl FnOnce(Outcome) + Send + 'static) -> Self {
        self.then = Some(Box::new(act));
        self
    }
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.probe.checks.fetch_add(1, SeqCst);
        if let Some(act) = &mut self.on_check {
            act();
        }
        self.probe.ready.load(SeqCst)
    }

    fn on_complete(self, outcome: Outcome) {
        self.probe.endings.lock().unwrap().push(outcome.clone());
        if let Some(then) = self.then {
            then(outcome);
        }
    }
}

/// A purgatory of these.
pub type Waiting = Purgatory<&'static str, Op>;

/// Keeps its jobs until a test wants them: a worker that is late, or blocked.
#[derive(Clone, Debug, Default)]
pub struct Later(Arc<Mutex<Vec<Job>>>);

impl Executor for Later {
    fn execute(&self, job: Job) {
        self.0.lock().unwrap().push(job);
    }
}

impl Later {
    /// Takes out the jobs that it has.
    pub fn take(&self) -> Vec<Job> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Runs the jobs that it has, in order; says how many.
    pub fn run(&self) -> usize {
        self.take().into_iter().map(Job::run).count()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
