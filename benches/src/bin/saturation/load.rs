//! A load at a steady rate: operations that expire, or events for waiters.

use std::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout};
use timer_core::{BuildError, Clock, SystemClock, SystemTimer, TimeHistogram, Timer};

use crate::{Step, step};

/// Parked under the keys of the events, and how long a check takes.
const WAITERS: usize = 100;
const CHECK: Work = Work::Compute(Duration::from_micros(100));

/// What a check or a callback does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Nothing,
    Compute(Duration),
    Block(Duration),
}

/// What arrives.
pub(crate) enum Load {
    /// Operations that expire. Each timer has a purgatory, workers (or none, and is inline), and an
    /// equal share of them.
    Expiries { timers: usize, workers: usize, work: Work },
    /// Events, of one thread, each for the waiters of one of the keys in turn. No check comes true.
    Events { keys: usize },
}

/// What the metrics showed, of those that the load concerns.
#[derive(Default)]
pub(crate) struct Seen {
    /// The most callbacks that waited at a time.
    pub(crate) waiting: u64,
    pub(crate) delay: TimeHistogram,
    /// The share of the time that the busiest reaper turned its wheels.
    pub(crate) turning: f64,
    /// The share of the time that checks took.
    pub(crate) checking: f64,
}

/// What the operations of a step share.
struct Book {
    clock: SystemClock,
    check: Work,
    callback: Work,
    /// When each was told that it expired, in nanoseconds; 0 before.
    told_ns: Vec<AtomicU64>,
}

struct Request {
    book: Arc<Book>,
    number: usize,
}

type Owner = (SystemTimer, Purgatory<usize, Request>);

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        self.book.work(self.book.check);
        false
    }

    fn on_complete(self, outcome: Outcome) {
        if outcome == Outcome::Expired {
            self.book.told_ns[self.number].store(self.book.clock.now_ns(), Relaxed);
            self.book.work(self.book.callback);
        }
    }
}

impl Book {
    fn new(check: Work, callback: Work, count: usize) -> Arc<Book> {
        let told_ns = (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Book { clock: SystemClock::new(), check, callback, told_ns })
    }

    /// A timer and a purgatory; what they time, they time from here on.
    fn owner(&self, workers: usize) -> Result<Owner, BuildError> {
        let timer = SystemTimer::builder().clock(self.clock).workers(workers);
        let timer = if workers == 0 { timer.inline().build()? } else { timer.build()? };
        let purgatory = Purgatory::builder("saturation").timer(&timer).build()?;
        purgatory.times();
        Ok((timer, purgatory))
    }

    fn work(&self, work: Work) {
        match work {
            Work::Nothing => {}
            Work::Compute(time) => {
                let until_ns = self.clock.now_ns() + time.as_nanos() as u64;
                while self.clock.now_ns() < until_ns {
                    spin_loop();
                }
            }
            Work::Block(time) => thread::sleep(time),
        }
    }

    fn pause_until(&self, moment_ns: u64) {
        thread::sleep(Duration::from_nanos(moment_ns.saturating_sub(self.clock.now_ns())));
    }
}

impl Load {
    /// Runs it at this rate, for so long.
    pub(crate) fn step(
        &self,
        rate: u64,
        window: Duration,
        shown: impl Fn(&Seen) -> f64,
    ) -> anyhow::Result<Step> {
        let count = ((rate as f64 * window.as_secs_f64()) as usize).max(1);
        let due_ns = |number: usize| (window.as_nanos() as usize * number / count) as u64;
        let (late_ns, seen) = match *self {
            Load::Events { keys } => events(keys, count, window, due_ns)?,
            Load::Expiries { timers, workers, work } => {
                let mut lead_ns = 50_000_000 + 500 * count as u64;
                loop {
                    let book = Book::new(Work::Nothing, work, count);
                    let owners =
                        (0..timers).map(|_| book.owner(workers)).collect::<Result<Vec<_>, _>>()?;
                    if let Some(base_ns) = park(&book, &owners, lead_ns, due_ns)? {
                        let seen = look(&book, &owners, base_ns, window);
                        owners.iter().for_each(|(timer, _)| _ = timer.shutdown(Duration::MAX));
                        let told = book.told_ns.iter().map(|told| told.load(Relaxed)).enumerate();
                        let late = told.map(|(at, told)| told.checked_sub(base_ns + due_ns(at)));
                        let late = late.collect::<Option<Vec<_>>>();
                        break (late.context("some were early, or did not expire")?, seen);
                    }
                    lead_ns *= 2;
                }
            }
        };
        Ok(step(window, &late_ns, shown(&seen)))
    }
}

