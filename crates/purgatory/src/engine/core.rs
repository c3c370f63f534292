//! What all handles of a purgatory share: the rooms, the versions, the timer.
//!
//! A key's *room* is told by its hash; an operation's *first room* is that of its first key. Its
//! entry there is the task of the room's wheel, so that parking it and starting its timer are one
//! insertion, ending it and stopping its timer one removal.
//!
//! The paths are told in the files beside this one: [`park`](super::park), [`event`](super::event)
//! and [`complete`](super::complete).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64 as Count},
    },
    time::Duration,
};

use timer_core::{
    BuildError, Executor, SystemTimer, TimeHistogram, Timer, TimerHandle,
    driver::{Driver, Due, ShardGuard, Shards, contain, sync::Latch},
};

use crate::{
    engine::{nested::Offload, trace, versions::Versions},
    operation::{
        DelayedOperation, OperationId, Verdict,
        stats::{Parked, Stats},
        watches::WatchKey,
    },
    room::{CheckedOut, Ended, Room},
    sync::{AtomicU64, Limit, Mutex, Ordering, plain},
};

pub(crate) type RoomGuard<'a, K, O> = ShardGuard<'a, Room<K, O>>;

/// What a purgatory is built from.
pub(crate) struct Settings<K> {
    pub(crate) name: Arc<str>,
    /// Without one it gets a timer of its own.
    pub(crate) driver: Option<Arc<Driver>>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    /// Every callback runs on the executor, not only those of what expired.
    pub(crate) offload_all: bool,
    /// How many may be parked.
    pub(crate) permits: Option<Limit>,
    /// How heavy all that is parked may be together.
    pub(crate) weights: Option<Limit>,
    pub(crate) rooms: usize,
    /// How often an operation is checked without an event; `None` for never.
    pub(crate) recheck_every: Option<Duration>,
    /// There is a last check when time is up, and what it or a recheck completes is told.
    pub(crate) on_missed: Option<OnMissed<K>>,
}

/// The hook that is told of an operation that a check without an event completed.
pub(crate) type OnMissed<K> = Box<dyn Fn(&Parked<K>) + Send + Sync>;

pub(crate) struct Core<K, O> {
    /// Tells its operations' ids from those of other purgatories.
    pub(crate) number: u32,
    pub(crate) settings: Settings<K>,
    pub(crate) rooms: Shards<Room<K, O>>,
    pub(crate) versions: Versions,
    /// Counts what is parked, where order matters over the rooms.
    pub(crate) sequence: Option<AtomicU64>,
    /// What expired in this round of the timer.
    pub(crate) expired: Mutex<Due<Ended<K, O>>>,
    /// Operations to be checked without an event that this round of the timer found.
    pub(crate) rechecks: Mutex<Due<TimerHandle>>,
    /// Somebody asked for times.
    pub(crate) timed: AtomicBool,
    pub(crate) offload: Arc<Offload>,
    /// The driver's timer, when it is not shared.
    pub(crate) own_timer: Option<SystemTimer>,
    pub(crate) counts: SharedCounts,
    checking: trace::Checking,
    /// Callbacks of what a shutdown with a limit ended.
    pub(crate) closing: Latch,
    /// The number of `fail_all` calls: see [`single`](super::single).
    pub(super) sweeps: AtomicU64,
    /// How long callbacks waited for the executor, once the program has asked for it. Not the
    /// model's lock: nothing depends on it.
    pub(crate) callback_delay: OnceLock<plain::Mutex<TimeHistogram>>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// A purgatory attached to its timer.
    pub(crate) fn new(mut settings: Settings<K>) -> Result<Arc<Self>, BuildError> {
        static PURGATORIES: AtomicU32 = AtomicU32::new(0);
        let (driver, own_timer) = match settings.driver.take() {
            Some(driver) => (driver, None),
            None => {
                let timer = SystemTimer::builder().name(&*settings.name).build()?;
                (timer.driver(), Some(timer))
            }
        };
        let every = settings.recheck_every.filter(|_| O::CHECKED);
        settings.recheck_every = every.map(|every| every.max(driver.tick.length()));
        let core = Arc::new(Core {
            number: PURGATORIES.fetch_add(1, Ordering::Relaxed),
            rooms: driver.shards(settings.rooms, Room::new),
            versions: Versions::new(settings.rooms),
            sequence: driver.by_hand.then(|| AtomicU64::new(0)),
            expired: Mutex::new(Due::default()),
            rechecks: Mutex::new(Due::default()),
            timed: AtomicBool::new(false),
            offload: Arc::new(Offload { driver, executor: settings.executor.take() }),
            own_timer,
            settings,
            counts: SharedCounts::default(),
            checking: trace::Checking::default(),
            closing: Latch::default(),
            sweeps: AtomicU64::new(0),
            callback_delay: Default::default(),
        });
        let attached = core.driver().attach(&core, &core.rooms);
        attached.then_some(core).ok_or(BuildError::Closed)
    }

