//! The books: each operation has a number and a record, which takes its outcome once.
//!
//! *Lost* is an operation without an outcome once nothing is under way, or a dropped value.
//! *Doubled* is a second outcome. *Early* is an expiry before the deadline.

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

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ending {
    Completed,
    Expired,
    Cancelled,
    /// Its purgatory ended: by a shutdown, or with the last handle.
    Closed,
    /// Its check panicked.
    Panicked,
    /// Its future was dropped.
    Dropped,
    /// It was not accepted, but handed back.
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

/// A fault planted in the books, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    Lost,
    Double,
    Early,
    Leak,
}

/// The time by which a planted operation expires early.
const EARLY_NS: u64 = 3_600_000_000_000;
/// The number of faults that are described in words.
const DESCRIBED: usize = 10;

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

/// The books of a whole run.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) clock: JumpingClock,
    plant: Option<Plant>,
    opened: CachePadded<AtomicU64>,
    ended: [CachePadded<AtomicU64>; ENDINGS],
    faults: Mutex<Faults>,
}

/// The faults so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Lost, doubled, early, otherwise wrong.
    pub(crate) counts: [u64; 4],
    /// The first faults in words.
    pub(crate) described: Vec<String>,
}

impl Books {
    pub(crate) fn new(clock: JumpingClock, plant: Option<Plant>) -> Arc<Self> {
        Arc::new(Books {
            clock,
            plant,
            opened: CachePadded::default(),
            ended: Default::default(),
            faults: Mutex::default(),
        })
    }

    /// Opens the record of an operation that may expire `timeout_ns` from now, or never.
    pub(crate) fn open(self: &Arc<Self>, kind: Kind, timeout_ns: Option<u64>) -> Arc<Record> {
        let number = self.opened.fetch_add(1, SeqCst);
        // A planted fault records a later deadline than the operation has.
        let planted = self.plant == Some(Plant::Early) && number.is_multiple_of(101);
        let more_ns = if planted { EARLY_NS } else { 0 };
        let due_ns = timeout_ns.map_or(u64::MAX, |ns| self.clock.now_ns() + ns + more_ns);
        Arc::new(Record {
            number,
            kind,
            due_ns: AtomicU64::new(due_ns),
            state: AtomicU8::new(OPEN),
            books: self.clone(),
        })
    }

    /// Returns the number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.opened.load(SeqCst)
    }

    /// Returns the number of operations without an outcome. Exact at a standstill.
    pub(crate) fn pending(&self) -> u64 {
        let ended: u64 = self.endings().iter().sum();
        self.operations().saturating_sub(ended)
    }

    /// Counts open operations as lost. Call it at a standstill.
    pub(crate) fn close(&self) {
        let lost = self.pending();
        if lost > 0 {
            let what = format!("{lost} operations without an outcome");
            self.note(Wrong::Lost, lost, &what);
        }
    }

    /// Returns the numbers of operations by ending.
    pub(crate) fn endings(&self) -> [u64; ENDINGS] {
        self.ended.each_ref().map(|count| count.load(SeqCst))
    }

    /// Returns what went wrong so far.
    pub(crate) fn faults(&self) -> Faults {
        self.faults.lock().clone()
    }

    /// Counts faults; the first ones are kept in words.
    pub(crate) fn note(&self, wrong: Wrong, count: u64, what: &str) {
        let mut faults = self.faults.lock();
        faults.counts[wrong as usize] += count;
        if faults.described.len() < DESCRIBED {
            faults.described.push(what.to_owned());
        }
    }
}

const OPEN: u8 = 0;
const ENDED: u8 = 1;
/// Its future was dropped; a value may still come.
const ABANDONED: u8 = 2;
/// Its future was dropped, and then its value.
const UNCLAIMED: u8 = 3;

/// The record of one operation.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    kind: Kind,
    /// The deadline: it must not expire before.
    due_ns: AtomicU64,
    state: AtomicU8,
    books: Arc<Books>,
}