/// Parks all; returns the moment from which on they are due, unless that has passed meanwhile.
fn park(
    book: &Arc<Book>,
    owners: &[Owner],
    lead_ns: u64,
    due_ns: impl Fn(usize) -> u64,
) -> anyhow::Result<Option<u64>> {
    let count = book.told_ns.len();
    let base_ns = book.clock.now_ns() + lead_ns;
    for number in 0..count {
        let (request, key) = (Request { book: book.clone(), number }, number % (count / 10 + 1));
        let timeout = Timeout::At(base_ns + due_ns(number));
        let (_, purgatory) = &owners[number % owners.len()];
        purgatory.try_complete_else_watch(request, &[key], timeout)?;
    }
    Ok((book.clock.now_ns() < base_ns).then_some(base_ns))
}

/// Looks at the metrics until the last is due, and then waits until all were told.
fn look(book: &Book, owners: &[Owner], base_ns: u64, window: Duration) -> Seen {
    let turned_s =
        || owners.iter().map(|(timer, _)| timer.stats().turns.sum_s()).collect::<Vec<_>>();
    let waiting = || owners.iter().map(|(_, waits)| waits.stats().callbacks_waiting).sum::<u64>();
    book.pause_until(base_ns);
    let (before, mut seen) = (turned_s(), Seen::default());
    while book.clock.now_ns() < base_ns + window.as_nanos() as u64 {
        thread::sleep(Duration::from_millis(10));
        seen.waiting = waiting().max(seen.waiting);
    }
    let (after, over_s) = (turned_s(), (book.clock.now_ns() - base_ns) as f64 / 1e9);
    let turning = before.iter().zip(after).map(|(before, after)| (after - before) / over_s);
    seen.turning = turning.fold(0.0, f64::max);
    while waiting() > 0 || owners.iter().any(|(_, purgatory)| !purgatory.is_empty()) {
        thread::sleep(Duration::from_millis(10));
    }
    owners.iter().for_each(|(_, purgatory)| seen.delay.add(&purgatory.times().callback_delay));
    seen
}

/// Raises each event when it is due, or late; returns how late each was over.
fn events(
    keys: usize,
    count: usize,
    window: Duration,
    due_ns: impl Fn(usize) -> u64,
) -> anyhow::Result<(Vec<u64>, Seen)> {
    let book = Book::new(CHECK, Work::Nothing, 0);
    let (_timer, purgatory) = book.owner(1)?;
    for number in 0..WAITERS {
        let request = Request { book: book.clone(), number };
        purgatory.try_complete_else_watch(request, &[number % keys], Timeout::Never)?;
    }
    let base_ns = book.clock.now_ns();
    let raise = |number| {
        book.pause_until(base_ns + due_ns(number));
        purgatory.check_and_complete(&(number % keys));
        book.clock.now_ns() - base_ns - due_ns(number)
    };
    let late_ns = (0..count).map(raise).collect();
    book.pause_until(base_ns + window.as_nanos() as u64);
    let over_s = (book.clock.now_ns() - base_ns) as f64 / 1e9;
    let checks = WAITERS + count * WAITERS / keys;
    ensure!(purgatory.stats().checks == checks as u64, "not {checks} checks");
    let checking = purgatory.times().check.sum_s() / over_s;
    Ok((late_ns, Seen { checking, ..Seen::default() }))
}
