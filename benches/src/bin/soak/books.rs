//! The books: each operation has a number and a record, and its outcome is written there once.
//!
//! *Lost* is an operation that has no outcome when nothing is under way any more, and a value that
//! was dropped; *doubled* a second outcome; *early* an expiry before its time.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    },
};

use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use purgatory::{CancelReason, Outcome, WaitError};
use timer_core::Clock;

use crate::inject::JumpingClock;

/// The kind of a parked operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shared,
    Fresh,
    Levels,
    Chain,
    Future,
    Blocking,
    Monitor,
    Reply,
    Watermark,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ending {
    Completed,
    Expired,
    Cancelled,
    /// With its purgatory: a shutdown, or the last handle.
    Closed,
    /// Its check panicked.
    Panicked,
    /// Its future was dropped.
    Dropped,
    /// It was handed back.
    Refused,
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Ending::Completed,
            Outcome::Expired => Ending::Expired,
            Outcome::Cancelled(CancelReason::Shutdown | CancelReason::Dropped) => Ending::Closed,
            Outcome::Cancelled(CancelReason::Panicked) => Ending::Panicked,
            _ => Ending::Cancelled,
        }
    }
}

impl From<WaitError> for Ending {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Expired => Ending::Expired,
            WaitError::Cancelled(reason) => Outcome::Cancelled(reason).into(),
            _ => Ending::Refused,
        }
    }
}

/// A fault in the books themselves, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    Lost,
    Double,
    Early,
    Leak,
}

/// A planted operation expires early by this.
const EARLY_NS: u64 = 3_600_000_000_000;
/// The number of faults that are told in words.
const TOLD: usize = 10;

const ENDINGS: usize = Ending::Refused as usize + 1;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Lost,
    Doubled,
    Early,
    /// Any other.
    Other,
}

/// The counts of a whole run.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) clock: JumpingClock,
    plant: Option<Plant>,
    opened: CachePadded<AtomicU64>,
    ended: [CachePadded<AtomicU64>; ENDINGS],
    /// How often each thing went wrong, and the first of it in words.
    wrong: Mutex<([u64; 4], Vec<String>)>,
}

impl Books {
    pub(crate) fn new(clock: JumpingClock, plant: Option<Plant>) -> Arc<Self> {
        let (opened, ended, wrong) = Default::default();
        Arc::new(Books {
            clock,
            plant,
            opened,
            ended,
            wrong,
        })
    }

    /// A new operation, which may expire `timeout_ns` from now, or never.
    pub(crate) fn open(self: &Arc<Self>, kind: Kind, timeout_ns: Option<u64>) -> Arc<Record> {
        let number = self.opened.fetch_add(1, SeqCst);
        let planted = self.plant == Some(Plant::Early) && number.is_multiple_of(101);
        let more_ns = if planted { EARLY_NS } else { 0 };
        let due_ns = timeout_ns.map_or(u64::MAX, |ns| self.clock.now_ns() + ns + more_ns);
        let (due_ns, state) = (AtomicU64::new(due_ns), AtomicU8::new(OPEN));
        Arc::new(Record {
            number,
            kind,
            due_ns,
            state,
            books: self.clone(),
        })
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.opened.load(SeqCst)
    }

    /// Operations without an outcome. Exact when nothing moves.
    pub(crate) fn pending(&self) -> u64 {
        let ended: u64 = self.endings().iter().sum();
        self.operations().saturating_sub(ended)
    }

    /// Counts open operations as lost. To be called when nothing is under way.
    pub(crate) fn close(&self) {
        let lost = self.pending();
        if lost > 0 {
            self.note(
                Wrong::Lost,
                lost,
                &format!("{lost} operations without an outcome"),
            );
        }
    }

    /// Operations by how they ended.
    pub(crate) fn endings(&self) -> [u64; ENDINGS] {
        self.ended.each_ref().map(|count| count.load(SeqCst))
    }

    /// How much was lost, doubled, early and otherwise wrong, and the first of it in words.
    pub(crate) fn wrong(&self) -> ([u64; 4], Vec<String>) {
        self.wrong.lock().clone()
    }

    pub(crate) fn note(&self, wrong: Wrong, count: u64, what: &str) {
        let (counts, told) = &mut *self.wrong.lock();
        counts[wrong as usize] += count;
        if told.len() < TOLD {
            told.push(what.to_owned());
        }
    }
}

const OPEN: u8 = 0;
const ENDED: u8 = 1;
/// Its future is gone; a value may still come.
const LEFT: u8 = 2;
/// It came, and was dropped.
const UNCLAIMED: u8 = 3;

/// One operation.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    kind: Kind,
    /// The moment before which it must not expire.
    due_ns: AtomicU64,
    state: AtomicU8,
    books: Arc<Books>,
}

