//! Publishing through the `metrics` facade: [`Published`], for timers and for owners of wheels.
//!
//! A source (a timer, a purgatory) counts for itself, and hands [`Sample`]s to the installed
//! recorder when it is asked to. Several sources may have one name, at once or one after the other,
//! and share their series:
//!
//! - **Counters go on.** A source adds what it has counted since it published last. So the counters
//!   of one name add up, and stay when a source is gone.
//! - **Gauges are combined.** A series of a gauge shows the sum of its living sources, or, for
//!   ages, the largest. So each source leaves its value in a table of the process, and takes it out
//!   when it is gone.
//!
//! Each is kept for each recorder apart: a program may publish before it installs one, and each
//! test may have its own.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram, with_recorder,
};

use super::{TimeHistogram, TimerStats};
use crate::{panics::contain, sync::plain::Mutex};

/// A recorder takes values one by one and keeps each until it is rendered. So a program that was
/// not scraped for an hour would hand over for half a minute, and fill the memory. Beyond this
/// number of values only an even share of them is handed over.
const HANDED_OVER_MAX: u64 = 1_000_000;

impl TimeHistogram {
    /// Hands the counts since `published` to the recorder's histogram: all of them, or beyond a
    /// million an even share. No count is handed over twice: those that a panicking recorder did
    /// not take are lost.
    pub(super) fn hand_over(&self, published: &mut TimeHistogram, to: &Histogram) {
        let earlier = std::mem::replace(published, self.clone());
        let all: u64 = self.since(&earlier).map(|(count, _)| count).sum();
        let one_in = all.div_ceil(HANDED_OVER_MAX).max(1);
        for (count, mean_s) in self.since(&earlier) {
            let share = usize::try_from(count.div_ceil(one_in)).unwrap_or(usize::MAX);
            to.record_many(mean_s, share);
        }
    }
}

/// A further label of a series, and its value.
type ExtraLabel = Option<(&'static str, &'static str)>;

/// The present value of one series of a source.
#[derive(Debug)]
pub struct Sample {
    metric: &'static str,
    help: &'static str,
    label: ExtraLabel,
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// A counter: it only rises.
    Counter(u64),
    /// The gauge shows the sum over the sources of one name.
    Sum(f64),
    /// The gauge shows the largest of the sources of one name.
    Largest(f64),
    Times(Box<TimeHistogram>),
}

impl Sample {
    fn new(metric: &'static str, help: &'static str, value: Value) -> Self {
        Sample {
            metric,
            help,
            label: None,
            value,
        }
    }

    /// Declares a counter.
    pub fn counter(metric: &'static str, help: &'static str, count: u64) -> Self {
        Sample::new(metric, help, Value::Counter(count))
    }

    /// Declares a gauge that shows the sum of the sources of one name.
    pub fn sum(metric: &'static str, help: &'static str, value: f64) -> Self {
        Sample::new(metric, help, Value::Sum(value))
    }

    /// Declares a gauge that shows the largest of the sources of one name.
    pub fn largest(metric: &'static str, help: &'static str, value: f64) -> Self {
        Sample::new(metric, help, Value::Largest(value))
    }

    /// Declares a histogram.
    pub fn times(metric: &'static str, help: &'static str, times: TimeHistogram) -> Self {
        Sample::new(metric, help, Value::Times(Box::new(times)))
    }

    /// Declares the same for the series that has a further label.
    pub fn labelled(self, label: &'static str, value: &'static str) -> Self {
        Sample {
            label: Some((label, value)),
            ..self
        }
    }

    fn unit(&self) -> Unit {
        if self.metric.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        }
    }
}

/// The label that sources of one kind have, and the name of one.
#[derive(Clone, Debug)]
pub struct SourceName {
    /// `timer` or `purgatory`.
    pub label: &'static str,
    /// Its value.
    pub name: Arc<str>,
}

/// A series of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeriesKey {
    /// The address of the recorder.
    recorder: usize,
    metric: &'static str,
    name: Arc<str>,
    label: ExtraLabel,
}

