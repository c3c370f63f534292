//! What the scripts are made of: an operation that does what it is told, a place where a thread is
//! held, a lock that says when somebody waits for it, and the purgatories a script can run over.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use purgatory::{DelayedOperation, Outcome, Purgatory};
use timer_core::ManualTimer;

const MINUTE: Duration = Duration::from_secs(60);

/// An operation of two closures. Both can be called by several threads at once, as Kafka's could.
pub struct Op {
    pub check: Box<dyn Fn() -> bool + Send + Sync>,
    pub ended: Box<dyn Fn(Outcome) + Send + Sync>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        (self.check)()
    }

    fn on_complete(self, outcome: Outcome) {
        (self.ended)(outcome);
    }
}

/// What a script sees of an operation: it makes its condition true, and reads how it ended.
#[derive(Clone, Default)]
pub struct Probe {
    ready: Arc<AtomicBool>,
    endings: Arc<Mutex<Vec<Outcome>>>,
}

impl Probe {
    pub fn new() -> Self {
        Probe::default()
    }

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

    /// One whose check is `check`, told what the condition was when it began.
    pub fn acting(&self, check: impl Fn(bool) -> bool + Send + Sync + 'static) -> Op {
        let Probe { ready, endings } = self.clone();
        Op {
            check: Box::new(move || check(ready.load(SeqCst))),
            ended: Box::new(move |outcome| endings.lock().push(outcome)),
        }
    }
}

impl Op {
    /// Also does this when it is over.
    pub fn then(self, act: impl Fn() + Send + Sync + 'static) -> Op {
        let ended = self.ended;
        let ended = Box::new(move |outcome| {
            ended(outcome);
            act();
        });
        Op { ended, ..self }
    }
}

/// Where a script holds a thread, once: the next to come by after `arm`.
#[derive(Clone)]
pub struct Stop(Arc<(AtomicBool, Barrier)>);

impl Stop {
    pub fn new() -> Self {
        Stop(Arc::new((AtomicBool::new(false), Barrier::new(2))))
    }

    pub fn arm(&self) {
        self.0.0.store(true, SeqCst);
    }

    /// For the thread to be held.
    pub fn here(&self) {
        if self.0.0.swap(false, SeqCst) {
            self.0.1.wait();
            self.0.1.wait();
        }
    }

    /// Returns when a thread is held.
    pub fn reached(&self) {
        self.0.1.wait();
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.0.1.wait();
    }
}

/// What a thread lets the script know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It waits for the outer lock.
    Waits,
    /// Its event has returned.
    Returned,
}

/// A lock of the broker's, outside the purgatory (a group's, a partition's), which says when
/// somebody has to wait for it.
pub struct OuterLock {
    lock: Mutex<()>,
    signs: mpsc::Sender<Sign>,
}

impl OuterLock {
    pub fn new(signs: mpsc::Sender<Sign>) -> Arc<Self> {
        Arc::new(OuterLock { lock: Mutex::new(()), signs })
    }

    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.try_lock().unwrap_or_else(|| {
            self.sign(Sign::Waits);
            self.lock.lock()
        })
    }

    /// Lets the script know something.
    pub fn sign(&self, sign: Sign) {
        let _ = self.signs.send(sign); // a script that is over does not listen
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock()
    }
}

/// A purgatory that a script can run over.
pub trait AnyPurgatory: Clone + Send + Sync + 'static {
    fn park(&self, operation: Op, keys: &[u32]);

    /// Parks, and lets `meanwhile` happen when the operation is watched, before it is checked for
    /// the last time. There is a last check.
    fn park_meanwhile(
        &self,
        operation: Op,
        keys: &[u32],
        meanwhile: impl FnOnce() + Send + 'static,
    );

    /// Parks an operation whose check has to be run under an outer lock.
    fn park_under(&self, lock: &Arc<OuterLock>, operation: Op, keys: &[u32]);

    /// The event of a key; returns how many it completed.
    fn event(&self, key: u32) -> usize;

    /// The event of a key, from a thread that holds a lock which others may need.
    fn event_from_under_a_lock(&self, key: u32);

    /// To be called when that thread holds the lock no more.
    fn lock_released(&self) {}

    /// Gives up what waits for a key.
    fn cancel(&self, key: u32) -> usize;

    /// Lets everybody's time run out.
    fn expire(&self);

    /// Entries in the watch lists.
    fn watched(&self) -> usize;

    /// How many threads would have waited for ever for an operation's lock, if a script did not
    /// have to end. None here: whoever called has returned.
    fn would_wait(&self) -> usize {
        0
    }
}

/// This purgatory, on the real wheel under a hand-turned clock.
#[derive(Clone)]
pub struct Ours {
    timer: ManualTimer,
    pub purgatory: Purgatory<u32, Op>,
    /// Events raised under a lock, until it is let go.
    later: Arc<Mutex<Vec<u32>>>,
}

impl Ours {
    pub fn new() -> Self {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("regressions").timer(&timer).build().unwrap();
        Ours { timer, purgatory, later: Arc::default() }
    }

    /// All gone: off the wheel, out of every list.
    #[track_caller]
    pub fn assert_empty(&self) {
        let Ours { purgatory, .. } = self;
        assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    }
}

impl AnyPurgatory for Ours {
    fn park(&self, operation: Op, keys: &[u32]) {
        let _ = self.purgatory.try_complete_else_watch(operation, keys, MINUTE).unwrap();
    }

    fn park_meanwhile(
        &self,
        operation: Op,
        keys: &[u32],
        meanwhile: impl FnOnce() + Send + 'static,
    ) {
        let (purgatory, key, check) = (self.clone(), keys[0], operation.check);
        let (looks, meanwhile) = (AtomicUsize::new(0), Mutex::new(Some(meanwhile)));
        let check = Box::new(move || {
            let satisfied = check();
            match looks.fetch_add(1, SeqCst) {
                // So that the operation is watched, and checked again.
                0 => event_elsewhere(&purgatory, key),
                1 => meanwhile.lock().take().into_iter().for_each(|meanwhile| meanwhile()),
                _ => {}
            }
            satisfied
        });
        self.park(Op { check, ..operation }, keys);
    }

    fn park_under(&self, lock: &Arc<OuterLock>, operation: Op, keys: &[u32]) {
        let (lock, check) = (lock.clone(), operation.check);
        let check = Box::new(move || {
            let _held = lock.lock();
            check()
        });
        self.park(Op { check, ..operation }, keys);
    }

    fn event(&self, key: u32) -> usize {
        self.purgatory.check_and_complete(&key)
    }

    fn event_from_under_a_lock(&self, key: u32) {
        self.later.lock().push(key);
    }

    fn lock_released(&self) {
        let later = std::mem::take(&mut *self.later.lock());
        later.iter().for_each(|key| _ = self.purgatory.check_and_complete(key));
    }

    fn cancel(&self, key: u32) -> usize {
        self.purgatory.cancel_for_key(&key, "given up")
    }

    fn expire(&self) {
        self.timer.advance(MINUTE);
    }

    fn watched(&self) -> usize {
        self.purgatory.watched()
    }
}

/// An event from beginning to end, on a thread of its own.
fn event_elsewhere(purgatory: &Ours, key: u32) {
    let purgatory = purgatory.clone();
    assert_eq!(thread::spawn(move || purgatory.event(key)).join().unwrap(), 0);
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
