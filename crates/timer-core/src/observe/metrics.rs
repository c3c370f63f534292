//! Publishing through the `metrics` facade: [`Published`], for timers and for owners of wheels.
//!
//! A source (a timer, a purgatory) counts for itself, and hands [`Sample`]s to the installed
//! recorder when it is asked to. Sources with the same name, at once or one after the other, share
//! their series:
//!
//! - **Counters go on.** A source adds what it has counted since it published last. So the counters
//!   of one name add up, and stay when a source is gone.
//! - **Gauges are combined.** A series of a gauge shows the sum of its living sources, or, for
//!   ages, the largest. So each source leaves its value with the recorder, and takes it out when it
//!   is gone.
//!
//! Both are kept for each recorder separately: a program may publish before it installs a recorder,
//! and each test may have its own.
//!
//! **A recorder is known by what it keeps.** Its address is not enough: a test's second recorder
//! may lie where the first one lay. So the value of the label that names the source is a text of
//! this recorder's alone, its *mark*. A recorder keeps the labels of its series. As long as it
//! does, the mark lives, and the recorder at that address is the same; after that it is another. A
//! recorder that keeps no labels is known by its address. (So is a recorder that was dropped while
//! a handle that renders its page still keeps its series.)

use std::{
    collections::HashMap,
    fmt,
    ops::Add,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram, with_recorder,
};

use super::{TimeHistogram, TimerStats};
use crate::{panics::contain, sync::plain::Mutex};

/// The most values that are handed over at once; of more, only an even share is. A recorder takes
/// values one by one and keeps each until it is rendered, so a program that was not scraped for an
/// hour would hand over for half a minute, and fill the memory.
const HANDED_OVER_MAX: u64 = 1_000_000;

impl TimeHistogram {
    /// Hands the counts since `published` to the recorder's histogram: all of them, or beyond a
    /// million an even share. No count is handed over twice: counts that a panicking recorder did
    /// not take are lost.
    pub(super) fn hand_over(&self, published: &mut TimeHistogram, to: &Histogram) {
        let gained = self.gained_since(published);
        *published = self.clone();
        let one_in = gained.count().div_ceil(HANDED_OVER_MAX).max(1);
        for (count, mean_s) in gained.means() {
            let share = usize::try_from(count.div_ceil(one_in)).unwrap_or(usize::MAX);
            to.record_many(mean_s, share);
        }
    }
}

/// The present value of one series of a source.
#[derive(Debug)]
pub struct Sample {
    name: SeriesName,
    help: &'static str,
    value: Value,
    /// Published only by a source that publishes in detail.
    is_detail: bool,
}

#[derive(Debug)]
enum Value {
    /// A counter: it only rises.
    Counter(u64),
    Gauge(f64, Combine),
    Times(Box<TimeHistogram>),
}

/// The way in which a gauge shows several sources of one name: their sum, or the largest.
type Combine = fn(f64, f64) -> f64;

impl Sample {
    fn new(metric: &'static str, help: &'static str, value: Value) -> Self {
        Sample {
            name: SeriesName {
                metric,
                label: None,
            },
            help,
            value,
            is_detail: false,
        }
    }

    /// Declares a counter.
    pub fn counter(metric: &'static str, help: &'static str, count: u64) -> Self {
        Sample::new(metric, help, Value::Counter(count))
    }

    /// Declares a gauge that shows the sum of the sources of one name.
    pub fn sum(metric: &'static str, help: &'static str, value: f64) -> Self {
        Sample::new(metric, help, Value::Gauge(value, f64::add))
    }

    /// Declares a gauge that shows the largest of the sources of one name.
    pub fn largest(metric: &'static str, help: &'static str, value: f64) -> Self {
        Sample::new(metric, help, Value::Gauge(value, f64::max))
    }

    /// Declares a histogram.
    pub fn times(metric: &'static str, help: &'static str, times: TimeHistogram) -> Self {
        Sample::new(metric, help, Value::Times(Box::new(times)))
    }

    /// Declares the same sample for the series with a further label.
    pub fn labelled(self, label: &'static str, value: &'static str) -> Self {
        let metric = self.name.metric;
        let label = Some((label, value));
        Sample {
            name: SeriesName { metric, label },
            ..self
        }
    }

