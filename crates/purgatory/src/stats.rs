//! The counts of a purgatory, as numbers to look at.

use std::{fmt, time::Duration};

use timer_core::TimeHistogram;

use crate::operation::{CancelReason, OperationId, Outcome, RefusedReason};

/// The counts of a purgatory. Exact when nothing moves.
///
/// A field has the name of its metric or that metric's label, so it does not end in `_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Operations parked now, those under check included.
    pub parked: u64,
    /// Watches of what is parked now: an operation has one for each of its keys and one for each of
    /// its watermarks, met or not.
    pub watched: u64,
    /// How heavy they are together, and those over with their callback still to come; 0 without
    /// [`max_weight`](crate::Builder::max_weight).
    pub weight: u64,
    /// Operations ever parked: the sum of `parked` and the three ends below.
    pub parked_total: u64,
    /// Parked operations that ended as Completed.
    pub completed: u64,
    /// Parked operations that ended as Expired.
    pub expired: u64,
    /// Parked operations that ended as Cancelled, for whatever reason.
    pub cancelled: u64,
    /// Those of them that a shutdown ended.
    pub cancelled_by_shutdown: u64,
    /// Those of them that ended as the last handle was dropped.
    pub cancelled_by_drop: u64,
    /// Those of them whose check panicked.
    pub cancelled_by_panic: u64,
    /// Operations that ended without being parked: their first check came true (nearly always),
    /// or panicked, or their timeout was zero.
    pub ended_at_once: u64,
    /// Checks and callbacks that panicked.
    pub panics: u64,
    /// Checks: the first of each operation, those for events, rechecks and last checks.
    pub checks: u64,
    /// Operations whose condition had come true without an event: found by a
    /// [recheck](crate::Builder::recheck_every) or their
    /// [last check](crate::Builder::check_at_expiry), so 0 without these.
    pub missed_events: u64,
    /// Events, raised by anybody: plain ones and rises of watermarks, those on keys without waiters
    /// too.
    pub events: u64,
    /// Operations that were handed back instead of being parked, for want of a key.
    pub refused_no_keys: u64,
    /// Operations that were handed back after shutdown.
    pub refused_closed: u64,
    /// Operations that were handed back because as many were parked as may be.
    pub refused_full: u64,
    /// Operations that were handed back because all would have been too heavy together.
    pub refused_too_heavy: u64,
    /// Operations that were handed back for more watermarks to be counted than one can have.
    pub refused_too_many_watermarks: u64,
    /// Callbacks and rechecks handed to the executor that have not begun: of what expired, or all
    /// ([`callbacks_on_executor`](crate::Builder::callbacks_on_executor)). Not those beyond the
    /// first 1024 that were queued behind one call.
    pub callbacks_waiting: u64,
}

impl Stats {
    /// Counts a refusal, and the first check that came before.
    pub(crate) fn refused(&mut self, reason: RefusedReason, checked: bool) {
        let count = match reason {
            RefusedReason::NoKeys => &mut self.refused_no_keys,
            RefusedReason::Closed => &mut self.refused_closed,
            RefusedReason::Full { .. } => &mut self.refused_full,
            RefusedReason::TooHeavy { .. } => &mut self.refused_too_heavy,
            RefusedReason::TooManyWatermarks { .. } => &mut self.refused_too_many_watermarks,
            _ => return, // of what no operation was made for
        };
        *count += 1;
        self.checks += u64::from(checked && reason != RefusedReason::NoKeys);
    }
}

/// The times that operations waited, by outcome, and the lateness of the expired. Kept from the
/// first call that asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// From being parked to ending as Completed.
    pub completed: TimeHistogram,
    /// From being parked to ending as Expired.
    pub expired: TimeHistogram,
    /// From being parked to ending as Cancelled.
    pub cancelled: TimeHistogram,
    /// From its deadline, rounded up to a tick, until what expired was taken off the wheel.
    pub lateness: TimeHistogram,
    /// From being handed to the executor until a callback, recheck or last check began.
    pub callback_delay: TimeHistogram,
}

/// The oldest operations, the checks under way, the keys and the counts of a purgatory. Made by
/// [`Purgatory::snapshot`](crate::Purgatory::snapshot). With the feature `serde` it can be
/// serialised, with durations in seconds.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The purgatory's name.
    pub name: String,
    /// Counts: what is parked, and why operations ended.
    pub stats: Stats,
    /// How many keys have waiters.
    pub key_count: usize,
    /// The keys with the most waiters, most first, each with how many watches it has, counted as by
    /// [`Purgatory::waiters`](crate::Purgatory::waiters).
    pub busiest: Vec<(K, usize)>,
    /// The keys that have had waiters and no event for longest, longest first: since the first
    /// snapshot, or `publish`, after the last event or the first waiter, to 50 ms.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_keys_with_seconds"))]
    pub quietest: Vec<(K, Duration)>,
    /// How many are parked with each [label](crate::Watches::labelled), most first.
    pub labels: Vec<(&'static str, usize)>,
    /// What has been parked for longest, longest first.
    pub oldest: Vec<Parked<K>>,
    /// Operations under check, by how long that is known to go on, longest first. A check that
    /// never returns shows up here, and its operation cannot expire.
    pub under_check: Vec<Parked<K>>,
    /// How long operations waited. Counted from the first snapshot, or
    /// [`times`](crate::Purgatory::times), on.
    pub times: Times,
}

