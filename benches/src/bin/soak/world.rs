//! A world: a timer on the injected clock, and everything in which operations can be parked.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use purgatory::{BoxedOperation, DelayedOperation, Monitor, Purgatory, Replies, Stats, Watermarks};
use timer_core::{SystemTimer, TickLength};

use crate::{books::Books, inject::Stall};

/// The number of keys that many operations share. Keys of other sorts are above them.
pub(crate) const SHARED_KEYS: u64 = 1000;
/// The number of keys of watermarks, and of the monitor's state.
pub(crate) const LEVEL_KEYS: u64 = 100;

/// The first key with a watermark in `plain`.
pub(crate) const LEVELS: u64 = 1 << 32;
/// The key of chains.
pub(crate) const CHAIN: u64 = 3 << 32;
/// The first key that is used once: the number of its operation is added.
pub(crate) const FRESH: u64 = 1 << 40;

/// The interval of rechecks, in worlds that have them.
const RECHECK_EVERY: Duration = Duration::from_millis(200);

/// The state of the monitor: by key, the number of things that can be taken.
pub(crate) type Shelf = Vec<u64>;

/// A timer, and what is on it. Fields are dropped in this order.
pub(crate) struct World {
    pub(crate) plain: Purgatory<u64, BoxedOperation>,
    pub(crate) monitor: Monitor<u64, Shelf>,
    pub(crate) replies: Replies<u64, u64>,
    pub(crate) watermarks: Watermarks<u64>,
    timer: SystemTimer,
    pub(crate) stall: Stall,
    pub(crate) books: Arc<Books>,
    /// The watermarks of `plain`, which only advance.
    pub(crate) levels: Box<[AtomicU64]>,
    /// The number of things put on the shelf.
    pub(crate) put: AtomicU64,
    /// The number of things taken by waits that have ended.
    pub(crate) taken: AtomicU64,
}

impl World {
    /// Creates a world. Its number selects the timer's tick and workers, where callbacks run, and
    /// whether there are rechecks, last checks and bounds.
    pub(crate) fn new(number: u64, books: &Arc<Books>) -> anyhow::Result<Arc<Self>> {
        // The timer, with an executor that stalls.
        let name = format!("world {number}");
        let workers = 1 + usize::from(number % 3 == 2);
        let stall = Stall::new(&name, workers)?;
        let tick = Duration::from_millis(if number % 4 == 3 { 5 } else { 1 });
        let timer = SystemTimer::builder()
            .name(&*name)
            .clock(books.clock.clone())
            .tick(TickLength::new(tick).context("a legal tick")?)
            .executor(stall.clone())
            .build()?;

        // The plain purgatory, with the settings of this number.
        let mut plain = Purgatory::builder("plain").timer(&timer);
        if number % 2 == 1 {
            plain = plain.callbacks_on_executor().max_parked(40_000);
        }
        if number % 3 == 1 {
            plain = plain.check_at_expiry(|_| ()).recheck_every(RECHECK_EVERY);
        }

        // Everything else on the same timer.
        let monitor = Purgatory::builder("monitor")
            .timer(&timer)
            .recheck_every(RECHECK_EVERY)
            .check_at_expiry(|_| ())
            .build()?;
        let replies = Replies::builder("replies").timer(&timer).build()?;
        Ok(Arc::new(World {
            plain: plain.build()?,
            monitor: Monitor::over(monitor, vec![0; LEVEL_KEYS as usize]),
            replies,
            watermarks: Watermarks::builder("watermarks").timer(&timer).build()?,
            stall,
            books: books.clone(),
            timer,
            levels: (0..LEVEL_KEYS).map(|_| AtomicU64::new(0)).collect(),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }))
    }

    /// Returns the watermark of a key of `plain`.
    pub(crate) fn level(&self, key: u64) -> u64 {
        self.levels[key as usize].load(SeqCst)
    }

    /// Returns the purgatories of boxed operations.
    fn purgatories(&self) -> [&Purgatory<u64, BoxedOperation>; 2] {
        [&self.plain, self.monitor.purgatory()]
    }