    /// Declares the sample as one for sources that [publish in detail](Published::publish).
    pub fn in_detail(self) -> Self {
        Sample {
            is_detail: true,
            ..self
        }
    }

    fn unit(&self) -> Unit {
        if self.name.metric.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        }
    }
}

/// The name of a source, and the label that has the names of sources of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceName {
    /// `timer` or `purgatory`.
    pub label: &'static str,
    /// The label's value.
    pub name: Arc<str>,
}

/// The name of a series, without the label that names the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SeriesName {
    metric: &'static str,
    /// A further label, and its value.
    label: Option<(&'static str, &'static str)>,
}

/// A recorder, as the sources of one name know it.
#[derive(Debug)]
struct Recorder {
    /// The value of the label that names a source, in an allocation of this recorder's alone. Each
    /// call that publishes to the recorder holds it as well.
    mark: Arc<str>,
    /// False once the recorder was found to keep no label.
    keeps_mark: AtomicBool,
    /// The values of its gauges, by the address of each living source. Never locked while a recorder
    /// is called.
    gauges: Mutex<HashMap<SeriesName, HashMap<usize, f64>>>,
}

/// Recorders, by their addresses and the names of their sources.
type Recorders = HashMap<(usize, SourceName), Arc<Recorder>>;

/// The living recorders that were published to. Locked to see whether one is gone, and never while
/// a recorder is called.
static RECORDERS: LazyLock<Mutex<Recorders>> = LazyLock::new(Mutex::default);

impl Recorder {
    /// Returns true when the recorder has dropped the labels that it kept. A recorder that keeps no
    /// label is forgotten when no source has a series there any more.
    fn is_gone(self: &Arc<Self>) -> bool {
        if self.keeps_mark.load(Ordering::Relaxed) {
            Arc::strong_count(&self.mark) == 1
        } else {
            Arc::strong_count(self) == 1
        }
    }
}

/// A call that publishes to the installed recorder, which stays known until the call ends.
struct Publishing {
    /// The label that names its sources.
    label: &'static str,
    recorder: Arc<Recorder>,
    mark: Arc<str>,
}

