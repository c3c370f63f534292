//! Counts, times and snapshots of a purgatory, as plain data.

use std::{fmt, time::Duration};

use timer_core::TimeHistogram;

use crate::{
    error::WaitError,
    operation::{CancelReason, OperationId, Outcome},
};

/// The counts of a purgatory. Counters are exact while no other thread is active.
///
/// A field has the name of its metric or of that metric's label, so it does not end in `_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Operations parked now, including those under check.
    pub parked: u64,
    /// Watches of the operations parked now. An operation has one for each of its keys.
    pub watched: u64,
    /// Operations ever parked: the sum of `parked`, the three ends below and `taken`.
    pub parked_total: u64,
    /// Parked operations that ended as Completed.
    pub completed: u64,
    /// Parked operations that ended as Expired.
    pub expired: u64,
    /// Parked operations that ended as Cancelled, for any reason.
    pub cancelled: u64,
    /// Parked operations that were [taken](crate::Purgatory::take) out.
    pub taken: u64,
    /// Cancelled operations whose future was dropped: their clients have gone. Includes those parts
    /// of a [`wait_for_each`](crate::Watermarks::wait_for_each) that the end of another part has
    /// ended.
    pub cancelled_by_future_drop: u64,
    /// Cancelled operations that a shutdown ended.
    pub cancelled_by_shutdown: u64,
    /// Cancelled operations that ended when the last handle of the form or of their scope was
    /// dropped.
    pub cancelled_by_drop: u64,
    /// Cancelled operations whose check panicked.
    pub cancelled_by_panic: u64,
    /// Operations that ended without being parked: their first check came true (nearly always) or
    /// panicked, their value was reached, their key was closed, or their timeout was zero. Requests
    /// for permits that are free are not counted.
    pub ended_at_once: u64,
    /// Panics of user code that were contained: of checks and callbacks, and of wakers, hooks,
    /// drops and the clock.
    pub panics: u64,
    /// Checks that ran: first checks, checks for events, rechecks and last checks.
    pub checks: u64,
    /// Operations whose condition had come true without an event, found by a
    /// [recheck](crate::Builder::recheck_every) or a
    /// [last check](crate::Builder::check_at_expiry).
    pub missed_events: u64,
    /// Events: keys signalled, watermarks advanced and epochs begun. Keys without waiters and
    /// advances to less than the value count; a report that leaves its group's watermark as it is
    /// does not.
    pub events: u64,
    /// Operations handed back because they had no key.
    ///
    /// Only the four kinds of refusal here are counted. Refusals of a call itself are not:
    /// [`AlreadyExpected`](WaitError::AlreadyExpected), [`ScopeClosed`](WaitError::ScopeClosed),
    /// and those for a key that is in another epoch or closed.
    pub refused_no_keys: u64,
    /// Operations handed back after shutdown, and requests for permits that were closed.
    pub refused_closed: u64,
    /// Operations handed back because too many were parked.
    pub refused_full: u64,
    /// Requests that, when they arrive, ask for more [permits](crate::Permits) than there are. A
    /// request in line that a lowered limit refuses counts as cancelled.
    pub refused_too_heavy: u64,
    /// Callbacks and last checks that were handed to the executor and have not begun; a sweep of
    /// [rechecks](crate::Builder::recheck_every) counts as one.
    /// Callbacks are those of expiries and of a shutdown, or all
    /// ([`callbacks_on_executor`](crate::Builder::callbacks_on_executor)). Callbacks beyond the
    /// first 1024 that were queued behind one call do not count.
    pub callbacks_waiting: u64,
}

impl Stats {
    /// Counts a refusal.
    pub(crate) fn refused(&mut self, reason: &WaitError) {
        let count = match reason {
            WaitError::NoKeys => &mut self.refused_no_keys,
            WaitError::Closed => &mut self.refused_closed,
            WaitError::Full { .. } => &mut self.refused_full,
            WaitError::TooHeavy { .. } => &mut self.refused_too_heavy,
            // Waits refused before they became operations.
            _ => return,
        };
        *count += 1;
    }
}