    /// The public name of an operation.
    pub(crate) fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId { handle, purgatory: self.number }
    }

    /// The operation of a public name, unless it is another purgatory's.
    pub(crate) fn handle(&self, id: OperationId) -> Option<TimerHandle> {
        (id.purgatory == self.number).then_some(id.handle)
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.offload.driver
    }

    /// Locks the room of the keys of this hash.
    #[inline]
    pub(crate) fn room_of(&self, hash: u64) -> RoomGuard<'_, K, O> {
        self.rooms.lock(self.versions.room(hash))
    }

    /// Locks the room of its first key.
    #[inline]
    pub(crate) fn first_room_of(&self, id: TimerHandle) -> RoomGuard<'_, K, O> {
        self.rooms.lock(id.shard())
    }

    pub(crate) fn count_at_once(&self) {
        self.counts.ended_at_once.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back the place and weight of an operation that has ended, if it was parked.
    #[inline]
    pub(crate) fn release_permit(&self, permit: Option<u64>) {
        let Some(weight) = permit else { return };
        self.settings.permits.iter().for_each(|permits| permits.release(1));
        self.settings.weights.iter().for_each(|weights| weights.release(weight as usize));
    }

    /// Counts a contained panic of a check or callback, and tells the timer's hook.
    pub(crate) fn report(&self, panicked: &str) {
        self.counts.rare.lock().panics += 1;
        trace::panicked(&self.settings.name, panicked);
        self.driver().report_panic(panicked);
    }

    pub(crate) fn report_if(&self, result: Result<(), String>) {
        if let Err(panicked) = result {
            self.report(&panicked);
        }
    }

    /// Runs an operation's check, with nothing locked.
    pub(crate) fn check(&self, operation: &mut O) -> Verdict {
        self.check_by(operation, O::try_complete)
    }

    /// Runs this check of an operation. A panic in it is contained, and reported.
    #[inline]
    pub(crate) fn check_by(
        &self,
        operation: &mut O,
        check: impl FnOnce(&mut O) -> bool,
    ) -> Verdict {
        let mut satisfied = false;
        if let Err(panicked) = contain(|| satisfied = self.run_check(operation, check)) {
            self.report(&panicked);
            Verdict::Panicked
        } else if satisfied {
            Verdict::Satisfied
        } else {
            Verdict::Unsatisfied
        }
    }

    fn run_check(&self, operation: &mut O, check: impl FnOnce(&mut O) -> bool) -> bool {
        self.checking.run(|| self.driver().now_ns(), || check(operation))
    }

    /// In debug builds, tells of checks that keep their threads for more than a second.
    pub(super) fn tell_stuck(&self) {
        self.checking.tell_stuck(&self.settings.name, || self.driver().now_ns());
    }

    /// Runs the checks of many, in order: one catch for all that do not panic.
    pub(crate) fn check_all(&self, held: &mut [CheckedOut<O>]) {
        let mut at = 0;
        while at < held.len() {
            let checked = contain(|| {
                for held in &mut held[at..] {
                    at += 1;
                    if self.run_check(&mut held.payload, O::try_complete) {
                        held.verdict = Verdict::Satisfied;
                    }
                }
            });
            if let Err(panicked) = checked {
                self.report(&panicked);
                held[at - 1].verdict = Verdict::Panicked;
            }
        }
    }

    /// Calls `act` for each item under the lock of its first room, which is kept for as long as the
    /// next item has the same.
    pub(crate) fn each_in_first_room<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        id: impl Fn(&T) -> TimerHandle,
        mut act: impl FnMut(&mut Room<K, O>, T),
    ) {
        let mut first_room: Option<RoomGuard<'_, K, O>> = None;
        for item in items {
            let id = id(&item);
            if first_room.as_ref().is_some_and(|first_room| first_room.number() != id.shard()) {
                first_room = None;
            }
            act(first_room.get_or_insert_with(|| self.first_room_of(id)), item);
        }
    }
}

/// Counts that no room's lock goes with. Not the model's atomics: nothing depends on them.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    /// Operations that ended without being parked.
    pub(crate) ended_at_once: Count,
    pub(crate) callbacks_waiting: Count,
    /// Rare counts: panics, missed events, refusals.
    pub(crate) rare: plain::Mutex<Stats>,
    /// The subscriber was told of the shutdown.
    pub(crate) told_closed: AtomicBool,
    /// What snapshots have seen.
    pub(crate) seen: plain::Mutex<Seen>,
    /// What has been handed to a recorder's histograms.
    #[cfg(feature = "metrics")]
    pub(crate) published: plain::Mutex<crate::operation::stats::Times>,
}

/// What snapshots remember from one to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Checks that the last one found under way, each with the nanosecond since when at least.
    pub(crate) checks: HashMap<TimerHandle, u64>,
    /// Every label so far, with how many are parked with it: a gauge that was set is set again.
    pub(crate) labels: BTreeMap<&'static str, usize>,
}
