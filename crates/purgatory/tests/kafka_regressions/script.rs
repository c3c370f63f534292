//! The parts of the scripts: an operation with a given check and callback, a place where a thread
//! is held, a lock that signals when a thread waits for it, and the purgatory that a script runs over.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use parking_lot::{Mutex, MutexGuard};
use purgatory::{Outcome, Purgatory, when};
use timer_core::ManualTimer;

use crate::support::{MINUTE, assert_empty, by_hand};

/// An operation of two closures. Both can be called by several threads at once, as Kafka's could.
pub struct Op {
    pub check: Box<dyn Fn() -> bool + Send + Sync>,
    pub ended: Box<dyn Fn(Outcome) + Send + Sync>,
}

/// A script's view of an operation: it makes its condition true, and reads how it ended.
#[derive(Clone, Default)]
pub struct Probe {
    ready: Arc<AtomicBool>,
    endings: Arc<Mutex<Vec<Outcome>>>,
}

impl Probe {
    pub fn make_ready(&self) {
        self.ready.store(true, SeqCst);
    }

    pub fn endings(&self) -> Vec<Outcome> {
        self.endings.lock().clone()
    }

    /// An operation that waits until `make_ready`.
    pub fn operation(&self) -> Op {
        self.acting(|ready| ready)
    }

    /// Creates an operation whose check is `check`, which gets the condition's value at its start.
    pub fn acting(&self, check: impl Fn(bool) -> bool + Send + Sync + 'static) -> Op {
        self.acting_and_then(check, || ())
    }

    /// And that does this when it is over.
    pub fn acting_and_then(
        &self,
        check: impl Fn(bool) -> bool + Send + Sync + 'static,
        then: impl Fn() + Send + Sync + 'static,
    ) -> Op {
        let Probe { ready, endings } = self.clone();
        let ended = move |outcome| {
            endings.lock().push(outcome);
            then();
        };
        Op {
            check: Box::new(move || check(ready.load(SeqCst))),
            ended: Box::new(ended),
        }
    }
}

/// A thread's signals to the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It waits for the outer lock.
    Waits,
    /// Its event has returned.
    Returned,
}

/// A lock of the broker's, outside the purgatory (a group's, a partition's), which says when a
/// thread has to wait for it.
pub struct OuterLock {
    lock: Mutex<()>,
    signs: Sender<Sign>,
}

impl OuterLock {
    pub fn new() -> (Arc<Self>, Receiver<Sign>) {
        let (signs, seen) = mpsc::channel();
        (
            Arc::new(OuterLock {
                lock: Mutex::new(()),
                signs,
            }),
            seen,
        )
    }

    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.try_lock().unwrap_or_else(|| {
            self.sign(Sign::Waits);
            self.lock.lock()
        })
    }

    pub fn sign(&self, sign: Sign) {
        let _ = self.signs.send(sign); // a script that is over does not listen
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock()
    }
}

/// A lock of the broker's that a check is run under.
pub type Under<'a> = Option<&'a Arc<OuterLock>>;

/// Actions while an operation is being parked.
pub type Meanwhile = Option<Box<dyn FnOnce() + Send>>;

/// This purgatory, on a manual timer.
#[derive(Clone)]
pub struct Ours {
    timer: ManualTimer,
    pub purgatory: Purgatory<u32>,
}

impl Ours {
    pub fn new() -> Self {
        let (timer, purgatory) = by_hand();
        Ours { timer, purgatory }
    }

    /// Parks an operation whose check has to be run under an outer lock, if there is one. Lets
    /// `meanwhile` happen when the operation is watched, before it is checked for the last time;
    /// there is a last check.
    pub fn park_with(&self, operation: Op, keys: &[u32], under: Under<'_>, meanwhile: Meanwhile) {
        let purgatory = self.clone();
        let key = keys[0];
        let check = operation.check;
        let under = under.cloned();
        let looks = AtomicUsize::new(0);
        let meanwhile = Mutex::new(meanwhile);
        let check = move || {
            let _held = under.as_ref().map(|lock| lock.lock());
            let satisfied = check();
            match (looks.fetch_add(1, SeqCst), &mut *meanwhile.lock()) {
                // An event elsewhere, so that the operation is watched, and checked again.
                (0, Some(_)) => thread::scope(|scope| {
                    assert_eq!(scope.spawn(|| purgatory.event(key)).join().unwrap(), 0);
                }),
                (1, meanwhile) => {
                    if let Some(act) = meanwhile.take() {
                        act();
                    }
                }
                _ => {}
            }
            satisfied
        };
        let operation = when(check, operation.ended);
        let _ = self
            .purgatory
            .try_complete_else_watch(operation, keys, MINUTE)
            .unwrap();
    }

    pub fn park(&self, operation: Op, keys: &[u32]) {
        self.park_with(operation, keys, None, None);
    }

    /// The event of a key; returns how many it completed.
    pub fn event(&self, key: u32) -> usize {
        self.purgatory.check_and_complete(&key)
    }

    /// The event of a key, from a thread that holds a lock which others may need.
    pub fn event_under(&self, held: MutexGuard<'_, ()>, key: u32) {
        drop(held); // such a thread defers the event until it has let go
        self.event(key);
    }

    /// Cancels the operations under a key.
    pub fn cancel(&self, key: u32) -> usize {
        self.purgatory.cancel_for_key(&key, "given up")
    }

    /// Runs each operation out of time.
    pub fn expire(&self) {
        self.timer.advance(MINUTE);
    }
}

/// Runs a script that hangs if it fails, so that it fails instead.
pub fn ends<T: Send + 'static>(script: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || drop(done.send(script())));
    match result.recv_timeout(MINUTE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits for ever"),
    }
}

/// Runs a script over this purgatory; returns its result, and how its operation ended. Nothing may
/// remain.
#[track_caller]
pub fn here<T: Send + 'static>(
    script: impl FnOnce(&Ours, &Probe) -> T + Send + 'static,
) -> (T, Vec<Outcome>) {
    let ours = Ours::new();
    let probe = Probe::default();
    let purgatory = ours.clone();
    let seen = probe.clone();
    let returned = ends(move || script(&purgatory, &seen));
    assert_empty(&ours.purgatory);
    (returned, probe.endings())
}