/// Histograms of how long operations waited, by outcome, and how late they expired.
///
/// Nothing is timed before the first call that asks for times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// From parking to the end as Completed.
    pub completed: TimeHistogram,
    /// From parking to the end as Expired.
    pub expired: TimeHistogram,
    /// From parking to the end as Cancelled.
    pub cancelled: TimeHistogram,
    /// From the deadline, rounded up to a tick, until the expired operation left the wheel.
    pub lateness: TimeHistogram,
    /// From the hand-over to the executor until the callback, sweep or last check began.
    pub callback_delay: TimeHistogram,
}

/// Labels with numbers, in the order of the labels.
#[derive(Debug, Default)]
pub(crate) struct Labels(pub(crate) Vec<(&'static str, usize)>);

impl Labels {
    /// Adds to the number of a label. O(log labels) for one that is known.
    pub(crate) fn add(&mut self, label: &'static str, count: usize) {
        match self.0.binary_search_by_key(&label, |&(label, _)| label) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (label, count)),
        }
    }
}

/// The oldest operations, the checks under way, the keys and the counts of a purgatory.
///
/// Made by [`Purgatory::snapshot`](crate::Purgatory::snapshot). With the feature `serde` it can be
/// serialised; durations are in seconds.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The name of the purgatory.
    pub name: String,
    /// The counts of the purgatory.
    pub stats: Stats,
    /// The number of keys that have waiters.
    pub key_count: usize,
    /// The keys with the most waiters, most first, each with the number of its watches as
    /// [`Purgatory::waiters`](crate::Purgatory::waiters) counts them. Empty for
    /// [`Replies`](crate::Replies), whose keys have one waiter each.
    pub busiest: Vec<(K, usize)>,
    /// The number of operations parked with each [label](crate::Watches::labelled), most first.
    pub labels: Vec<(&'static str, usize)>,
    /// The operations that have been parked for longest, longest first; those of the same age in no
    /// order. So for [`Permits`](crate::Permits) this is not the line: the last request may be
    /// listed before the first.
    pub oldest: Vec<Parked<K>>,
    /// The operations under check, longest known check first. A check that never returns shows up
    /// here, and its operation cannot expire. A last check that waits for the executor shows up as
    /// well.
    pub under_check: Vec<Parked<K>>,
    /// The times that operations waited, since the first snapshot, `publish` or
    /// [`times`](crate::Purgatory::times).
    pub times: Times,
}

/// A parked operation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Parked<K> {
    /// Its id, to cancel or complete it.
    pub id: OperationId,
    /// Its [label](crate::Watches::labelled), if it has one.
    pub label: Option<&'static str>,
    /// The keys that it waits for.
    pub keys: Vec<K>,
    /// The time since it was parked, to the microsecond.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds"))]
    pub age: Duration,
    /// The time until it expires, to the timer's tick; zero when it is due, `None` when it never
    /// expires.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub expires_in: Option<Duration>,
    /// A lower bound on how long its check has been running: the time since the first snapshot that
    /// found this check. `None` when it is not under check.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub under_check: Option<Duration>,
}

impl<K: fmt::Debug> fmt::Display for Snapshot<K> {
    /// Writes a few lines that show what hangs: counts, labels, keys, operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The counts.
        let stats = &self.stats;
        writeln!(
            f,
            "{}: {} parked under {} keys",
            self.name, stats.parked, self.key_count
        )?;
        writeln!(
            f,
            "  before: {} completed, {} expired, {} cancelled, {} events missed",
            stats.completed, stats.expired, stats.cancelled, stats.missed_events
        )?;

        // Labels and keys.
        for (label, count) in &self.labels {
            writeln!(f, "  label {label}: {count}")?;
        }
        for (key, waiters) in &self.busiest {
            writeln!(f, "  key {key:?}: {waiters} waiters")?;
        }

        // Operations.
        for parked in &self.oldest {
            writeln!(f, "  oldest: {parked}")?;
        }
        for parked in &self.under_check {
            writeln!(f, "  under check: {parked}")?;
        }
        Ok(())
    }
}

