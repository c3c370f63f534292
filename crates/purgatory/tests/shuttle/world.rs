//! What a scenario's threads share, and what must hold when they are done.

use std::{sync::Arc, time::Duration};

use purgatory::{
    CancelReason, EndResult, OperationId, Outcome, ParkResult, Purgatory, RefusedReason, Timeout,
};
use shuttle::thread::{self, JoinHandle};
use timer_core::{ManualTimer, SystemTimer, Timer};

use crate::book::{Book, Lines, Op};

pub const MS: Duration = Duration::from_millis(1);
pub const NEVER: Timeout = Timeout::Never;

/// A timer whose time a thread may let pass.
pub trait Time: Timer {
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

/// What a scenario's threads share: clones are the same.
#[derive(Clone)]
pub struct World<T = ManualTimer> {
    pub timer: T,
    pub purgatory: Purgatory<u8, Op>,
    pub book: Arc<Book>,
    settings: Settings,
}

/// What its purgatory is built with.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    pub max_parked: Option<usize>,
    pub callbacks_on_executor: bool,
}

impl World {
    pub fn new() -> Self {
        World::on(ManualTimer::new(), Settings::default())
    }

    /// Waits for the threads; then what is still parked must have a reason to be, and is ended by
    /// shutdown, and the books must be right.
    pub fn finish(&self, threads: impl IntoIterator<Item = JoinHandle<()>>) {
        join(threads);
        assert_eq!(self.book.now_ns(), (MS * self.book.pages().ticks).as_nanos() as u64);
        self.assert_nothing_missed();
        self.tick(); // what was parked after the clock had moved on, but counted from before
        let now_ns = self.book.now_ns();
        for number in self.book.open() {
            let not_before_ns = self.book.pages().operations[number].not_before_ns;
            assert!(not_before_ns.is_none_or(|at| at > now_ns), "{number} did not expire");
        }
        self.shutdown();
        self.assert_over();
    }
}

impl<T: Time> World<T> {
    pub fn on(timer: T, settings: Settings) -> Self {
        let mut builder = Purgatory::builder("world").timer(&timer);
        if let Some(max) = settings.max_parked {
            builder = builder.max_parked(max);
        }
        if settings.callbacks_on_executor {
            builder = builder.callbacks_on_executor();
        }
        let purgatory = builder.build().unwrap();
        let book = Book::new(timer.driver());
        World { timer, purgatory, book, settings }
    }