impl Record {
    /// The moment before which it must not expire.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns.load(SeqCst)
    }

    /// Calls `reschedule`, which gives it another timeout and tells whether it did. Only one thread
    /// does so at a time. While that is under way the earlier of the two counts.
    pub(crate) fn reschedule(&self, timeout_ns: u64, reschedule: impl FnOnce() -> bool) {
        let due_ns = self.books.clock.now_ns() + timeout_ns;
        let before_ns = self.due_ns.fetch_min(due_ns, SeqCst);
        self.due_ns
            .store(if reschedule() { due_ns } else { before_ns }, SeqCst);
    }

    /// Its outcome. A second one is wrong.
    pub(crate) fn end(&self, ending: impl Into<Ending>) {
        let (ending, plant) = (ending.into(), self.books.plant);
        let planted = plant.is_some() && self.number % 1009 == 7;
        match plant {
            Some(Plant::Lost) if planted => return,
            Some(Plant::Double) if planted => self.end_once(ending),
            Some(Plant::Leak) if self.number % 16 == 7 => mem::forget(vec![0_u8; 1000]),
            _ => {}
        }
        self.end_once(ending);
    }

    fn end_once(&self, ending: Ending) {
        let becomes = if ending == Ending::Dropped {
            LEFT
        } else {
            ENDED
        };
        if let Err(state) = self.state.compare_exchange(OPEN, becomes, SeqCst, SeqCst) {
            return self.doubled(ending, state);
        }
        if ending == Ending::Expired {
            self.judge();
        }
        self.books.ended[ending as usize].fetch_add(1, SeqCst);
    }

    /// It completed; what its wait yielded must be right.
    pub(crate) fn complete(&self, right: bool) {
        if right {
            self.end(Ending::Completed);
        } else {
            self.note(Wrong::Other, 1, "its wait yielded less than was asked for");
        }
    }

    fn note(&self, wrong: Wrong, count: u64, what: &str) {
        let what = format!("operation {} ({:?}): {what}", self.number, self.kind);
        self.books.note(wrong, count, &what);
    }

    #[cold]
    fn doubled(&self, ending: Ending, state: u8) {
        self.note(
            Wrong::Doubled,
            1,
            &format!("{ending:?} as well (state {state})"),
        );
    }

    /// Nothing expires before its time.
    fn judge(&self) {
        let early_ns = self.due_ns().saturating_sub(self.books.clock.now_ns());
        if early_ns > 0 {
            self.note(Wrong::Early, 1, &format!("{early_ns} ns early"));
        }
    }
}

impl Drop for Record {
    /// Names what is lost; [`Books::close`] counts it.
    fn drop(&mut self) {
        if *self.state.get_mut() == OPEN {
            self.note(Wrong::Lost, 0, "has no outcome");
        }
    }
}

/// The value of a wait: it ends its operation as completed when it is taken. It may be dropped only
/// once, and only if its future was.
#[derive(Debug)]
pub(crate) struct Value(Option<Arc<Record>>);

impl Value {
    pub(crate) fn of(record: &Arc<Record>) -> Self {
        Value(Some(record.clone()))
    }

    /// It reached the thread that waited.
    pub(crate) fn take(mut self) {
        self.0
            .take()
            .into_iter()
            .for_each(|record| record.end(Ending::Completed));
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let Some(record) = self.0.take() else { return };
        if record
            .state
            .compare_exchange(LEFT, UNCLAIMED, SeqCst, SeqCst)
            .is_err()
        {
            record.note(Wrong::Lost, 1, "its value was dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn books(plant: Option<Plant>) -> Arc<Books> {
        Books::new(JumpingClock::new(), plant)
    }

    /// Lost, doubled, early, otherwise wrong.
    fn wrong(books: &Books) -> [u64; 4] {
        books.close();
        books.wrong().0
    }

    #[test]
    fn each_operation_has_one_outcome() {
        let books = books(None);
        let open = || books.open(Kind::Shared, Some(0));
        open().end(Ending::Completed);
        let twice = open();
        twice.end(Outcome::Expired);
        twice.end(WaitError::Expired);
        drop(open());
        assert_eq!((wrong(&books), books.operations()), ([1, 1, 0, 0], 3));
        assert_eq!(books.endings()[..2], [1, 1]);
    }

    #[test]
    fn value_is_taken_or_its_future_was_dropped() {
        let books = books(None);
        let open = || books.open(Kind::Future, None);
        Value::of(&open()).take();
        let left = open();
        left.end(Ending::Dropped);
        drop(Value::of(&left));
        assert_eq!(wrong(&books), [0; 4]);
        drop(Value::of(&left)); // a second one
        let waits = open();
        drop(Value::of(&waits));
        assert_eq!(books.wrong().0, [2, 0, 0, 0]);
    }

    #[test]
    fn expiry_before_its_time_is_early() {
        let books = books(None);
        let open = || books.open(Kind::Fresh, Some(HOUR_NS));
        let (early, later, sooner) = (open(), open(), open());
        early.end(Ending::Expired);
        sooner.reschedule(0, || true);
        sooner.end(Ending::Expired);
        later.reschedule(0, || false); // it was too late for that
        books.clock.jump(Duration::from_nanos(HOUR_NS));
        later.end(Ending::Expired);
        books.open(Kind::Fresh, None).end(Ending::Expired); // never
        assert_eq!(wrong(&books), [0, 0, 2, 0]);
    }

    #[test]
    fn planted_fault_is_noticed() {
        let planted = |plant| {
            let books = books(Some(plant));
            for _ in 0..2000 {
                books.open(Kind::Shared, Some(0)).end(Ending::Expired);
            }
            wrong(&books)
        };
        assert_eq!(planted(Plant::Lost), [2, 0, 0, 0]);
        assert_eq!(planted(Plant::Double), [0, 2, 0, 0]);
        assert_eq!(planted(Plant::Early), [0, 0, 20, 0]);
        assert_eq!(planted(Plant::Leak), [0; 4]);
    }
}
