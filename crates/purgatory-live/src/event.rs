//! What one event tells, as JSON. A purgatory is its [`Snapshot`] with keys as text, a timer its
//! [`TimerStats`] with what is needed to draw them. Totals, not rates: the page subtracts.

use std::time::Duration;

use purgatory::{DelayedOperation, Parked, Purgatory, Snapshot, Stats, Times, WatchKey};
use serde::Serialize;
use timer_core::{SystemTimer, Timer, TimerStats};

use crate::text::{Show, shown};

/// As many keys of one operation are shown.
const KEYS_MAX: usize = 6;

/// One look at everything.
#[derive(Serialize)]
pub(crate) struct Event {
    /// Seconds since the `Live` was made.
    pub(crate) at_s: f64,
    pub(crate) timers: Vec<TimerLook>,
    pub(crate) purgatories: Vec<PurgatoryLook>,
}

/// A timer.
#[derive(Serialize)]
pub(crate) struct TimerLook {
    name: String,
    /// The timer's own clock: where in its present bucket it is.
    now_s: f64,
    tick_s: f64,
    stats: TimerStats,
}

/// A purgatory.
#[derive(Serialize)]
pub(crate) struct PurgatoryLook {
    name: String,
    stats: Stats,
    key_count: usize,
    busiest: Vec<Busy>,
    oldest: Vec<Operation>,
    under_check: Vec<Operation>,
    times: Times,
}

#[derive(Serialize)]
struct Busy {
    key: String,
    waiters: usize,
}

/// A parked operation, times in seconds.
#[derive(Serialize)]
struct Operation {
    id: String,
    keys: Vec<String>,
    keys_left_out: usize,
    age: f64,
    expires_in: Option<f64>,
    under_check: Option<f64>,
}

/// What a `Live` looks at.
pub(crate) trait Source<Look>: Send + Sync {
    /// `limit` keys and operations of each list.
    fn look(&self, limit: usize) -> Look;
}

impl Source<TimerLook> for SystemTimer {
    fn look(&self, _limit: usize) -> TimerLook {
        TimerLook {
            name: self.name().to_owned(),
            now_s: Duration::from_nanos(self.driver().now_ns()).as_secs_f64(),
            tick_s: self.driver().tick.length().as_secs_f64(),
            stats: self.stats(),
        }
    }
}

/// A purgatory, and how its keys are written.
pub(crate) struct WithKeys<K: WatchKey + Send, O: DelayedOperation + Send> {
    pub(crate) purgatory: Purgatory<K, O>,
    pub(crate) show: Box<Show<K>>,
}

impl<K, O> Source<PurgatoryLook> for WithKeys<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    fn look(&self, limit: usize) -> PurgatoryLook {
        PurgatoryLook::of(self.purgatory.snapshot(limit), &*self.show)
    }
}

impl PurgatoryLook {
    fn of<K>(snapshot: Snapshot<K>, show: &Show<K>) -> PurgatoryLook {
        let Snapshot {
            name,
            stats,
            key_count,
            times,
            ..
        } = snapshot;
        let busy = |(key, waiters): (&K, usize)| Busy {
            key: shown(key, show),
            waiters,
        };
        let busiest = snapshot
            .busiest
            .iter()
            .map(|(key, waiters)| (key, *waiters));
        PurgatoryLook {
            name,
            stats,
            key_count,
            busiest: busiest.map(busy).collect(),
            oldest: operations(&snapshot.oldest, show),
            under_check: operations(&snapshot.under_check, show),
            times,
        }
    }
}

fn operations<K>(parked: &[Parked<K>], show: &Show<K>) -> Vec<Operation> {
    parked
        .iter()
        .map(|parked| Operation::of(parked, show))
        .collect()
}

impl Operation {
    fn of<K>(parked: &Parked<K>, show: &Show<K>) -> Operation {
        Operation {
            id: parked.id.to_string(),
            keys: parked
                .keys
                .iter()
                .take(KEYS_MAX)
                .map(|key| shown(key, show))
                .collect(),
            keys_left_out: parked.keys.len().saturating_sub(KEYS_MAX),
            age: parked.age.as_secs_f64(),
            expires_in: parked.expires_in.map(|left| left.as_secs_f64()),
            under_check: parked.under_check.map(|known| known.as_secs_f64()),
        }
    }
}
