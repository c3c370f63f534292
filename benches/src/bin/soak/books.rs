//! The books: each operation has a number and a record, and its outcome is written there once.
//!
//! *Lost* is what has no outcome when nothing is under way any more, and a value that was dropped;
//! *doubled* a second outcome; *early* what was told that it expired before its time. What is open
//! is counted for each world, so that a loss is noticed when the world is over.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    },
};

use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use purgatory::{CancelReason, Outcome, WaitError};
use timer_core::Clock;

use crate::clock::JumpingClock;

/// What is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Shared,
    Fresh,
    Hot,
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
    /// A key panicked as it was parked, so it was not.
    Unparked,
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

/// The longest lateness that is told apart.
const LATENESS_MAX_NS: u64 = 3_600_000_000_000;
/// Of what went wrong so much is told.
const TOLD: usize = 10;

const KINDS: usize = Kind::Watermark as usize + 1;
const ENDINGS: usize = Ending::Unparked as usize + 1;

/// Operations of each kind by how they ended.
pub(crate) type Endings = [[u64; ENDINGS]; KINDS];

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Lost,
    Doubled,
    Early,
    /// Whatever else does not add up.
    Other,
}

/// What is counted over the whole run.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) clock: JumpingClock,
    plant: Option<Plant>,
    numbers: CachePadded<AtomicU64>,
    ended: [[CachePadded<AtomicU64>; ENDINGS]; KINDS],
    lateness: Mutex<Histogram<u64>>,
    /// How often each thing went wrong, and the first of it in words.
    wrong: Mutex<([u64; 4], Vec<String>)>,
}

impl Books {
    pub(crate) fn new(clock: JumpingClock, plant: Option<Plant>) -> anyhow::Result<Arc<Self>> {
        let (numbers, ended, wrong) = Default::default();
        let lateness = Mutex::new(Histogram::new_with_bounds(1, LATENESS_MAX_NS, 2)?);
        Ok(Arc::new(Books { clock, plant, numbers, ended, lateness, wrong }))
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.numbers.load(SeqCst)
    }

    pub(crate) fn endings(&self) -> Endings {
        self.ended.each_ref().map(|kind| kind.each_ref().map(|count| count.load(SeqCst)))
    }

    /// How late expiries have been since this was called last, without those over whose wait the
    /// clock jumped, and those that are polled for.
    pub(crate) fn take_lateness(&self) -> Histogram<u64> {
        let mut lateness = self.lateness.lock();
        let taken = lateness.clone();
        lateness.reset();
        taken
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

/// What is open in one world, whose timer goes by `clock`.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) books: Arc<Books>,
    pub(crate) clock: Arc<dyn Clock>,
    opened: CachePadded<AtomicU64>,
    ended: CachePadded<AtomicU64>,
}

impl Account {
    pub(crate) fn new(books: &Arc<Books>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (opened, ended) = Default::default();
        Arc::new(Account { books: books.clone(), clock, opened, ended })
    }

    /// A new operation, which may expire `timeout_ns` from now, or never. Gives the present, too,
    /// by the timer's clock.
    pub(crate) fn open(self: &Arc<Self>, kind: Kind, timeout_ns: Option<u64>) -> Opened {
        let books = &self.books;
        let number = books.numbers.fetch_add(1, SeqCst);
        self.opened.fetch_add(1, SeqCst);
        let record = Arc::new(Record {
            number,
            kind,
            epoch: books.clock.epoch(),
            due: [AtomicU64::new(0), AtomicU64::new(0)],
            state: AtomicU8::new(OPEN),
            account: self.clone(),
        });
        let present = record.present();
        record.set_due(present, timeout_ns);
        if books.plant == Some(Plant::Early) && number.is_multiple_of(101) {
            record.set_due(present, timeout_ns.map(|ns| ns + LATENESS_MAX_NS));
        }
        Opened { record, now_ns: present[1] }
    }

    /// Operations without an outcome. Exact when nothing moves.
    pub(crate) fn pending(&self) -> u64 {
        let ended = self.ended.load(SeqCst);
        self.opened.load(SeqCst).saturating_sub(ended)
    }