    /// Ends everything that is parked, and leaves the world open.
    pub(crate) fn end_all(&self) {
        // Jobs that are held would hold operations, too.
        self.stall.end();
        self.replies.fail_all("over");
        for purgatory in self.purgatories() {
            purgatory.cancel_all("over");
        }
        self.watermarks.waits().cancel_all("over");
    }

    /// Inspects everything, as a scrape or a debug page does.
    pub(crate) fn inspect(&self) {
        for purgatory in self.purgatories() {
            inspect(purgatory);
        }
        let watermarks = self.watermarks.waits();
        _ = watermarks.stats();
        _ = watermarks.times();
        _ = watermarks.snapshot(5);
        _ = self.replies.waits().stats();
        _ = self.timer.stats();
    }

    /// Checks that nothing remains. Call it after everything has ended.
    pub(crate) fn check_empty(&self) -> anyhow::Result<()> {
        // No operation, watch or key; and the counts add up.
        for purgatory in self.purgatories() {
            ensure_empty(purgatory)?;
        }
        let watermarks = self.watermarks.waits();
        ensure_none_remain([watermarks.len(), watermarks.keys()], &watermarks.stats())?;
        let replies = self.replies.waits().len();
        ensure!(replies == 0, "{replies} replies remain");

        // A number that is not on the shelf was taken by a wait that got it.
        let remaining: u64 = self.monitor.read(|shelf| shelf.iter().sum());
        let put = self.put.load(SeqCst);
        let taken = self.taken.load(SeqCst);
        ensure!(
            put == taken + remaining,
            "{put} were put on the shelf, {taken} taken, {remaining} remain"
        );
        Ok(())
    }

    /// Closes the world in one of three ways. An operation that a check or job delays may end
    /// later: see [`Closed::is_over`].
    pub(crate) fn close(self: Arc<Self>, random: &mut Rng) -> Closed {
        // Shut down everything, or one purgatory and the timer, or drop the handles.
        let limit = Duration::from_millis(1);
        match random.u32(0..3) {
            0 => {
                for purgatory in self.purgatories() {
                    purgatory.shutdown(limit);
                }
                self.watermarks.waits().shutdown(limit);
                self.replies.waits().shutdown(limit);
                self.timer.shutdown(limit);
            }
            1 => {
                // The limit may be too short for it.
                self.plain.shutdown(limit);
                self.timer.shutdown(limit);
            }
            // Its last handles are dropped, on any thread.
            _ => {}
        }
        Closed {
            world: Arc::downgrade(&self),
            stall: self.stall.clone(),
        }
    }
}

/// Inspects a purgatory, as a scrape or a debug page does.
fn inspect<O: DelayedOperation>(purgatory: &Purgatory<u64, O>) {
    _ = purgatory.stats();
    _ = purgatory.times();
    _ = purgatory.snapshot(5);
}

/// Checks that nothing remains in a purgatory, and that its counts add up.
fn ensure_empty<O: DelayedOperation>(purgatory: &Purgatory<u64, O>) -> anyhow::Result<()> {
    let watched = purgatory.watched();
    ensure!(watched == 0, "{watched} watches remain");
    ensure_none_remain([purgatory.len(), purgatory.keys()], &purgatory.stats())
}

/// Checks that no operations and no keys remain, and that the counts add up.
fn ensure_none_remain(remaining: [usize; 2], stats: &Stats) -> anyhow::Result<()> {
    ensure!(
        remaining == [0; 2],
        "{remaining:?} operations and keys remain"
    );
    let ended = stats.completed + stats.expired + stats.cancelled;
    ensure!(
        stats.parked_total == ended,
        "counts do not add up: {stats:?}"
    );
    Ok(())
}

/// A world that was closed.
pub(crate) struct Closed {
    world: Weak<World>,
    pub(crate) stall: Stall,
}

impl Closed {
    /// Returns whether no thread uses the world any more.
    pub(crate) fn is_over(&self) -> bool {
        self.world.strong_count() == 0
    }
}
