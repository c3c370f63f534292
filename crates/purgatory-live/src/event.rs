//! The content of one event, as JSON. A purgatory is its [`Snapshot`] with keys as text, a timer is
//! its [`TimerStats`] with the figures to draw them. Counts are totals; the page computes rates.

use std::time::Duration;

use purgatory::{DelayedOperation, Parked, Purgatory, Snapshot, Stats, Times, Waits, WatchKey};
use serde::Serialize;
use timer_core::{Timer, TimerStats};

use crate::text::{Show, shown};

/// The maximum number of keys shown of one operation.
const KEYS_MAX: usize = 6;

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

/// One observation of a purgatory.
#[derive(Serialize)]
pub(crate) struct PurgatoryView {
    name: String,
    stats: Stats,
    key_count: usize,
    busiest: Vec<KeyWaiters>,
    oldest: Vec<Operation>,
    under_check: Vec<Operation>,
    times: Times,
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
    keys: Vec<String>,
    keys_left_out: usize,
    age: f64,
    expires_in: Option<f64>,
    under_check: Option<f64>,
}

/// A timer or purgatory that a `Live` observes.
pub(crate) trait Source<View>: Send + Sync {
    /// Observes it, with at most `limit` keys and operations in each list.
    fn observe(&self, limit: usize) -> View;
}

impl Source<TimerView> for Timer {
    fn observe(&self, _limit: usize) -> TimerView {
        TimerView {
            name: self.name().to_owned(),
            now_s: Duration::from_nanos(self.driver().now_ns()).as_secs_f64(),
            tick_s: self.driver().config.tick.length().as_secs_f64(),
            stats: self.stats(),
        }
    }
}

/// A purgatory, and the function that writes its keys.
pub(crate) struct ShownPurgatory<K: WatchKey + Send, O: DelayedOperation + Send> {
    pub(crate) purgatory: Purgatory<K, O>,
    pub(crate) show: Box<Show<K>>,
}

impl<K, O> Source<PurgatoryView> for ShownPurgatory<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    fn observe(&self, limit: usize) -> PurgatoryView {
        PurgatoryView::of(self.purgatory.snapshot(limit), &*self.show)
    }
}

/// The waits of a form, and the function that writes their keys.
pub(crate) struct ShownWaits<K: WatchKey + Send> {
    pub(crate) waits: Waits<K>,
    pub(crate) show: Box<Show<K>>,
}

impl<K: WatchKey + Send> Source<PurgatoryView> for ShownWaits<K> {
    fn observe(&self, limit: usize) -> PurgatoryView {
        PurgatoryView::of(self.waits.snapshot(limit), &*self.show)
    }
}

impl PurgatoryView {
    fn of<K>(snapshot: Snapshot<K>, show: &Show<K>) -> PurgatoryView {
        // Keys become text, without a lock.
        let mut busiest = Vec::with_capacity(snapshot.busiest.len());
        for (key, waiters) in &snapshot.busiest {
            busiest.push(KeyWaiters {
                key: shown(key, show),
                waiters: *waiters,
            });
        }
        PurgatoryView {
            busiest,
            oldest: operations(&snapshot.oldest, show),
            under_check: operations(&snapshot.under_check, show),
            name: snapshot.name,
            stats: snapshot.stats,
            key_count: snapshot.key_count,
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
            keys: keys.map(|key| shown(key, show)).collect(),
            keys_left_out: parked.keys.len().saturating_sub(KEYS_MAX),
            age: parked.age.as_secs_f64(),
            expires_in: parked.expires_in.map(|time| time.as_secs_f64()),
            under_check: parked.under_check.map(|time| time.as_secs_f64()),
        }
    }
}