    /// Nothing is under way any more: what is open is lost.
    pub(crate) fn close(&self, world: &str) {
        let lost = self.pending();
        if lost > 0 {
            let what = format!("{world}: {lost} operations without an outcome");
            self.books.note(Wrong::Lost, lost, &what);
        }
    }
}

/// An operation that was given a number, at this moment of the timer's clock.
pub(crate) struct Opened {
    pub(crate) record: Arc<Record>,
    pub(crate) now_ns: u64,
}

/// A moment: the total of the injected clock, and what the timer's shows, which is read after it.
type Moment = [u64; 2];

const OPEN: u8 = 0;
const ENDED: u8 = 1;
/// Its future is gone; a value may still come.
const LEFT: u8 = 2;
/// It came, and was taken by a hook.
const UNCLAIMED: u8 = 3;

/// One operation.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    kind: Kind,
    /// The clock's when it was parked.
    epoch: u32,
    /// The [`Moment`] before which it must not expire.
    due: [AtomicU64; 2],
    state: AtomicU8,
    account: Arc<Account>,
}

impl Record {
    fn present(&self) -> Moment {
        [self.account.books.clock.total_ns(), self.account.clock.now_ns()]
    }

    fn set_due(&self, from: Moment, timeout_ns: Option<u64>) {
        for (due, from_ns) in self.due.iter().zip(from) {
            due.store(timeout_ns.map_or(u64::MAX, |ns| from_ns.saturating_add(ns)), SeqCst);
        }
    }

    /// Calls `reschedule`, which gives it another timeout and tells whether it did. Only one thread
    /// does so at a time. While that is under way the earlier of the two counts.
    pub(crate) fn reschedule(&self, timeout_ns: u64, reschedule: impl FnOnce() -> bool) {
        let before = self.due.each_ref().map(|due| due.load(SeqCst));
        let from = self.present();
        for (at, from_ns) in from.into_iter().enumerate() {
            self.due[at].fetch_min(from_ns.saturating_add(timeout_ns), SeqCst);
        }
        if reschedule() {
            self.set_due(from, Some(timeout_ns));
        } else {
            self.set_due(before, Some(0));
        }
    }

    /// Its outcome. A second one is wrong.
    pub(crate) fn end(&self, ending: impl Into<Ending>) {
        let (ending, plant) = (ending.into(), self.account.books.plant);
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
        let becomes = if ending == Ending::Dropped { LEFT } else { ENDED };
        if let Err(state) = self.state.compare_exchange(OPEN, becomes, SeqCst, SeqCst) {
            return self.doubled(ending, state);
        }
        if ending == Ending::Expired {
            self.judge();
        }
        let Account { books, ended, .. } = &*self.account;
        books.ended[self.kind as usize][ending as usize].fetch_add(1, SeqCst);
        ended.fetch_add(1, SeqCst);
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
        self.account.books.note(wrong, count, &what);
    }

    /// A key panicked as it was parked: it has this outcome unless it had one before.
    pub(crate) fn unparked(&self) {
        if self.state.load(SeqCst) == OPEN {
            self.end(Ending::Unparked);
        }
    }

    /// A hook took its value, as its future had gone.
    pub(crate) fn end_unclaimed(&self) {
        if let Err(state) = self.state.compare_exchange(LEFT, UNCLAIMED, SeqCst, SeqCst) {
            self.doubled(Ending::Completed, state);
        }
    }

    #[cold]
    fn doubled(&self, ending: Ending, state: u8) {
        self.note(Wrong::Doubled, 1, &format!("{ending:?} as well (state {state})"));
    }

    /// Nothing expires before its time, by the timer's clock and by the total of the injected one.
    fn judge(&self) {
        let books = &self.account.books;
        let due = self.due.each_ref().map(|due| due.load(SeqCst));
        let now_ns = self.account.clock.now_ns();
        let now = [books.clock.total_ns(), now_ns];
        let (parked, epoch) = (self.epoch, books.clock.epoch());
        for (what, at) in [("the total of the injected clock", 0), ("the timer's clock", 1)] {
            if now[at] < due[at] {
                let early_ns = due[at] - now[at];
                let what = format!("{early_ns} ns early by {what}, epoch {parked} of {epoch}");
                return self.note(Wrong::Early, 1, &what);
            }
        }
        // Its outcome comes to a future that is polled now and then, mostly.
        let polled =
            matches!(self.kind, Kind::Future | Kind::Monitor | Kind::Reply | Kind::Watermark);
        if !polled && parked == epoch {
            books.lateness.lock().saturating_record((now[1] - due[1]).max(1));
        }
    }
}

