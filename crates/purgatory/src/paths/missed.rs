//! What a purgatory keeps whose operations are checked once more when their time is up, to tell a
//! missed event from a race that is healthy. One without has none of it.
//!
//! An event is *under way* from before it raises its key's version until its last waiter was
//! checked and called back. A last check that comes true meanwhile is no miss, and none that finds
//! a version moved, a note left, or an event *announced*: deferred, or of a monitor's change.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64 as Count, Ordering::Relaxed},
    },
};

use timer_core::driver::{Due, contain};

use crate::{
    paths::{
        trace,
        versions::{KeyVersion, Versions, number},
    },
    room::CheckedOut,
    sync::{AtomicU64, Mutex, Ordering, VERSIONS},
    words::missed::MissedEvent,
};

type Hook<K> = Box<dyn Fn(&MissedEvent<K>) + Send + Sync>;

/// Whom to tell of a missed event.
pub(crate) struct OnMissed<K> {
    /// A key as text, for a `tracing` event.
    pub(crate) text: Option<fn(&[K]) -> String>,
    pub(crate) hook: Option<Hook<K>>,
}

impl<K> Default for OnMissed<K> {
    fn default() -> Self {
        OnMissed { text: None, hook: None }
    }
}

pub(crate) struct LastChecks<K, O> {
    /// What was checked out for its last check in this round of the timer.
    pub(crate) due: Mutex<Due<CheckedOut<O>>>,
    /// Events under way on the keys that share a version; and [`ANNOUNCED`].
    under_way: Arc<[AtomicU64]>,
    missed: Count,
    on_missed: OnMissed<K>,
}

/// An event under way, or announced, until this is dropped.
pub(crate) struct UnderWay<C: Deref<Target = [AtomicU64]>> {
    counts: C,
    at: usize,
}

impl<C: Deref<Target = [AtomicU64]>> UnderWay<C> {
    fn begin(counts: C, at: usize) -> Self {
        counts[at].fetch_add(1, Ordering::Relaxed); // a room's lock, or the monitor's, publishes it
        UnderWay { counts, at }
    }
}

impl<C: Deref<Target = [AtomicU64]>> Drop for UnderWay<C> {
    fn drop(&mut self) {
        self.counts[self.at].fetch_sub(1, Ordering::Release);
    }
}

/// Where changes of a monitor are counted whose events are not over.
const ANNOUNCED: usize = VERSIONS;

impl<K, O> LastChecks<K, O> {
    pub(crate) fn new(on_missed: OnMissed<K>) -> Self {
        let none = || AtomicU64::new(0);
        LastChecks {
            due: Mutex::new(Due::default()),
            under_way: std::iter::repeat_with(none).take(VERSIONS + 1).collect(),
            missed: Count::new(0),
            on_missed,
        }
    }

    /// An event on a key of this hash begins. To be called before its version is raised.
    pub(crate) fn event_begins(&self, hash: u64) -> UnderWay<&[AtomicU64]> {
        UnderWay::begin(&*self.under_way, number(hash))
    }

    /// The same, for one that is queued.
    pub(crate) fn event_queued(&self, hash: u64) -> UnderWay<Arc<[AtomicU64]>> {
        UnderWay::begin(self.under_way.clone(), number(hash))
    }

    /// A change begins whose events are to follow.
    pub(crate) fn announce(&self) -> UnderWay<&[AtomicU64]> {
        UnderWay::begin(&*self.under_way, ANNOUNCED)
    }

    /// The version of a key of this hash, unless an event on it is under way.
    pub(crate) fn quiet(&self, versions: &Versions, hash: u64) -> Option<KeyVersion> {
        let version = versions.read_hash(hash); // first: who has raised it is seen to be under way
        let quiet = self.none_at(number(hash)) || failpoint!(MissIgnoresEventsUnderWay);
        quiet.then_some(version)
    }

    pub(crate) fn nothing_announced(&self) -> bool {
        self.none_at(ANNOUNCED) || failpoint!(MissIgnoresAnnounced)
    }

    fn none_at(&self, at: usize) -> bool {
        self.under_way[at].load(Ordering::Acquire) == 0
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Counts a missed event, and tells of it. With nothing locked.
    pub(crate) fn report_missed(
        &self,
        purgatory: &str,
        missed: &MissedEvent<K>,
        report: impl FnOnce(&timer_core::Panicked),
    ) {
        self.missed.fetch_add(1, Relaxed);
        trace::missed(purgatory, || self.on_missed.text.map(|text| text(&missed.keys)));
        if let Some(hook) = &self.on_missed.hook
            && let Err(panicked) = contain(|| hook(missed))
        {
            report(&panicked);
        }
    }
}
