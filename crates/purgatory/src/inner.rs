//! What all handles of a purgatory share: the home shards, the watch registry, the timer.
//!
//! An operation's *home* is one shard of the timer wheels: its entry is the wheel's task, so that
//! parking it and starting its timer are one insertion, ending it and stopping its timer one
//! removal. Which shard: some bits by the parking thread, so that threads do not meet, and two by
//! the key, so that who completes does not always meet who parks.
//!
//! The paths are told in the files beside this one: [`park`](super::park), [`event`](super::event)
//! and [`ending`](super::ending).

use std::{
    hash::Hash,
    sync::{Arc, Weak, atomic::AtomicU32},
};

use crossbeam_utils::CachePadded;
use timer_core::{
    Driver, Limit, Panicked, ShardGuard, Shards, SystemTimer, TimerClosed, TimerHandle, Turns,
    contain,
};

use crate::{
    entry::{Entry, Verdict},
    event::{Deferred, Held},
    frame::Elsewhere,
    operation::{DelayedOperation, OperationId, Outcome},
    snapshot::Checks,
    stats::{Counts, SharedCounts},
    sync::{AtomicU64, Mutex, Ordering, thread_slot},
    times::Timed,
    trace,
    watch::Registry,
};

/// What else is under a home shard's lock.
#[derive(Debug, Default)]
pub(crate) struct Home {
    /// Set before the shard is emptied for good, tested before anything is put in.
    pub(crate) closed: bool,
    /// Watches of the operations at home here.
    pub(crate) watches: usize,
    pub(crate) counts: Counts,
    /// Once somebody has asked for it.
    pub(crate) timed: Option<Box<Timed>>,
}

impl Home {
    /// Counts an operation out.
    pub(crate) fn departed(&mut self, watches: usize, outcome: &Outcome) {
        self.watches -= watches;
        self.counts.ended(outcome);
    }
}

pub(crate) type HomeGuard<'a, O> = ShardGuard<'a, Entry<O>, Home>;

/// What a purgatory is built from.
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) all_elsewhere: bool,
    pub(crate) own_timer: Option<SystemTimer>,
    pub(crate) max_parked: Option<usize>,
}

pub(crate) struct Inner<K, O> {
    /// Tells its operations' ids from those of other purgatories.
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    pub(crate) homes: Shards<Entry<O>, Home>,
    pub(crate) watches: Registry<K>,
    pub(crate) elsewhere: Arc<Elsewhere>,
    /// Every callback runs elsewhere, not only those of what expired.
    pub(crate) all_elsewhere: bool,
    /// The driver's timer, when it is not shared.
    pub(crate) own_timer: Option<SystemTimer>,
    /// Operations that ended without being parked, by the thread's slot.
    pub(crate) at_once: Box<[CachePadded<AtomicU64>]>,
    pub(crate) counts: SharedCounts,
    /// How many may be parked.
    pub(crate) permits: Option<Limit>,
    /// Checks that the last snapshot found under way, and since when.
    pub(crate) checks_known: Mutex<Checks>,
    pub(crate) deferred: Mutex<Deferred<K>>,
    #[cfg(feature = "metrics")]
    pub(crate) published: crate::metrics::Published,
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// A purgatory attached to its timer.
    pub(crate) fn new(settings: Settings) -> Result<Arc<Self>, TimerClosed> {
        let Settings { name, elsewhere, all_elsewhere, own_timer, max_parked } = settings;
        let homes = Shards::new(&*elsewhere.driver);
        let counter = || CachePadded::new(AtomicU64::new(0));
        static PURGATORIES: AtomicU32 = AtomicU32::new(0);
        let inner = Arc::new(Inner {
            number: PURGATORIES.fetch_add(1, Ordering::Relaxed),
            name,
            at_once: std::iter::repeat_with(counter).take(homes.count()).collect(),
            homes,
            watches: Registry::new(),
            elsewhere: Arc::new(elsewhere),
            all_elsewhere,
            own_timer,
            counts: SharedCounts::default(),
            permits: max_parked.map(Limit::new),
            checks_known: Mutex::new(Checks::new()),
            deferred: Mutex::new(Deferred::default()),
            #[cfg(feature = "metrics")]
            published: Default::default(),
        });
        let turns: Weak<dyn Turns> = Arc::downgrade(&inner) as _;
        inner.driver().attach(inner.homes.bell(), turns)?;
        Ok(inner)
    }

    /// The public name of an operation.
    pub(crate) fn id(&self, handle: TimerHandle) -> OperationId {
        OperationId { handle, purgatory: self.number }
    }

    /// The operation of a public name, unless it is another purgatory's.
    pub(crate) fn handle(&self, id: OperationId) -> Option<TimerHandle> {
        (id.purgatory == self.number).then_some(id.handle)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.elsewhere.driver
    }

    /// The home shard for an operation parked by this thread, first under a key of this hash.
    pub(crate) fn home_for(&self, hash: u64) -> usize {
        thread_slot() << 2 | (hash & 3) as usize
    }

    pub(crate) fn count_at_once(&self) {
        let slot = thread_slot() & (self.at_once.len() - 1);
        self.at_once[slot].fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back the permits of operations that have departed.
    pub(crate) fn release_permits(&self, count: usize) {
        if let Some(permits) = &self.permits {
            permits.release(count);
        }
    }

    /// Counts a contained panic of a check or callback, and tells the timer's hook.
    pub(crate) fn report(&self, panicked: &Panicked) {
        self.counts.panics.fetch_add(1, Ordering::Relaxed);
        trace::panicked(&self.name, panicked);
        self.driver().report_panic(panicked);
    }

    pub(crate) fn report_if(&self, result: Result<(), Panicked>) {
        if let Err(panicked) = result {
            self.report(&panicked);
        }
    }

    /// Runs an operation's check, with nothing locked.
    pub(crate) fn check(&self, operation: &mut O) -> Verdict {
        let mut satisfied = false;
        if let Err(panicked) = contain(|| satisfied = operation.try_complete()) {
            self.report(&panicked);
            Verdict::Panicked
        } else if satisfied {
            Verdict::Satisfied
        } else {
            Verdict::Unsatisfied
        }
    }

    /// Runs the checks of many, in order: one catch for all that do not panic.
    pub(crate) fn check_all(&self, held: &mut [Held<O>]) {
        let mut at = 0;
        while at < held.len() {
            let checked = contain(|| {
                for held in &mut held[at..] {
                    at += 1;
                    if held.payload.try_complete() {
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

    /// Calls `act` for each item under the lock of its home, which is kept for as long as the next
    /// item has the same.
    pub(crate) fn each_at_home<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        id: impl Fn(&T) -> TimerHandle,
        mut act: impl FnMut(&mut HomeGuard<'_, O>, T),
    ) {
        let mut home: Option<HomeGuard<'_, O>> = None;
        for item in items {
            let shard = id(&item).shard();
            if home.as_ref().is_some_and(|home| home.number() != shard) {
                home = None;
            }
            act(home.get_or_insert_with(|| self.homes.lock(shard)), item);
        }
    }
}
