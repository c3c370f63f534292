//! The state that the threads of a scenario share, and its books: the operations, and whether each
//! ending had a reason.
//!
//! Each key stands for a condition, which becomes true once and stays so, and for a level, which
//! only advances. An operation waits for those of all its keys. So the books can decide for every
//! ending whether it was justified, and for every parked operation whether an event was missed.

use std::{
    collections::HashSet,
    ops::Deref,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use purgatory::{
    CancelReason, DelayedOperation, OperationId, Outcome, Purgatory, ReachResult, Timeout,
    WaitError,
};
use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread::{self, JoinHandle},
};
use timer_core::{ManualTimer, SystemTimer, Timer, driver::Driver};

pub const MS: Duration = Duration::from_millis(1);
pub const NEVER: Timeout = Timeout::Never;

/// A timer whose time a thread may let pass.
pub trait Time: Deref<Target = Timer> + Clone + Send + Sync + 'static {
    fn tick(&self);
}

impl Time for ManualTimer {
    fn tick(&self) {
        self.advance(MS);
    }
}

impl Time for SystemTimer {
    /// Its clock moves on by itself.
    fn tick(&self) {
        thread::yield_now();
    }
}

/// The conditions of an operation: those of its keys, and its levels.
#[derive(Clone, Default)]
pub struct Wants {
    pub keys: Vec<u8>,
    pub levels: Vec<(u8, u64)>,
}

impl Wants {
    /// The keys whose events it has to see.
    fn watched(&self) -> Vec<u8> {
        let levels = self.levels.iter().map(|level| level.0);
        self.keys.iter().copied().chain(levels).collect()
    }
}

/// An operation of the scenarios'.
pub struct Op {
    number: usize,
    pub wants: Wants,
    /// Its check panics once this condition is true.
    pub panics_at: Option<u8>,
    /// Runs in its callback.
    pub then: Option<Box<dyn FnOnce() + Send>>,
    book: Arc<Book>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        if self.panics_at.is_some_and(|key| self.book.is_true(key)) {
            self.book.pages().operations[self.number].given_up = true;
            self.book.panic();
        }
        self.book.satisfies(&self.wants)
    }

    fn on_complete(mut self, outcome: Outcome) {
        self.book.ended(&self, outcome);
        if let Some(then) = self.then.take() {
            then();
        }
    }
}

/// One operation's lines.
#[derive(Default)]
struct Lines {
    wants: Wants,
    endings: Vec<Outcome>,
    refused: bool,
    /// It may not expire before; `None` for never.
    not_before_ns: Option<u64>,
    /// A thread ended it or requested its end, or its check panicked: it must not go on waiting.
    given_up: bool,
}

#[derive(Default)]
pub struct Pages {
    operations: Vec<Lines>,
    parked: Vec<(usize, OperationId)>,
    /// Calls that were begun and justify an ending.
    begun: HashSet<String>,
    panics: u64,
    ticks: u32,
    wrong: Vec<String>,
}

/// The books. Their lock is none of the model's, and nothing of the model's happens under it.
pub struct Book {
    conditions: [AtomicBool; 8],
    levels: [AtomicU64; 8],
    pages: Mutex<Pages>,
    driver: Arc<Driver>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap()
    }

    fn is_true(&self, key: u8) -> bool {
        self.conditions[usize::from(key)].load(Relaxed)
    }

    fn reaches(&self, (key, threshold): (u8, u64)) -> bool {
        self.levels[usize::from(key)].load(Relaxed) >= threshold
    }

    fn satisfies(&self, wants: &Wants) -> bool {
        wants.levels.iter().all(|&level| self.reaches(level))
            && wants.keys.iter().all(|&key| self.is_true(key))
    }

    /// A panic without the panic hook, which would take it for the schedule's failure.
    pub fn panic(&self) -> ! {
        self.pages().panics += 1;
        resume_unwind(Box::new("a panic of the scenario's"))
    }

    fn ended(&self, op: &Op, outcome: Outcome) {
        let now_ns = self.driver.now_ns();
        let satisfied = self.satisfies(&op.wants);
        let panics = op.panics_at.is_some_and(|key| self.is_true(key));
        let mut pages = self.pages();
        let begun = |call: &str| pages.begun.contains(call);
        let justified = match &outcome {
            Outcome::Completed => satisfied || begun(&format!("complete {}", op.number)),
            Outcome::Expired => pages.operations[op.number]
                .not_before_ns
                .is_some_and(|at| at <= now_ns),
            Outcome::Cancelled(CancelReason::Shutdown) => begun("shutdown"),
            Outcome::Cancelled(CancelReason::Panicked) => panics,
            Outcome::Cancelled(CancelReason::Requested(reason)) => {
                let reason = reason.as_str();
                let key = reason.strip_prefix("key ").and_then(|key| key.parse().ok());
                let by_key = key.is_some_and(|key| op.wants.watched().contains(&key));
                begun(reason) && (by_key || reason == format!("cancel {}", op.number))
            }
            _ => false,
        };
        if !justified {
            pages
                .wrong
                .push(format!("{} at {now_ns} ns: {outcome:?}", op.number));
        }
        pages.operations[op.number].endings.push(outcome);
    }

    /// Operations accepted that have not ended: number, and the time before which it may not
    /// expire.
    fn open(&self) -> Vec<(usize, Option<u64>)> {
        let pages = self.pages();
        let open = |lines: &Lines| lines.endings.is_empty() && !lines.refused;
        let all = pages
            .operations
            .iter()
            .enumerate()
            .filter(|(_, lines)| open(lines));
        all.map(|(number, lines)| (number, lines.not_before_ns))
            .collect()
    }
}

