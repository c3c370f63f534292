//! The books on a scenario: its operations, and whether each ending had its reason.
//!
//! Each key stands for a condition, which comes true once and stays so, and for a level, which only
//! rises; an operation waits for those of all its keys. So the books can tell of any ending whether
//! it was justified, and of anything still parked whether an event was missed.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard},
};

use purgatory::{CancelReason, DelayedOperation, OperationId, Outcome, Watches};
use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, ThreadId},
};
use timer_core::driver::Driver;

/// Keys are below this.
const KEYS: usize = 8;

type Then = Box<dyn FnOnce() + Send>;

/// What an operation waits for: the conditions of its keys, and its levels.
#[derive(Clone, Default)]
pub struct Wants {
    pub keys: Vec<u8>,
    pub levels: Vec<(u8, u64)>,
    /// For the levels alone, whatever the keys' conditions.
    pub counted: bool,
}

impl Wants {
    pub fn watches(&self) -> Watches<'_, u8> {
        let watches = Watches::up_to(&self.levels).with_keys(&self.keys);
        if self.counted { watches } else { watches.checked() }
    }

    fn key(&self, key: u8) -> bool {
        self.keys.contains(&key) || self.levels.iter().any(|level| level.0 == key)
    }
}

/// An operation of the scenarios'.
pub struct Op {
    pub number: usize,
    pub wants: Wants,
    /// Its check knows nothing of what it waits for.
    blind: bool,
    /// Its check panics once this condition is true.
    panics_at: Option<u8>,
    then: Option<Then>,
    book: Arc<Book>,
}

impl Op {
    /// Waits for these levels: for them alone, if no check is asked for.
    pub fn up_to(mut self, levels: &[(u8, u64)]) -> Self {
        self.wants.levels = levels.to_vec();
        self.wants.counted = true;
        self
    }

    /// Waits for its levels and the conditions of its keys.
    pub fn checked(mut self) -> Self {
        self.wants.counted = false;
        self
    }

    pub fn blind(mut self) -> Self {
        self.blind = true;
        self
    }

    pub fn panics_at(mut self, key: u8) -> Self {
        self.panics_at = Some(key);
        self
    }

    /// What its callback does.
    pub fn then(mut self, then: impl FnOnce() + Send + 'static) -> Self {
        self.then = Some(Box::new(then));
        self
    }
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        if self.panics_at.is_some_and(|key| self.book.is_true(key)) {
            self.book.pages().operations[self.number].given_up = true;
            self.book.panic();
        }
        !self.blind && self.book.satisfies(&self.wants)
    }

    fn on_complete(mut self, outcome: Outcome) {
        self.book.ended(&self, outcome);
        if let Some(then) = self.then.take() {
            let _inside = Inside::enter(&self.book);
            then();
        }
    }
}

/// A callback that runs: one at a time on a thread.
struct Inside<'a>(&'a Book);

impl<'a> Inside<'a> {
    fn enter(book: &'a Book) -> Self {
        let mut pages = book.pages();
        if !pages.inside.insert(thread::current().id()) {
            pages.wrong.push("a callback inside a callback".to_owned());
        }
        Inside(book)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.pages().inside.remove(&thread::current().id());
    }
}

/// One operation's lines.
#[derive(Default)]
pub struct Lines {
    pub wants: Wants,
    pub endings: Vec<Outcome>,
    pub refused: bool,
    /// It may not expire before; `None` for never.
    pub not_before_ns: Option<u64>,
    /// Somebody ended it, or left a note to, or its check panicked: it must not wait on.
    pub given_up: bool,
}

#[derive(Default)]
pub struct Pages {
    pub operations: Vec<Lines>,
    pub parked: Vec<(usize, OperationId)>,
    /// Calls that were begun and justify an ending.
    pub begun: HashSet<String>,
    pub panics: u64,
    pub ticks: u32,
    /// What events said they completed.
    pub completed: u64,
    /// Threads that run a callback.
    inside: HashSet<ThreadId>,
    pub wrong: Vec<String>,
}