/// The part of a source in a series, and the recorder's end of it.
#[derive(Debug)]
enum Series {
    Counter {
        to: Counter,
        published: u64,
    },
    Gauge {
        to: Gauge,
        combine: fn(&Gauges) -> f64,
    },
    Times {
        to: Histogram,
        published: Box<TimeHistogram>,
    },
}

/// The values of a gauge, by the number of each living source.
type Gauges = HashMap<u64, f64>;

/// All gauges of the process. Never locked while a recorder is called.
static GAUGES: LazyLock<Mutex<HashMap<SeriesKey, Gauges>>> = LazyLock::new(Mutex::default);

fn sum(gauges: &Gauges) -> f64 {
    gauges.values().fold(0.0, |sum, value| sum + value) // `sum` of none is -0
}

fn largest(gauges: &Gauges) -> f64 {
    gauges.values().copied().fold(0.0, f64::max)
}

/// The part that one source has in the recorders' series.
#[derive(Debug)]
pub struct Published {
    /// Distinguishes sources of one name.
    source: u64,
    /// Locked while the recorder is called, by a call that does not wait for it.
    series: Mutex<HashMap<SeriesKey, Series>>,
}

impl Default for Published {
    fn default() -> Self {
        static SOURCES: AtomicU64 = AtomicU64::new(0);
        Published {
            source: SOURCES.fetch_add(1, Ordering::Relaxed),
            series: Mutex::default(),
        }
    }
}

impl Published {
    /// Hands the samples that `read` returns to the installed recorder, unless another call is
    /// doing so, which may be further up this stack.
    pub fn publish(&self, of: &SourceName, read: impl FnOnce() -> Vec<Sample>) {
        let Some(mut all) = self.series.try_lock() else {
            return;
        };
        // Read under the lock: read before it, samples might be older than those published last.
        let samples = read();
        let recorder = with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
        for sample in samples {
            let key = SeriesKey {
                recorder,
                metric: sample.metric,
                name: of.name.clone(),
                label: sample.label,
            };
            // Registered each time: a recorder may have forgotten a series that was idle.
            let mut series = sample.register(of);
            if let Some(earlier) = all.remove(&key) {
                series.go_on_from(earlier);
            }
            let series = all.entry(key.clone()).or_insert(series);
            series.hand_over(&key, self.source, &sample);
        }
    }

    /// Publishes for the last time, to every recorder that this was published to: what counters and
    /// histograms have counted since, and gauges without this source.
    pub fn withdraw(&self, read: impl FnOnce() -> Vec<Sample>) {
        let Some(mut all) = self.series.try_lock() else {
            return;
        };
        if all.is_empty() {
            return;
        }
        // The last state of the counters; the gauges only go.
        let samples = read();
        for (key, mut series) in all.drain() {
            let mut same = samples.iter();
            let sample = same.find(|other| other.metric == key.metric && other.label == key.label);
            // A source ends in a drop, which must not panic.
            let _ = contain(|| match (&series, sample) {
                (Series::Gauge { .. }, _) => series.withdraw(&key, self.source),
                (_, Some(sample)) => series.hand_over(&key, self.source, sample),
                (_, None) => {}
            });
        }
    }
}

impl Sample {
    /// Registers the series with the installed recorder.
    fn register(&self, of: &SourceName) -> Series {
        // 1. The labels: the source's name, and a further one.
        let mut labels = vec![Label::new(of.label, of.name.clone())];
        if let Some((label, value)) = self.label {
            labels.push(Label::new(label, value));
        }
        // 2. The help text and the series itself, by type.
        let metric = self.metric;
        match self.value {
            Value::Counter(_) => {
                describe_counter!(metric, self.unit(), self.help);
                let to = counter!(metric, labels);
                Series::Counter { to, published: 0 }
            }
            Value::Sum(_) | Value::Largest(_) => {
                describe_gauge!(metric, self.unit(), self.help);
                let to = gauge!(metric, labels);
                let is_sum = matches!(self.value, Value::Sum(_));
                let combine = if is_sum { sum } else { largest };
                Series::Gauge { to, combine }
            }
            Value::Times(_) => {
                describe_histogram!(metric, self.unit(), self.help);
                let to = histogram!(metric, labels);
                let published = Box::default();
                Series::Times { to, published }
            }
        }
    }
}

