//! The content of one event, as JSON. A purgatory is shown as its [`Snapshot`] with keys as text
//! and its last minute, a timer as its [`TimerStats`] with the figures to draw them. Counts are
//! totals; the page computes rates.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use purgatory::{
    DelayedOperation, Parked, Purgatory, ReplicaSets, Snapshot, Stats, Times, Waits, WatchKey,
    WatermarkValue,
};
use serde::Serialize;
use timer_core::{Timer, TimerStats};

use crate::{
    history::{History, Minute, Totals},
    text::{Show, shown},
};

/// The maximum number of keys shown of one operation.
const KEYS_MAX: usize = 6;
/// The maximum number of lagging members shown of one group.
const MEMBERS_MAX: usize = 6;

/// One observation of everything that a `Live` shows.
#[derive(Serialize)]
pub(crate) struct Event {
    /// Seconds since the `Live` was created.
    pub(crate) at_s: f64,
    pub(crate) timers: Vec<TimerView>,
    pub(crate) purgatories: Vec<PurgatoryView>,
}

/// One observation of a timer.
#[derive(Serialize)]
pub(crate) struct TimerView {
    name: String,
    /// Seconds on the timer's own clock, which give the position in the current bucket.
    now_s: f64,
    tick_s: f64,
    stats: TimerStats,
}

/// One observation of a purgatory or another form, and its last minute.
#[derive(Serialize)]
pub(crate) struct PurgatoryView {
    #[serde(flatten)]
    form: FormView,
    minute: Minute,
}

/// One observation of a form, with the user's values as text.
#[derive(Serialize)]
pub(crate) struct FormView {
    name: String,
    stats: Stats,
    max_parked: Option<u64>,
    key_count: usize,
    labels: Vec<LabelParked>,
    busiest: Vec<KeyWaiters>,
    oldest: Vec<Operation>,
    under_check: Vec<Operation>,
    /// `None` but for replica sets.
    lagging: Option<Vec<Group>>,
}

/// A label, and how many operations are parked with it.
#[derive(Serialize)]
struct LabelParked {
    label: &'static str,
    parked: usize,
}

/// A replica set that writes wait for, and its members that are behind the one that has most.
#[derive(Serialize)]
pub(crate) struct Group {
    group: String,
    watermark: String,
    members: Vec<Member>,
    members_left_out: usize,
}

/// A member that lags.
#[derive(Serialize)]
struct Member {
    member: String,
    value: String,
    /// The seconds for which it has lagged, at least.
    lags: f64,
}

/// A key, and how many operations wait under it.
#[derive(Serialize)]
struct KeyWaiters {
    key: String,
    waiters: usize,
}

/// A parked operation. Times are in seconds.
#[derive(Serialize)]
struct Operation {
    id: String,
    label: Option<&'static str>,
    keys: Vec<String>,
    keys_left_out: usize,
    age: f64,
    expires_in: Option<f64>,
    under_check: Option<f64>,
}

/// A purgatory or another form that a `Live` observes.
pub(crate) trait Source: Send + Sync {
    /// Observes the form, with at most `limit` keys and operations in each list.
    fn observe(&self, limit: usize) -> Observed;

    /// Returns the counts and times alone. O(shards × buckets).
    fn totals(&self) -> (Stats, Times);
}

/// One observation of a form, and the times that its history keeps.
pub(crate) struct Observed {
    form: FormView,
    times: Times,
}

/// A form, and its last minute. Clones of a `Live` share it.
pub(crate) struct Shown {
    source: Box<dyn Source>,
    /// Locked for a moment, never while the form is looked at.
    history: Mutex<History>,
}

impl Shown {
    pub(crate) fn new(source: impl Source + 'static) -> Shown {
        Shown {
            source: Box::new(source),
            history: Mutex::default(),
        }
    }

    /// Keeps a point of the history.
    pub(crate) fn record(&self, at_ns: u64) {
        let (stats, times) = self.source.totals();
        let totals = Totals {
            at_ns,
            stats,
            times,
        };
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.record(&totals);
    }

    /// Observes the form, and keeps a point of the history.
    pub(crate) fn observe(&self, at_ns: u64, limit: usize) -> PurgatoryView {
        let Observed { form, times } = self.source.observe(limit);
        let totals = Totals {
            at_ns,
            stats: form.stats,
            times,
        };
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.record(&totals);
        let minute = history.minute(&totals);
        drop(history);
        PurgatoryView { form, minute }
    }
}

impl TimerView {
    /// Observes a timer.
    pub(crate) fn of(timer: &Timer) -> TimerView {
        TimerView {
            name: timer.name().to_owned(),
            now_s: Duration::from_nanos(timer.driver().now_ns()).as_secs_f64(),
            tick_s: timer.driver().config.tick.length().as_secs_f64(),
            stats: timer.stats(),
        }
    }
}

/// A purgatory, and the function that writes its keys.
pub(crate) struct ShownPurgatory<K: WatchKey, O: DelayedOperation + Send> {
    pub(crate) purgatory: Purgatory<K, O>,
    pub(crate) show: Box<Show<K>>,
}