impl Drop for Record {
    /// Names what is lost; [`Account::close`] counts it.
    fn drop(&mut self) {
        if *self.state.get_mut() == OPEN {
            self.note(Wrong::Lost, 0, "has no outcome");
        }
    }
}

/// What a wait is for: it ends its operation as completed when it is taken, and must not be lost.
/// Without a record it may be lost: it is handed over in a call that a key may panic in.
#[derive(Debug)]
pub(crate) struct Value(pub(crate) Option<Arc<Record>>);

impl Value {
    pub(crate) fn of(record: &Arc<Record>) -> Self {
        Value(Some(record.clone()))
    }

    /// It reached the thread that waited.
    pub(crate) fn take(mut self) {
        self.0.take().into_iter().for_each(|record| record.end(Ending::Completed));
    }

    /// It came when the future had gone, and reached its hook.
    pub(crate) fn unclaimed(mut self) {
        self.0.take().into_iter().for_each(|record| record.end_unclaimed());
    }

    /// It was handed back, or its operation ended without it.
    pub(crate) fn back(mut self) {
        self.0 = None;
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.iter().for_each(|record| record.note(Wrong::Lost, 1, "its value was dropped"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn account(plant: Option<Plant>) -> Arc<Account> {
        let clock = JumpingClock::new();
        let books = Books::new(clock.clone(), plant).unwrap();
        Account::new(&books, Arc::new(clock))
    }

    /// Lost, doubled, early, otherwise wrong.
    fn wrong(account: &Account) -> [u64; 4] {
        account.close("a test");
        account.books.wrong().0
    }

    #[test]
    fn each_operation_has_one_outcome() {
        let account = account(None);
        let open = || account.open(Kind::Shared, Some(0)).record;
        open().end(Ending::Completed);
        let twice = open();
        twice.end(Outcome::Expired);
        twice.end(WaitError::Expired);
        drop(open());
        assert_eq!((wrong(&account), account.books.operations()), ([1, 1, 0, 0], 3));
        assert_eq!(account.books.endings()[0][..2], [1, 1]);
    }

    #[test]
    fn a_value_reaches_its_future_or_its_hook() {
        let account = account(None);
        let open = || account.open(Kind::Future, None).record;
        Value::of(&open()).take();
        let left = open();
        left.end(Ending::Dropped);
        Value::of(&left).unclaimed();
        assert_eq!(wrong(&account), [0; 4]);
        Value::of(&open()).unclaimed(); // its future is there
        let dropped = open();
        drop(Value::of(&dropped));
        assert_eq!(wrong(&account)[1], 1);
    }

    #[test]
    fn early_is_what_either_clock_says() {
        let account = account(None);
        let open = || account.open(Kind::Fresh, Some(HOUR_NS)).record;
        let (early, later, sooner) = (open(), open(), open());
        early.end(Ending::Expired);
        assert_eq!(account.books.wrong().0[2], 1);
        account.books.clock.forwards(Duration::from_nanos(HOUR_NS));
        open().end(Ending::Completed);
        sooner.reschedule(0, || true);
        sooner.end(Ending::Expired);
        later.reschedule(HOUR_NS, || false); // it was too late for that
        later.end(Ending::Expired);
        let rescheduled = open();
        account.books.clock.forwards(Duration::from_nanos(HOUR_NS));
        rescheduled.reschedule(HOUR_NS, || true);
        rescheduled.end(Ending::Expired);
        account.open(Kind::Fresh, None).record.end(Ending::Expired); // never
        assert_eq!(wrong(&account), [0, 0, 3, 0]);
    }

    #[test]
    fn what_is_planted_is_noticed() {
        let planted = |plant| {
            let account = account(Some(plant));
            for _ in 0..2000 {
                account.open(Kind::Shared, Some(0)).record.end(Ending::Expired);
            }
            wrong(&account)
        };
        assert_eq!(planted(Plant::Lost), [2, 0, 0, 0]);
        assert_eq!(planted(Plant::Double), [0, 2, 0, 0]);
        assert_eq!(planted(Plant::Early), [0, 0, 20, 0]);
        assert_eq!(planted(Plant::Leak), [0; 4]);
    }
}