impl Record {
    /// Returns the deadline.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns.load(SeqCst)
    }

    /// Calls `reschedule`, which sets another timeout and returns whether it did. Only one thread
    /// may do so at a time. Meanwhile the earlier of the two deadlines counts.
    pub(crate) fn reschedule(&self, timeout_ns: u64, reschedule: impl FnOnce() -> bool) {
        let due_ns = self.books.clock.now_ns() + timeout_ns;
        let before_ns = self.due_ns.fetch_min(due_ns, SeqCst);
        let now_ns = if reschedule() { due_ns } else { before_ns };
        self.due_ns.store(now_ns, SeqCst);
    }

    /// Records the outcome. A second one is a fault.
    pub(crate) fn end(&self, ending: impl Into<Ending>) {
        let ending = ending.into();
        let plant = self.books.plant;
        let planted = plant.is_some() && self.number % 1009 == 7;
        // A planted fault swallows the outcome, doubles it, or leaks memory beside it.
        match plant {
            Some(Plant::Lost) if planted => return,
            Some(Plant::Double) if planted => self.end_once(ending),
            Some(Plant::Leak) if self.number % 16 == 7 => mem::forget(vec![0_u8; 1000]),
            _ => {}
        }
        self.end_once(ending);
    }

    fn end_once(&self, ending: Ending) {
        // The first outcome wins; an abandoned wait may still get a value.
        let becomes = if ending == Ending::Dropped {
            ABANDONED
        } else {
            ENDED
        };
        if let Err(state) = self.state.compare_exchange(OPEN, becomes, SeqCst, SeqCst) {
            return self.doubled(ending, state);
        }
        if ending == Ending::Expired {
            self.check_deadline();
        }
        self.books.ended[ending as usize].fetch_add(1, SeqCst);
    }

    /// Records that it completed, or a fault when its wait yielded the wrong thing.
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
        let what = format!("{ending:?} as well (state {state})");
        self.note(Wrong::Doubled, 1, &what);
    }

    /// Checks that it does not expire before its deadline.
    fn check_deadline(&self) {
        let early_ns = self.due_ns().saturating_sub(self.books.clock.now_ns());
        if early_ns > 0 {
            self.note(Wrong::Early, 1, &format!("{early_ns} ns early"));
        }
    }
}

impl Drop for Record {
    /// Describes a lost operation; [`Books::close`] counts it.
    fn drop(&mut self) {
        if *self.state.get_mut() == OPEN {
            self.note(Wrong::Lost, 0, "has no outcome");
        }
    }
}

/// The value of a wait. Taking it ends its operation as completed. It may be dropped only once, and
/// only if its future was.
#[derive(Debug)]
pub(crate) struct Value(Option<Arc<Record>>);

impl Value {
    pub(crate) fn of(record: &Arc<Record>) -> Self {
        Value(Some(record.clone()))
    }

    /// Completes the operation: the value has reached the thread that waited.
    pub(crate) fn take(mut self) {
        if let Some(record) = self.0.take() {
            record.end(Ending::Completed);
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let Some(record) = self.0.take() else { return };
        // Only the first value of an abandoned wait may be dropped.
        let state = &record.state;
        let abandoned = state.compare_exchange(ABANDONED, UNCLAIMED, SeqCst, SeqCst);
        if abandoned.is_err() {
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

    /// Closes the books; returns what was lost, doubled, early and otherwise wrong.
    fn wrong(books: &Books) -> [u64; 4] {
        books.close();
        books.faults().counts
    }

    #[test]
    fn each_operation_has_one_outcome() {
        let books = books(None);
        let open = || books.open(Kind::Shared, Some(0));
        open().end(Ending::Completed);
        // Once; twice; never.
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
        let abandoned = open();
        abandoned.end(Ending::Dropped);
        drop(Value::of(&abandoned));
        assert_eq!(wrong(&books), [0; 4]);
        // A second value, and one whose future is still there.
        drop(Value::of(&abandoned));
        let waits = open();
        drop(Value::of(&waits));
        assert_eq!(books.faults().counts, [2, 0, 0, 0]);
    }

    #[test]
    fn expiry_before_its_time_is_early() {
        let books = books(None);
        let open = || books.open(Kind::Fresh, Some(HOUR_NS));
        let early = open();
        early.end(Ending::Expired);
        let sooner = open();
        sooner.reschedule(0, || true);
        sooner.end(Ending::Expired);
        // Rescheduling came too late, so the first deadline counts.
        let later = open();
        later.reschedule(0, || false);
        books.clock.jump(Duration::from_nanos(HOUR_NS));
        later.end(Ending::Expired);
        books.open(Kind::Fresh, None).end(Ending::Expired); // never
        assert_eq!(wrong(&books), [0, 0, 2, 0]);
    }

    #[test]
    fn planted_fault_is_noticed() {
        let planted = |plant| {
            let books = books(Some(plant));
            // Every 101st, or each whose number is 7 modulo 1009.
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