impl<K, O> Source for ShownPurgatory<K, O>
where
    K: WatchKey,
    O: DelayedOperation + Send,
{
    fn observe(&self, limit: usize) -> Observed {
        let snapshot = self.purgatory.snapshot(limit);
        Observed::of(snapshot, self.purgatory.max_parked(), &*self.show)
    }

    fn totals(&self) -> (Stats, Times) {
        (self.purgatory.stats(), self.purgatory.times())
    }
}

/// The waits of a form, and the function that writes their keys.
pub(crate) struct ShownWaits<K: WatchKey + Send> {
    pub(crate) waits: Waits<K>,
    pub(crate) show: Box<Show<K>>,
}

impl<K: WatchKey + Send> Source for ShownWaits<K> {
    fn observe(&self, limit: usize) -> Observed {
        let snapshot = self.waits.snapshot(limit);
        Observed::of(snapshot, self.waits.max_parked(), &*self.show)
    }

    fn totals(&self) -> (Stats, Times) {
        (self.waits.stats(), self.waits.times())
    }
}

/// Replica sets, and the function that writes their groups.
pub(crate) struct ShownReplicaSets<G: WatchKey, M: Send + 'static, V: WatermarkValue> {
    pub(crate) sets: ReplicaSets<G, M, V>,
    pub(crate) show: Box<Show<G>>,
}

impl<G, M, V> Source for ShownReplicaSets<G, M, V>
where
    G: WatchKey,
    M: Eq + Clone + Debug + Send + 'static,
    V: WatermarkValue + Debug,
{
    fn observe(&self, limit: usize) -> Observed {
        let waits = self.sets.waits();
        let snapshot = waits.snapshot(limit);
        // Look at the groups that most writes wait for: these writes are held back.
        let mut lagging = Vec::new();
        for (group, _) in &snapshot.busiest {
            lagging.extend(self.lagging(group));
        }
        let mut observed = Observed::of(snapshot, waits.max_parked(), &*self.show);
        observed.form.lagging = Some(lagging);
        observed
    }

    fn totals(&self) -> (Stats, Times) {
        let waits = self.sets.waits();
        (waits.stats(), waits.times())
    }
}

impl<G, M, V> ShownReplicaSets<G, M, V>
where
    G: WatchKey,
    M: Eq + Clone + Debug + Send + 'static,
    V: WatermarkValue + Debug,
{
    /// Returns the members of a group that lag; `None` if none do.
    fn lagging(&self, group: &G) -> Option<Group> {
        let watermark = self.sets.watermark(group)?;
        let lagging = self.sets.lagging(group);
        if lagging.is_empty() {
            return None;
        }
        let mut members = Vec::new();
        for (member, value, lagged_for) in lagging.iter().take(MEMBERS_MAX) {
            members.push(Member {
                member: shown(member, &M::fmt),
                value: shown(value, &V::fmt),
                lags: lagged_for.as_secs_f64(),
            });
        }
        Some(Group {
            group: shown(group, &*self.show),
            watermark: shown(&watermark, &V::fmt),
            members,
            members_left_out: lagging.len().saturating_sub(MEMBERS_MAX),
        })
    }
}

impl Observed {
    /// Makes an observation of a snapshot. Keys become text, without a lock.
    fn of<K>(snapshot: Snapshot<K>, max_parked: Option<u64>, show: &Show<K>) -> Observed {
        let mut busiest = Vec::with_capacity(snapshot.busiest.len());
        for (key, waiters) in &snapshot.busiest {
            busiest.push(KeyWaiters {
                key: shown(key, show),
                waiters: *waiters,
            });
        }
        let labels = snapshot.labels.iter();
        let labels = labels.map(|&(label, parked)| LabelParked { label, parked });
        let form = FormView {
            max_parked,
            busiest,
            labels: labels.collect(),
            oldest: operations(&snapshot.oldest, show),
            under_check: operations(&snapshot.under_check, show),
            lagging: None,
            name: snapshot.name,
            stats: snapshot.stats,
            key_count: snapshot.key_count,
        };
        Observed {
            form,
            times: snapshot.times,
        }
    }
}

fn operations<K>(parked: &[Parked<K>], show: &Show<K>) -> Vec<Operation> {
    let operation = |parked| Operation::of(parked, show);
    parked.iter().map(operation).collect()
}

impl Operation {
    fn of<K>(parked: &Parked<K>, show: &Show<K>) -> Operation {
        let keys = parked.keys.iter().take(KEYS_MAX);
        Operation {
            id: parked.id.to_string(),
            label: parked.label,
            keys: keys.map(|key| shown(key, show)).collect(),
            keys_left_out: parked.keys.len().saturating_sub(KEYS_MAX),
            age: parked.age.as_secs_f64(),
            expires_in: parked.expires_in.map(|time| time.as_secs_f64()),
            under_check: parked.under_check.map(|time| time.as_secs_f64()),
        }
    }
}