impl Publishing {
    /// Finds out which recorder is installed. O(1), but O(recorders) for a new one.
    fn begin(of: &SourceName) -> Self {
        let address = with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
        let place = (address, of.clone());
        let mut all = RECORDERS.lock();
        // 1. If it is a new one, forget those that are gone.
        if all.get(&place).is_none_or(|known| known.is_gone()) {
            all.retain(|_, known| !known.is_gone());
        }
        // 2. Take the known recorder, or add the new one.
        let known = all.entry(place).or_insert_with(|| {
            Arc::new(Recorder {
                mark: Arc::from(&*of.name),
                keeps_mark: AtomicBool::new(true),
                gauges: Mutex::default(),
            })
        });
        Publishing {
            label: of.label,
            mark: known.mark.clone(),
            recorder: known.clone(),
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        let _all = RECORDERS.lock();
        // After the last call no other reference to the mark is left, unless the recorder has kept
        // one.
        self.mark = Arc::default();
        if Arc::strong_count(&self.recorder.mark) == 1 {
            self.recorder.keeps_mark.store(false, Ordering::Relaxed);
        }
    }
}

/// The part of a source in a series, and how much of a counter or histogram was handed over.
#[derive(Debug)]
struct Series {
    /// The address of the source.
    source: usize,
    name: SeriesName,
    recorder: Arc<Recorder>,
    /// The recorder's end of the series.
    to: Handle,
    /// Given to a counter so far.
    counted: u64,
    /// Given to a histogram so far.
    timed: Option<Box<TimeHistogram>>,
}

/// A recorder's end of a series.
#[derive(Clone, Debug)]
enum Handle {
    Counter(Counter),
    Gauge(Gauge, Combine),
    Times(Histogram),
}

/// The series that a source has published, by the addresses of their recorders and their names.
type AllSeries = HashMap<(usize, SeriesName), Series>;

/// The part that one source has in the recorders' series, made when it first publishes. A `dyn`, so
/// that a program that never publishes has no code for it in its binary.
#[derive(Debug, Default)]
pub struct Published {
    part: OnceLock<Box<dyn HandsOver>>,
    /// Set when the source ends: nothing more is published, unless it [goes on](Published::resume).
    is_withdrawn: AtomicBool,
}

/// Reads the counts of a source.
type Read<'a> = &'a dyn Fn() -> Vec<Sample>;

/// The work of [`Published`], on the series of one source.
trait HandsOver: Send + Sync + fmt::Debug {
    /// Hands samples over, unless another call has the series. Returns a panic of the recorder.
    fn publish(&self, of: &SourceName, in_detail: bool, read: Read<'_>) -> thread::Result<()>;
    /// Publishes the last counts, unless another call has the series. Returns true if this call had
    /// them when another withdrawal came.
    fn withdraw(&self, read: Read<'_>) -> bool;
}

/// The part of one source. Its address, which does not change, distinguishes sources of one name.
#[derive(Debug, Default)]
struct Part(Mutex<State>);

/// The state of a part. Locked for a moment, never while a recorder is called.
#[derive(Debug, Default)]
struct State {
    series: AllSeries,
    /// A call has the series, and hands them over.
    is_publishing: bool,
    /// Set when the source ends while a call has the series.
    ends_meanwhile: bool,
    /// Set for good by the first call that publishes in detail.
    is_in_detail: bool,
}

impl Published {
    /// Hands the samples that `read` returns to the installed recorder, unless another call,
    /// perhaps further up this stack, is doing so. Once a call was made `in_detail`, this call and
    /// all later ones also hand over the samples that were declared [in detail](Sample::in_detail).
    pub fn publish(&self, of: &SourceName, in_detail: bool, read: Read<'_>) {
        let part = self.part.get_or_init(|| Box::new(Part::default()));
        if self.is_withdrawn() {
            return;
        }
        let handed_over = part.publish(of, in_detail, read);
        // A source that has ended meanwhile has left its last publishing to this call, even if the
        // recorder panics.
        self.withdraw_if_ended(read);
        handed_over.unwrap_or_else(|panicked| resume_unwind(panicked));
    }

    /// Publishes to every recorder that the source was published to: counters and histograms with
    /// the counts gained since, and gauges without this source. Later only another withdrawal
    /// publishes, unless the source [goes on](Self::resume): if a part of the source still counts,
    /// the source withdraws again when that part is over, with no call beside it. A call that is
    /// publishing now does this as it ends.
    pub fn withdraw(&self, read: Read<'_>) {
        self.is_withdrawn.fetch_or(true, Ordering::AcqRel);
        self.withdraw_if_ended(read);
    }

    /// Goes on with a source that was withdrawn, so that it is published again.
    pub(crate) fn resume(&self) {
        self.is_withdrawn.store(false, Ordering::Release);
    }

    /// Withdraws a source that has ended, and again if it has gone on and ended meanwhile.
    fn withdraw_if_ended(&self, read: Read<'_>) {
        if let Some(part) = self.part.get() {
            while self.is_withdrawn() && part.withdraw(read) {}
        }
    }

    /// Returns true if the source has ended. A write, though nothing changes: either this call sees
    /// the end, or the thread that ends the source sees that there is a part to withdraw.
    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.fetch_or(false, Ordering::AcqRel)
    }
}

impl HandsOver for Part {
    fn publish(&self, of: &SourceName, in_detail: bool, read: Read<'_>) -> thread::Result<()> {
        // 1. The series are this call's alone until it is over.
        let mut state = self.0.lock();
        state.is_in_detail |= in_detail;
        if state.is_publishing {
            return Ok(());
        }
        state.is_publishing = true;
        let mut series = std::mem::take(&mut state.series);
        let is_in_detail = state.is_in_detail;
        drop(state);
        // 2. Read now: samples that were read earlier might be older than those published last.
        //    Then hand them to the recorder, with nothing locked.
        let handed_over = catch_unwind(AssertUnwindSafe(|| {
            let samples = read();
            let publishing = Publishing::begin(of);
            forget_gone(&mut series);
            for sample in &samples {
                if is_in_detail || !sample.is_detail {
                    self.publish_one(&mut series, &publishing, sample);
                }
            }
        }));
        // 3. Put the series back, even if the recorder panics.
        let mut state = self.0.lock();
        state.series = series;
        state.is_publishing = false;
        handed_over
    }