/// The books. Their lock is none of the model's, and nothing of the model's happens under it.
pub struct Book {
    conditions: [AtomicBool; KEYS],
    levels: [AtomicU64; KEYS],
    pages: Mutex<Pages>,
    driver: Arc<Driver>,
}

impl Book {
    pub fn new(driver: Arc<Driver>) -> Arc<Self> {
        Arc::new(Book {
            conditions: Default::default(),
            levels: Default::default(),
            pages: Mutex::default(),
            driver,
        })
    }

    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap()
    }

    pub fn now_ns(&self) -> u64 {
        self.driver.now_ns()
    }

    /// An operation, not parked yet, that waits for the conditions of these keys.
    pub fn op(self: &Arc<Self>, keys: &[u8]) -> Op {
        let mut pages = self.pages();
        pages.operations.push(Lines::default());
        Op {
            number: pages.operations.len() - 1,
            wants: Wants { keys: keys.to_vec(), ..Wants::default() },
            blind: false,
            panics_at: None,
            then: None,
            book: self.clone(),
        }
    }

    pub fn make_true(&self, key: u8) {
        self.conditions[usize::from(key)].store(true, Ordering::Relaxed);
    }

    pub fn raise_level(&self, key: u8, value: u64) {
        self.levels[usize::from(key)].fetch_max(value, Ordering::Relaxed);
    }

    pub fn is_true(&self, key: u8) -> bool {
        self.conditions[usize::from(key)].load(Ordering::Relaxed)
    }

    pub fn reaches(&self, (key, threshold): (u8, u64)) -> bool {
        self.levels[usize::from(key)].load(Ordering::Relaxed) >= threshold
    }

    pub fn satisfies(&self, wants: &Wants) -> bool {
        wants.levels.iter().all(|&level| self.reaches(level))
            && (wants.counted || wants.keys.iter().all(|&key| self.is_true(key)))
    }

    /// A panic without the panic hook, which would take it for the schedule's failure.
    pub fn panic(&self) -> ! {
        self.pages().panics += 1;
        resume_unwind(Box::new("a panic of the scenario's"))
    }

    pub fn begin(&self, call: String) {
        self.pages().begun.insert(call);
    }

    /// What an event said it completed: nothing, inside a callback.
    pub fn count(&self, completed: usize) {
        let mut pages = self.pages();
        pages.completed += completed as u64;
        if completed > 0 && pages.inside.contains(&thread::current().id()) {
            pages.wrong.push("a nested event that did not wait".to_owned());
        }
    }

    fn ended(&self, op: &Op, outcome: Outcome) {
        let now_ns = self.now_ns();
        let satisfied = self.satisfies(&op.wants);
        let panics = op.panics_at.is_some_and(|key| self.is_true(key));
        let mut pages = self.pages();
        let begun = |call: &str| pages.begun.contains(call);
        let lines = &pages.operations[op.number];
        let justified = match &outcome {
            Outcome::Completed => satisfied || begun(&format!("complete {}", op.number)),
            Outcome::Expired => lines.not_before_ns.is_some_and(|at| at <= now_ns),
            Outcome::Cancelled(CancelReason::Shutdown) => begun("shutdown"),
            Outcome::Cancelled(CancelReason::Panicked) => panics,
            Outcome::Cancelled(CancelReason::Requested(reason)) => {
                let key = reason.strip_prefix("key ").and_then(|key| key.parse().ok());
                let by_key = key.is_some_and(|key| op.wants.key(key));
                begun(reason) && (by_key || *reason == format!("cancel {}", op.number))
            }
            _ => false,
        };
        if !justified {
            let wrong = format!("{} at {now_ns} ns: {outcome:?}", op.number);
            pages.wrong.push(wrong);
        }
        pages.operations[op.number].endings.push(outcome);
    }

    /// Operations accepted that have not ended.
    pub fn open(&self) -> Vec<usize> {
        let pages = self.pages();
        let open = |lines: &Lines| lines.endings.is_empty() && !lines.refused;
        (0..pages.operations.len()).filter(|&number| open(&pages.operations[number])).collect()
    }
}
