//! A world: a timer on the injected clock, and all that can be parked in on it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use purgatory::{BoxedOperation, Monitor, Purgatory, Replies, Watermarks};
use timer_core::{SystemTimer, TickLength, Timer};

use crate::{books::Books, inject::Stall};

/// Keys that many share; those of other sorts of keys lie above.
pub(crate) const SHARED_KEYS: u64 = 1000;
/// Keys of watermarks, and of the monitor's state.
pub(crate) const LEVEL_KEYS: u64 = 100;

/// The sorts of keys that are not shared.
pub(crate) const LEVELS: u64 = 1 << 32;
pub(crate) const CHAIN: u64 = 3 << 32;
/// Keys that are used once: this, and the number of their operation.
pub(crate) const FRESH: u64 = 1 << 40;

/// How often waits are checked without an event, where they are.
const RECHECK_EVERY: Duration = Duration::from_millis(200);

/// What the monitor keeps: how much there is to take of each thing.
pub(crate) type Shelf = Vec<u64>;

/// A timer, and what is on it. Its fields go in this order.
pub(crate) struct World {
    pub(crate) plain: Purgatory<u64, BoxedOperation>,
    pub(crate) monitor: Monitor<u64, Shelf>,
    pub(crate) replies: Replies<u64, u64>,
    pub(crate) watermarks: Watermarks<u64>,
    timer: SystemTimer,
    pub(crate) stall: Stall,
    pub(crate) books: Arc<Books>,
    /// The values of the level keys of `plain`, which only rise.
    pub(crate) levels: Box<[AtomicU64]>,
    /// What was put on the shelf, and what was taken by waits that ended.
    pub(crate) put: AtomicU64,
    pub(crate) taken: AtomicU64,
}

impl World {
    /// A world; its number says how it is built: the timer's tick and workers, where callbacks run,
    /// whether there are rechecks, last checks and bounds.
    pub(crate) fn new(number: u64, books: &Arc<Books>) -> anyhow::Result<Arc<Self>> {
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
        let mut plain = Purgatory::builder("plain").timer(&timer);
        if number % 2 == 1 {
            plain = plain
                .callbacks_on_executor()
                .max_parked(40_000)
                .max_weight(80_000);
        }
        if number % 3 == 1 {
            plain = plain.check_at_expiry(|_| ()).recheck_every(RECHECK_EVERY);
        }
        let monitor = Purgatory::builder("monitor")
            .timer(&timer)
            .recheck_every(RECHECK_EVERY);
        let monitor = monitor.check_at_expiry(|_| ()).build()?;
        Ok(Arc::new(World {
            plain: plain.build()?,
            monitor: Monitor::with(monitor, vec![0; LEVEL_KEYS as usize]),
            replies: Purgatory::builder("replies").timer(&timer).build()?.into(),
            watermarks: Purgatory::builder("watermarks")
                .timer(&timer)
                .build()?
                .into(),
            stall,
            books: books.clone(),
            timer,
            levels: (0..LEVEL_KEYS).map(|_| AtomicU64::new(0)).collect(),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }))
    }

    /// The value of a level key.
    pub(crate) fn level(&self, key: u64) -> u64 {
        self.levels[key as usize].load(SeqCst)
    }

    /// All but the replies'.
    fn purgatories(&self) -> [&Purgatory<u64, BoxedOperation>; 3] {
        [
            &self.plain,
            self.monitor.purgatory(),
            self.watermarks.purgatory(),
        ]
    }

    /// Ends everything that is parked, and leaves the world open.
    pub(crate) fn end_all(&self) {
        self.stall.end();
        self.replies.fail_all("over");
        for purgatory in self.purgatories() {
            purgatory.cancel_all("over");
        }
    }

    /// Looks at everything as a scrape or a debug page does.
    pub(crate) fn look(&self) {
        for purgatory in self.purgatories() {
            let _counted = (purgatory.stats(), purgatory.times(), purgatory.snapshot(5));
        }
        let _counted = (self.replies.purgatory().stats(), self.timer.stats());
    }

    /// Checks that nothing is left. To be called once everything has ended.
    pub(crate) fn check_empty(&self) -> anyhow::Result<()> {
        for purgatory in self.purgatories() {
            let left = [purgatory.len(), purgatory.watched(), purgatory.keys()];
            ensure!(left == [0; 3], "{left:?} parked, watched and keys are left");
            let stats = purgatory.stats();
            let ended = stats.completed + stats.expired + stats.cancelled;
            ensure!(
                stats.parked_total == ended,
                "counts do not add up: {stats:?}"
            );
            ensure!(stats.weight == 0, "a weight of {} is left", stats.weight);
        }
        let replies = self.replies.purgatory().len();
        ensure!(replies == 0, "{replies} replies are left");
        let left: u64 = self.monitor.read(|shelf| shelf.iter().sum());
        let (put, taken) = (self.put.load(SeqCst), self.taken.load(SeqCst));
        ensure!(
            put == taken + left,
            "{put} were put on the shelf, {taken} taken, {left} left"
        );
        Ok(())
    }

    /// Closes the world in one of three ways. An operation that a check or job holds up may end
    /// later; the [`Closed`] tells.
    pub(crate) fn close(self: Arc<Self>, random: &mut Rng) -> Closed {
        let limit = Duration::from_millis(1);
        match random.u32(0..3) {
            0 => {
                self.purgatories()
                    .into_iter()
                    .for_each(|all| _ = all.shutdown(limit));
                self.replies.purgatory().shutdown(limit);
                self.timer.shutdown(limit);
            }
            1 => {
                self.plain.shutdown(limit); // which may not suffice
                self.timer.shutdown(limit);
            }
            _ => {} // its last handles go, wherever they are
        }
        Closed {
            world: Arc::downgrade(&self),
            stall: self.stall.clone(),
        }
    }
}

/// A world that was closed.
pub(crate) struct Closed {
    world: Weak<World>,
    pub(crate) stall: Stall,
}

impl Closed {
    /// True when no thread has it in hands any more.
    pub(crate) fn is_over(&self) -> bool {
        self.world.strong_count() == 0
    }
}