    fn withdraw(&self, read: Read<'_>) -> bool {
        // 1. One call at a time withdraws: the one that takes the series.
        let mut state = self.0.lock();
        if state.is_publishing {
            state.ends_meanwhile = true;
            return false;
        }
        let mut all = std::mem::take(&mut state.series);
        if all.is_empty() {
            return false;
        }
        state.is_publishing = true;
        state.ends_meanwhile = false;
        drop(state);
        // 2. Publish the present state of the counters; take the gauges out.
        let samples = read();
        for series in all.values_mut() {
            let sample = samples.iter().find(|sample| sample.name == series.name);
            // A source ends in a drop, which must not panic.
            let _ = contain(|| match (&series.to, sample) {
                (Handle::Gauge(to, combine), _) => series.show(to, *combine, None),
                (_, Some(sample)) => series.hand_over(&sample.value),
                (_, None) => {}
            });
        }
        all.retain(|_, series| !matches!(series.to, Handle::Gauge(..)));
        let mut state = self.0.lock();
        state.series = all;
        state.is_publishing = false;
        state.ends_meanwhile
    }
}

impl Part {
    /// Hands one sample over.
    fn publish_one(&self, all: &mut AllSeries, publishing: &Publishing, sample: &Sample) {
        // Registered each time: a recorder may have forgotten a series that was idle.
        let to = sample.register(publishing);
        let recorder = &publishing.recorder;
        let key = (Arc::as_ptr(recorder).addr(), sample.name);
        let series = all.entry(key).or_insert_with(|| Series {
            source: std::ptr::from_ref(self).addr(),
            name: sample.name,
            recorder: recorder.clone(),
            to: to.clone(),
            counted: 0,
            timed: None,
        });
        series.to = to;
        series.hand_over(&sample.value);
    }
}

/// Forgets the series of recorders that are gone.
fn forget_gone(all: &mut AllSeries) {
    let recorders = RECORDERS.lock();
    let each = std::mem::take(all).into_iter();
    let (gone, living): (AllSeries, AllSeries) =
        each.partition(|(_, series)| series.recorder.is_gone());
    *all = living;
    // Handles of a recorder are dropped with nothing locked.
    drop(recorders);
    drop(gone);
}

impl Sample {
    /// Registers the series with the installed recorder.
    fn register(&self, publishing: &Publishing) -> Handle {
        // 1. The labels: the source's name, and a further one.
        let SeriesName { metric, label } = self.name;
        let mut labels = vec![Label::new(publishing.label, publishing.mark.clone())];
        if let Some((label, value)) = label {
            labels.push(Label::new(label, value));
        }
        // 2. The help text and the series itself, by type.
        match self.value {
            Value::Counter(_) => {
                describe_counter!(metric, self.unit(), self.help);
                Handle::Counter(counter!(metric, labels))
            }
            Value::Gauge(_, combine) => {
                describe_gauge!(metric, self.unit(), self.help);
                Handle::Gauge(gauge!(metric, labels), combine)
            }
            Value::Times(_) => {
                describe_histogram!(metric, self.unit(), self.help);
                Handle::Times(histogram!(metric, labels))
            }
        }
    }
}

impl Series {
    /// Hands over the difference of a counter or histogram, or the new value of a gauge.
    fn hand_over(&mut self, value: &Value) {
        match (&self.to, value) {
            (Handle::Counter(to), &Value::Counter(count)) => {
                // Stored first, so that a recorder that panics is given nothing twice.
                let difference = count.saturating_sub(self.counted);
                self.counted += difference;
                to.increment(difference);
            }
            (Handle::Times(to), Value::Times(times)) => {
                times.hand_over(self.timed.get_or_insert_default(), to);
            }
            (Handle::Gauge(to, combine), &Value::Gauge(value, _)) => {
                self.show(to, *combine, Some(value));
            }
            _ => {} // a metric keeps its type
        }
    }