/// A parked operation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Parked<K> {
    /// Its name, to cancel or complete it by.
    pub id: OperationId,
    /// Its [label](crate::Watches::labelled), if it has one.
    pub label: Option<&'static str>,
    /// The keys it still waits for, one for each watch. A watermark that was met and counted is
    /// none.
    pub keys: Vec<K>,
    /// How long it has been parked, to the microsecond.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds"))]
    pub age: Duration,
    /// How long until it expires, to the timer's tick; zero when it is due, `None` when it never
    /// does.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub expires_in: Option<Duration>,
    /// When it is under check: for how long at least, which is since the first snapshot that found
    /// it in this check.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub under_check: Option<Duration>,
}

impl<K: fmt::Debug> fmt::Display for Snapshot<K> {
    /// A few lines that tell a person what hangs: counts, labels, keys, operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats {
            parked,
            weight,
            completed,
            expired,
            cancelled,
            missed_events,
            ..
        } = self.stats;
        let Snapshot {
            name, key_count, ..
        } = self;
        writeln!(
            f,
            "{name}: {parked} parked under {key_count} keys, of weight {weight}"
        )?;
        write!(
            f,
            "  before: {completed} completed, {expired} expired, {cancelled} cancelled, "
        )?;
        writeln!(f, "{missed_events} events missed")?;
        for (label, count) in &self.labels {
            writeln!(f, "  label {label}: {count}")?;
        }
        for (key, waiters) in &self.busiest {
            writeln!(f, "  key {key:?}: {waiters} waiters")?;
        }
        // A key that the first snapshot has just found is not quiet yet.
        for (key, quiet) in self.quietest.iter().filter(|(_, quiet)| !quiet.is_zero()) {
            writeln!(f, "  key {key:?}: no event for {quiet:?}")?;
        }
        self.oldest
            .iter()
            .try_for_each(|parked| writeln!(f, "  oldest: {parked}"))?;
        self.under_check
            .iter()
            .try_for_each(|parked| writeln!(f, "  under check: {parked}"))
    }
}

impl<K: fmt::Debug> fmt::Display for Parked<K> {
    /// One line: id, label, keys, times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parked {
            id,
            label,
            keys,
            age,
            expires_in,
            under_check,
        } = self;
        write!(f, "{id}")?;
        label.iter().try_for_each(|label| write!(f, " {label}"))?;
        write!(f, " under {keys:?} for {age:?}")?;
        match expires_in {
            Some(expires_in) => write!(f, ", expires in {expires_in:?}")?,
            None => f.write_str(", never expires")?,
        }
        under_check
            .iter()
            .try_for_each(|known| write!(f, ", under check for {known:?} at least"))
    }
}

#[cfg(feature = "serde")]
fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(feature = "serde")]
fn as_keys_with_seconds<K: serde::Serialize, S: serde::Serializer>(
    keys: &[(K, Duration)],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(keys.iter().map(|(key, quiet)| (key, quiet.as_secs_f64())))
}

#[cfg(feature = "serde")]
fn as_seconds_or_none<S: serde::Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&duration.map(|duration| duration.as_secs_f64()), to)
}

/// The part of the counting that one shard does.
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)] // what each operation counts comes first
pub(crate) struct Counts {
    pub(crate) parked: u64,
    pub(crate) completed: u64,
    /// Checks of what was parked, the first of each included.
    pub(crate) checks: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) cancelled_by_shutdown: u64,
    pub(crate) cancelled_by_drop: u64,
    pub(crate) cancelled_by_panic: u64,
}

impl Counts {
    /// Adds what it has counted.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.parked_total += self.parked;
        stats.completed += self.completed;
        stats.expired += self.expired;
        stats.cancelled += self.cancelled;
        stats.cancelled_by_shutdown += self.cancelled_by_shutdown;
        stats.cancelled_by_drop += self.cancelled_by_drop;
        stats.cancelled_by_panic += self.cancelled_by_panic;
        stats.checks += self.checks;
    }

    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Expired => self.expired += 1,
            Outcome::Cancelled(reason) => {
                self.cancelled += 1;
                match reason {
                    CancelReason::Requested(_) => {}
                    CancelReason::Shutdown => self.cancelled_by_shutdown += 1,
                    CancelReason::Dropped => self.cancelled_by_drop += 1,
                    CancelReason::Panicked => self.cancelled_by_panic += 1,
                }
            }
        }
    }
}

impl Times {
    /// Records how long one waited that has ended.
    #[inline]
    pub(crate) fn ended(&mut self, outcome: &Outcome, waited_ns: u64) {
        let times = match outcome {
            Outcome::Completed => &mut self.completed,
            Outcome::Cancelled(_) => &mut self.cancelled,
            Outcome::Expired => &mut self.expired,
        };
        times.record(waited_ns);
    }

    /// Adds what another has recorded.
    pub(crate) fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}