/// The state that a scenario's threads share. Clones are handles of it.
#[derive(Clone)]
pub struct World<T = ManualTimer> {
    pub timer: T,
    pub purgatory: Purgatory<u8, Op>,
    pub book: Arc<Book>,
}

impl<T: Time> World<T> {
    pub fn on(timer: T) -> Self {
        let purgatory = Purgatory::builder("world").timer(&timer).build().unwrap();
        let book = Book {
            conditions: Default::default(),
            levels: Default::default(),
            pages: Mutex::default(),
            driver: timer.driver(),
        };
        World {
            timer,
            purgatory,
            book: Arc::new(book),
        }
    }

    pub fn thread(&self, act: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || act(&world))
    }

    /// An operation, not parked yet, that waits for the conditions of these keys.
    pub fn op(&self, keys: &[u8]) -> Op {
        let mut pages = self.book.pages();
        pages.operations.push(Lines::default());
        Op {
            number: pages.operations.len() - 1,
            wants: Wants {
                keys: keys.to_vec(),
                ..Wants::default()
            },
            panics_at: None,
            then: None,
            book: self.book.clone(),
        }
    }

    pub fn park(&self, op: Op, timeout: impl Into<Timeout>) {
        let number = op.number;
        let wants = op.wants.clone();
        let timeout = timeout.into();
        let not_before_ns = self.not_before_ns(timeout);
        self.book.pages().operations[number] = Lines {
            wants: wants.clone(),
            not_before_ns,
            ..Lines::default()
        };
        match self
            .purgatory
            .try_complete_else_watch(op, &wants.watched(), timeout)
        {
            Ok(Some(id)) => self.book.pages().parked.push((number, id)),
            Ok(None) => {}
            Err(refused) => {
                let mut pages = self.book.pages();
                assert_eq!(refused.reason, WaitError::Closed);
                assert!(pages.begun.contains("shutdown"));
                assert_eq!(refused.into_inner().number, number);
                pages.operations[number].refused = true;
            }
        }
    }

    /// Makes a condition true, then signals its key.
    pub fn event(&self, key: u8) {
        self.book.conditions[usize::from(key)].store(true, Relaxed);
        self.signal(key);
    }

    /// Signals a key, whether its condition is true or not.
    pub fn signal(&self, key: u8) {
        self.purgatory.check_and_complete(&key);
    }

    /// Advances a level, then signals its key.
    pub fn advance(&self, key: u8, value: u64) {
        self.book.levels[usize::from(key)].fetch_max(value, Relaxed);
        self.signal(key);
    }

    pub fn begin(&self, call: impl Into<String>) {
        self.book.pages().begun.insert(call.into());
    }

    pub fn cancel_for_key(&self, key: u8) {
        let reason = format!("key {key}");
        self.begin(reason.clone());
        let before = self.parked();
        self.purgatory.cancel_for_key(&key, reason);
        for (number, _) in before {
            let lines = &mut self.book.pages().operations[number];
            lines.given_up |= lines.wants.watched().contains(&key);
        }
    }

    /// Returns the numbers and ids of the operations parked so far.
    pub fn parked(&self) -> Vec<(usize, OperationId)> {
        self.book.pages().parked.clone()
    }

    pub fn cancel(&self, (number, id): (usize, OperationId)) {
        let reason = format!("cancel {number}");
        self.begin(reason.clone());
        self.attempted(number, self.purgatory.cancel(id, reason));
    }

    pub fn complete(&self, (number, id): (usize, OperationId)) {
        self.begin(format!("complete {number}"));
        self.attempted(number, self.purgatory.complete(id));
    }

    /// An operation that was ended, or has a pending end, must not go on waiting.
    fn attempted(&self, number: usize, attempt: ReachResult) {
        self.book.pages().operations[number].given_up |= attempt != ReachResult::Gone;
    }

    /// Reschedules an operation. Only one thread may do that with one operation.
    pub fn reschedule(&self, (number, id): (usize, OperationId), timeout: impl Into<Timeout>) {
        let timeout = timeout.into();
        let after_ns = self.not_before_ns(timeout);
        let before_ns = self.book.pages().operations[number].not_before_ns;
        let write = |at_ns| self.book.pages().operations[number].not_before_ns = at_ns;
        write([before_ns, after_ns].into_iter().flatten().min()); // either, until it says
        let done = self.purgatory.reschedule(id, timeout);
        write(if done { after_ns } else { before_ns });
    }

    fn not_before_ns(&self, timeout: Timeout) -> Option<u64> {
        let Timeout::After(delay) = timeout else {
            return None;
        };
        Some(self.book.driver.now_ns() + delay.as_nanos() as u64)
    }

    pub fn tick(&self) {
        self.book.pages().ticks += 1;
        self.timer.tick();
    }

    pub fn shutdown(&self) {
        self.begin("shutdown");
        self.purgatory.shutdown(Duration::ZERO);
    }

    /// Waits until nothing is parked that time will end.
    pub fn wait_for_time(&self) {
        while self
            .book
            .open()
            .iter()
            .any(|(_, not_before_ns)| not_before_ns.is_some())
        {
            thread::yield_now();
        }
    }

    /// Checks, after all threads have ended, that an open operation lacks a condition and has no
    /// pending end.
    #[track_caller]
    pub fn assert_nothing_missed(&self) {
        for (number, _) in self.book.open() {
            let wants = self.book.pages().operations[number].wants.clone();
            assert!(!self.book.satisfies(&wants), "{number} missed an event");
            assert!(
                !self.book.pages().operations[number].given_up,
                "{number} lost a request"
            );
        }
    }

    /// Checks, after all threads have ended, that each operation ended once with a reason or was
    /// handed back, and that nothing remains.
    #[track_caller]
    pub fn assert_over(&self) {
        let purgatory = &self.purgatory;
        let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
        assert_eq!(left, (0, 0, 0), "something remains");
        let stats = purgatory.stats();
        let pages = self.book.pages();
        assert!(
            pages.wrong.is_empty(),
            "ended without reason: {:?}",
            pages.wrong
        );
        let mut told = 0;
        for (number, lines) in pages.operations.iter().enumerate() {
            let expected = usize::from(!lines.refused);
            assert_eq!(
                lines.endings.len(),
                expected,
                "{number} ended as {:?}",
                lines.endings
            );
            told += expected as u64;
        }
        assert_eq!(
            stats.parked_total,
            stats.completed + stats.expired + stats.cancelled
        );
        assert_eq!(stats.parked_total + stats.ended_at_once, told);
        assert_eq!(stats.panics, pages.panics);
        drop(pages);
        assert_eq!(
            Arc::strong_count(&self.book),
            1,
            "an operation was not dropped"
        );
    }
}

impl World {
    /// Checks, after all threads have ended, that each parked operation has a reason to be parked;
    /// then shuts down, and checks the books.
    pub fn finish(&self) {
        assert_eq!(
            self.book.driver.now_ns(),
            (MS * self.book.pages().ticks).as_nanos() as u64
        );
        self.assert_nothing_missed();
        self.tick(); // what was parked after the clock had moved on, but counted from before
        let now_ns = self.book.driver.now_ns();
        let late = |&(_, at): &(usize, Option<u64>)| at.is_some_and(|at| at <= now_ns);
        assert!(!self.book.open().iter().any(late), "one did not expire");
        self.shutdown();
        self.assert_over();
    }
}

pub fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}