    /// Sets the value of the source in a gauge, or takes it out, and shows the values of all sources
    /// combined; 0 for a gauge without sources.
    ///
    /// The recorder is called with nothing locked, so a value that another call combined later may
    /// reach it earlier. Each call therefore combines the values again after it has set the gauge,
    /// and sets it again if they differ: the call that sets it last has set the values that all
    /// have left.
    fn show(&self, to: &Gauge, combine: Combine, value: Option<f64>) {
        // 1. The value of this source.
        let mut all = self.recorder.gauges.lock();
        let values = all.entry(self.name).or_default();
        match value {
            Some(value) => values.insert(self.source, value),
            None => values.remove(&self.source),
        };
        drop(all);
        // 2. The values of all sources, until the gauge shows them as they are.
        let combined = || {
            let all = self.recorder.gauges.lock();
            let values = all.get(&self.name).into_iter().flat_map(HashMap::values);
            values.copied().fold(0.0, combine) // the `sum` of none is -0
        };
        let mut value: f64 = combined();
        loop {
            to.set(value);
            let now = combined();
            if now.to_bits() == value.to_bits() {
                return;
            }
            value = now;
        }
    }
}

/// An owner of wheels that is published with its timer.
pub trait Publishes {
    /// Returns its part in the recorders' series.
    fn published(&self) -> &Published;
    /// Returns its name.
    fn source(&self) -> SourceName;
    /// Reads counters and histograms, which stay when the source is gone.
    fn totals(&self) -> Vec<Sample>;
    /// Reads the present values. Of several sources of one name, numbers add up, and the largest
    /// age is shown.
    fn gauges(&self) -> Vec<Sample>;
}

// Not methods of the trait: each of its implementations would link them.
impl dyn Publishes + '_ {
    /// Hands everything to the installed recorder, as [`Published::publish`] does.
    pub fn publish(&self, in_detail: bool) {
        self.published().publish(&self.source(), in_detail, &|| {
            let mut samples = self.totals();
            samples.extend(self.gauges());
            samples
        });
    }
}

/// Returns the samples of a timer.
pub(crate) fn timer_samples(stats: TimerStats) -> Vec<Sample> {
    // Each with its help text, which docs/METRICS.md does not repeat.
    let mut samples = vec![
        Sample::sum(
            "timer_pending",
            "Tasks that will fall due.",
            stats.pending as f64,
        ),
        Sample::counter("timer_fired_total", "Tasks that fell due.", stats.fired),
        Sample::counter(
            "timer_cancelled_total",
            "Tasks that were taken off before they fell due.",
            stats.cancelled,
        ),
        Sample::counter(
            "timer_cascaded_total",
            "Times that a task was handed down a level.",
            stats.cascaded,
        ),
        Sample::counter(
            "timer_wake_ups_total",
            "Times that the reaper woke up.",
            stats.wake_ups,
        ),
        Sample::counter(
            "timer_spurious_wake_ups_total",
            "Times that the reaper woke up and found no work.",
            stats.spurious_wake_ups,
        ),
        Sample::counter(
            "timer_panics_total",
            "Panics of tasks, wakers, owners of wheels, executors, jobs and of the clock on the reaper.",
            stats.panics,
        ),
        Sample::times(
            "timer_turn_seconds",
            "How long a round of the reaper took, over all shards that were due.",
            stats.turns,
        ),
    ];
    // Only an executor that counts its jobs has this one.
    if let Some(queued) = stats.executor_queue {
        samples.push(Sample::sum(
            "timer_executor_queue",
            "Jobs that wait for the timer's workers, each of them a batch of tasks.",
            queued as f64,
        ));
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without an installed recorder, values go to one that keeps no label.
    #[test]
    fn recorder_without_labels_keeps_no_gone_sources() {
        for name in 0..100 {
            let of = SourceName {
                label: "timer",
                name: format!("nobody scrapes {name}").into(),
            };
            let read = || vec![Sample::sum("timer_pending", "", 1.0)];
            let published = Published::default();
            published.publish(&of, false, &read);
            published.withdraw(&read);
        }
        let all = RECORDERS.lock();
        let kept = all.keys().filter(|(_, of)| of.name.starts_with("nobody"));
        assert!(kept.count() <= 1, "the last one, until another comes");
    }
}