impl<K: fmt::Debug> fmt::Display for Parked<K> {
    /// Writes one line: id, label, keys, times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(label) = self.label {
            write!(f, " {label}")?;
        }
        write!(f, " under {:?} for {:?}", self.keys, self.age)?;
        match self.expires_in {
            Some(expires_in) => write!(f, ", expires in {expires_in:?}")?,
            None => f.write_str(", never expires")?,
        }
        match self.under_check {
            // The first snapshot that finds a check does not know when it began.
            Some(Duration::ZERO) => f.write_str(", under check")?,
            Some(known) => write!(f, ", under check for {known:?} at least")?,
            None => {}
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(feature = "serde")]
fn as_seconds_or_none<S: serde::Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&duration.map(|duration| duration.as_secs_f64()), to)
}

/// The counts that one shard keeps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) parked: u64,
    pub(crate) completed: u64,
    /// Checks of parked operations, including the first of each.
    pub(crate) checks: u64,
}

/// The counts that one shard keeps of operations that expired or were cancelled, and the times of
/// all operations that ended.
#[derive(Debug, Default)]
pub(crate) struct OtherEnds {
    expired: u64,
    cancelled: u64,
    cancelled_by_future_drop: u64,
    cancelled_by_shutdown: u64,
    cancelled_by_drop: u64,
    cancelled_by_panic: u64,
    /// `None` until an end was timed.
    times: Option<Box<Times>>,
}

impl Counts {
    /// Adds these counts to the totals.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.parked_total += self.parked;
        stats.completed += self.completed;
        stats.checks += self.checks;
    }
}

impl OtherEnds {
    /// Adds these counts to the totals.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.expired += self.expired;
        stats.cancelled += self.cancelled;
        stats.cancelled_by_future_drop += self.cancelled_by_future_drop;
        stats.cancelled_by_shutdown += self.cancelled_by_shutdown;
        stats.cancelled_by_drop += self.cancelled_by_drop;
        stats.cancelled_by_panic += self.cancelled_by_panic;
    }

    /// Counts the end of an operation, and how long it waited, if that is timed. An operation that
    /// completed is counted in `counts`.
    #[inline(never)]
    pub(crate) fn ended(&mut self, counts: &mut Counts, outcome: &Outcome, waited_ns: Option<u64>) {
        match outcome {
            Outcome::Completed => counts.completed += 1,
            Outcome::Expired => self.expired += 1,
            Outcome::Cancelled(reason) => self.cancelled(reason),
        }
        if let Some(waited_ns) = waited_ns {
            self.times.get_or_insert_default().ended(outcome, waited_ns);
        }
    }

    /// Records how late an operation expired, if its end was timed.
    pub(crate) fn expired_late(&mut self, late_ns: u64) {
        if let Some(times) = &mut self.times {
            times.lateness.record(late_ns);
        }
    }

    /// Returns the times, if an end was timed.
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.as_deref()
    }

    fn cancelled(&mut self, reason: &CancelReason) {
        self.cancelled += 1;
        match reason {
            CancelReason::Requested(_)
            | CancelReason::Closed(_)
            | CancelReason::EpochOver { .. }
            | CancelReason::BelowFloor { .. } => {}
            CancelReason::FutureDropped => self.cancelled_by_future_drop += 1,
            CancelReason::Shutdown => self.cancelled_by_shutdown += 1,
            CancelReason::Dropped => self.cancelled_by_drop += 1,
            CancelReason::Panicked => self.cancelled_by_panic += 1,
        }
    }
}

impl Times {
    /// Records how long an ended operation had waited.
    #[inline]
    pub(crate) fn ended(&mut self, outcome: &Outcome, waited_ns: u64) {
        let times = match outcome {
            Outcome::Completed => &mut self.completed,
            Outcome::Cancelled(_) => &mut self.cancelled,
            Outcome::Expired => &mut self.expired,
        };
        times.record(waited_ns);
    }

    /// Adds the times that `other` has recorded.
    pub(crate) fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}