    pub fn thread(&self, act: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || act(&world))
    }

    /// An operation, not parked yet, that waits for the conditions of these keys.
    pub fn op(&self, keys: &[u8]) -> Op {
        self.book.op(keys)
    }

    /// Parks an operation; its number.
    pub fn park(&self, op: Op, timeout: impl Into<Timeout>) -> usize {
        let (number, wants, timeout) = (op.number, op.wants.clone(), timeout.into());
        let not_before_ns = self.not_before_ns(timeout);
        self.book.pages().operations[number] =
            Lines { wants: wants.clone(), not_before_ns, ..Lines::default() };
        match self.purgatory.try_complete_else_watch(op, wants.watches(), timeout) {
            Ok(ParkResult::Parked(id)) => self.book.pages().parked.push((number, id)),
            Ok(ParkResult::Ended(_)) => {}
            Ok(other) => panic!("neither parked nor over: {other:?}"),
            Err(refused) => {
                let mut pages = self.book.pages();
                let justified = match refused.reason {
                    RefusedReason::Closed => pages.begun.contains("shutdown"),
                    RefusedReason::Full { limit } => self.settings.max_parked == Some(limit),
                    _ => false,
                };
                assert!(justified && refused.into_inner().number == number);
                pages.operations[number].refused = true;
            }
        }
        number
    }

    pub fn make_true(&self, key: u8) {
        self.book.make_true(key);
    }

    /// Makes a condition true, then raises its event.
    pub fn event(&self, key: u8) {
        self.make_true(key);
        self.raise(key);
    }

    /// Raises an event, whatever the condition.
    pub fn raise(&self, key: u8) {
        self.book.count(self.purgatory.check_and_complete(&key));
    }

    /// Lets a level rise, then raises its event.
    pub fn rise(&self, key: u8, value: u64) {
        self.book.raise_level(key, value);
        self.book.count(self.purgatory.complete_up_to(&key, value));
    }

    pub fn cancel_for_key(&self, key: u8) {
        let reason = format!("key {key}");
        self.book.begin(reason.clone());
        let before = self.parked();
        self.purgatory.cancel_for_key(&key, reason);
        for (number, _) in before {
            let wants = self.book.pages().operations[number].wants.clone();
            // What a rise took off the key before is not found by it.
            let gone = |level| wants.counted && self.book.reaches(level);
            let given_up = wants.keys.contains(&key)
                || wants.levels.iter().any(|&level| level.0 == key && !gone(level));
            self.book.pages().operations[number].given_up |= given_up;
        }
    }

    /// The numbers and ids of what has been parked so far.
    pub fn parked(&self) -> Vec<(usize, OperationId)> {
        self.book.pages().parked.clone()
    }

    pub fn cancel(&self, (number, id): (usize, OperationId)) {
        let reason = format!("cancel {number}");
        self.book.begin(reason.clone());
        let outcome = Outcome::Cancelled(CancelReason::Requested(reason.clone().into()));
        self.attempted(number, self.purgatory.cancel(id, reason), outcome);
    }

    pub fn complete(&self, (number, id): (usize, OperationId)) {
        self.book.begin(format!("complete {number}"));
        self.attempted(number, self.purgatory.complete(id), Outcome::Completed);
    }

    /// For calls that are not inside a callback: what they end has been told.
    fn attempted(&self, number: usize, attempt: EndResult, outcome: Outcome) {
        let mut pages = self.book.pages();
        let Lines { endings, given_up, .. } = &mut pages.operations[number];
        match attempt {
            EndResult::Ended if self.settings.callbacks_on_executor => *given_up = true,
            EndResult::Ended => assert_eq!(*endings, [outcome], "{number} was told"),
            EndResult::Noted => *given_up = true,
            EndResult::Gone => {}
            other => panic!("{other:?}"),
        }
    }

    /// Gives an operation another timeout. Only one thread may do that with one operation.
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
        match timeout {
            Timeout::After(delay) => Some(self.book.now_ns() + delay.as_nanos() as u64),
            Timeout::At(at_ns) => Some(at_ns),
            Timeout::Never => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn tick(&self) {
        self.book.pages().ticks += 1;
        self.timer.tick();
    }

    pub fn shutdown(&self) {
        self.begin_shutdown();
        self.purgatory.shutdown(Duration::ZERO);
    }

    pub fn begin_shutdown(&self) {
        self.book.begin("shutdown".to_owned());
    }

    /// Waits until nothing is parked that time will end.
    pub fn wait_for_time(&self) {
        let timed = |number: usize| self.book.pages().operations[number].not_before_ns.is_some();
        while self.book.open().into_iter().any(timed) {
            thread::yield_now();
        }
    }

    /// With no thread at work any more: what is open still lacks a condition, and no end of it was
    /// noted.
    #[track_caller]
    pub fn assert_nothing_missed(&self) {
        for number in self.book.open() {
            let wants = self.book.pages().operations[number].wants.clone();
            assert!(!self.book.satisfies(&wants), "{number} missed an event");
            assert!(!self.book.pages().operations[number].given_up, "{number} lost a note");
        }
    }

    /// With no thread at work any more: each operation ended once, with reason, or came back, and
    /// nothing is left.
    #[track_caller]
    pub fn assert_over(&self) {
        let purgatory = &self.purgatory;
        let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
        assert_eq!(left, (0, 0, 0), "left behind");
        let stats = purgatory.stats();
        let pages = self.book.pages();
        assert!(pages.wrong.is_empty(), "ended without reason: {:?}", pages.wrong);
        let mut told = 0;
        for (number, lines) in pages.operations.iter().enumerate() {
            let expected = usize::from(!lines.refused);
            assert_eq!(lines.endings.len(), expected, "{number} ended as {:?}", lines.endings);
            told += expected as u64;
        }
        assert_eq!(stats.parked_total, stats.completed + stats.expired + stats.cancelled);
        assert_eq!(stats.parked_total + stats.ended_at_once, told);
        assert_eq!(stats.panics, pages.panics);
        assert!(pages.completed <= stats.completed);
        drop(pages);
        assert_eq!(Arc::strong_count(&self.book), 1, "an operation was not dropped");
    }
}

pub fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