impl Series {
    /// Takes over the counts that an earlier registration has published.
    fn go_on_from(&mut self, earlier: Series) {
        // The new registration has the same type as the earlier one.
        match (self, earlier) {
            (
                Series::Counter { published, .. },
                Series::Counter {
                    published: before, ..
                },
            ) => {
                *published = before;
            }
            (
                Series::Times { published, .. },
                Series::Times {
                    published: before, ..
                },
            ) => {
                *published = before;
            }
            _ => {} // a gauge is set anew
        }
    }

    /// Hands over the difference of a counter or histogram, or the new value of a gauge.
    fn hand_over(&mut self, key: &SeriesKey, source: u64, sample: &Sample) {
        // The difference to what was published last, or the combined gauge.
        match (self, &sample.value) {
            (Series::Counter { to, published }, &Value::Counter(count)) => {
                // Stored first, so that a recorder that panics is given nothing twice.
                let difference = count.saturating_sub(*published);
                *published = count.max(*published);
                to.increment(difference);
            }
            (Series::Gauge { to, combine }, &(Value::Sum(value) | Value::Largest(value))) => {
                let mut all = GAUGES.lock();
                let gauges = all.entry(key.clone()).or_default();
                gauges.insert(source, value);
                let combined = combine(gauges);
                drop(all);
                to.set(combined);
            }
            (Series::Times { to, published }, Value::Times(times)) => {
                times.hand_over(published, to);
            }
            _ => {} // a metric keeps its type
        }
    }

    /// Takes the source out of a gauge.
    fn withdraw(&mut self, key: &SeriesKey, source: u64) {
        let Series::Gauge { to, combine } = self else {
            return;
        };
        // 1. Out of the table, which forgets a series without sources.
        let mut all = GAUGES.lock();
        let mut combined = 0.0;
        if let Some(gauges) = all.get_mut(key) {
            gauges.remove(&source);
            combined = combine(gauges);
            if gauges.is_empty() {
                all.remove(key);
            }
        }
        // 2. The recorder is called with nothing locked.
        drop(all);
        to.set(combined);
    }
}

/// Returns the samples of a timer.
pub(crate) fn timer_samples(stats: TimerStats) -> Vec<Sample> {
    // Each with the help text that docs/METRICS.md begins with.
    let mut samples = vec![
        Sample::sum(
            "timer_pending",
            "Tasks that will fall due",
            stats.pending as f64,
        ),
        Sample::counter("timer_fired_total", "Tasks that fell due", stats.fired),
        Sample::counter(
            "timer_cancelled_total",
            "Tasks taken off before they fell due",
            stats.cancelled,
        ),
        Sample::counter(
            "timer_cascaded_total",
            "Times that a task was handed down a level",
            stats.cascaded,
        ),
        Sample::counter(
            "timer_wake_ups_total",
            "Times that the reaper woke up",
            stats.wake_ups,
        ),
        Sample::counter(
            "timer_spurious_wake_ups_total",
            "Times that the reaper woke up for nothing",
            stats.spurious_wake_ups,
        ),
        Sample::counter(
            "timer_panics_total",
            "Panics of the timer's own tasks and wakers",
            stats.panics,
        ),
        Sample::times(
            "timer_turn_seconds",
            "How long a round of the reaper took, over all shards that were due",
            stats.turns,
        ),
    ];
    // Only an executor that counts its jobs has this one.
    if let Some(queued) = stats.executor_queue {
        samples.push(Sample::sum(
            "timer_executor_queue",
            "Jobs that wait for the timer's workers",
            queued as f64,
        ));
    }
    samples
}
