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
//!
//! **A recorder is known by what it keeps.** An address is not enough: a test's second recorder may
//! lie where its first one lay. So the value of the label that names the source is a text of this
//! recorder's alone, its *mark*. A recorder keeps the labels of its series. While it does the mark
//! lives, and what is at that address is the same recorder; after that it is another. One that
//! keeps no labels is known by its address. (So is one that was dropped while a handle that renders
//! its page still keeps its series.)

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Weak,
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
    /// It is published only by a source that publishes in detail.
    is_detail: bool,
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

impl Value {
    /// Returns the beginning of a series of this type.
    fn nothing(&self) -> Value {
        match self {
            Value::Counter(_) => Value::Counter(0),
            Value::Sum(_) => Value::Sum(0.0),
            Value::Largest(_) => Value::Largest(0.0),
            Value::Times(_) => Value::Times(Box::default()),
        }
    }
}

impl Sample {
    fn new(metric: &'static str, help: &'static str, value: Value) -> Self {
        Sample {
            metric,
            help,
            label: None,
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

    /// Declares the same for a source that [publishes in detail](Published::publish_in_detail).
    pub fn in_detail(self) -> Self {
        Sample {
            is_detail: true,
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

/// A recorder's place, for the sources of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    address: usize,
    label: &'static str,
    name: Arc<str>,
}

/// The recorder at a place.
#[derive(Debug)]
struct Recorder {
    /// Distinguishes recorders that lay at one address one after the other.
    number: u64,
    mark: Mark,
    /// Calls that publish to it now, each of which holds the mark.
    publishing: usize,
}

/// The value of the label that names a source, in an allocation of one recorder's alone.
#[derive(Debug)]
enum Mark {
    /// It lives while the recorder keeps it.
    Kept(Weak<str>),
    /// The recorder does not keep it.
    Held(Arc<str>),
}

impl Mark {
    fn get(&self) -> Option<Arc<str>> {
        match self {
            Mark::Kept(mark) => mark.upgrade(),
            Mark::Held(mark) => Some(mark.clone()),
        }
    }
}

/// All recorders that were published to and live. Never locked while a recorder is called.
static RECORDERS: LazyLock<Mutex<HashMap<Place, Recorder>>> = LazyLock::new(Mutex::default);

/// A call that publishes to the installed recorder, which is known until its end.
struct Publishing {
    place: Place,
    number: u64,
    mark: Arc<str>,
}

impl Publishing {
    /// Finds out which recorder is installed. O(1), but O(recorders) for one that is new.
    fn begin(of: &SourceName) -> Self {
        let place = Place {
            address: with_recorder(|recorder| std::ptr::from_ref(recorder).addr()),
            label: of.label,
            name: of.name.clone(),
        };
        let mut all = RECORDERS.lock();
        // 1. The recorder that has been there, if it lives.
        if let Some(known) = all.get_mut(&place) {
            if let Some(mark) = known.mark.get() {
                known.publishing += 1;
                let number = known.number;
                return Publishing {
                    place,
                    number,
                    mark,
                };
            }
        }
        // 2. Or a new one; those that are gone are forgotten.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        all.retain(|_, known| known.mark.get().is_some());
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mark: Arc<str> = Arc::from(&*of.name);
        let new = Recorder {
            number,
            mark: Mark::Kept(Arc::downgrade(&mark)),
            publishing: 1,
        };
        all.insert(place.clone(), new);
        Publishing {
            place,
            number,
            mark,
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        let mut all = RECORDERS.lock();
        let Some(known) = all.get_mut(&self.place) else {
            return;
        };
        known.publishing -= 1;
        // Of the last call the mark is the only one, unless the recorder has kept it.
        if known.publishing == 0 && Arc::strong_count(&self.mark) == 1 {
            known.mark = Mark::Held(self.mark.clone());
        }
    }
}

/// A series of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeriesKey {
    /// The number of the recorder.
    recorder: u64,
    metric: &'static str,
    name: Arc<str>,
    label: ExtraLabel,
}

/// The part of a source in a series, and the recorder's end of it.
#[derive(Debug)]
struct Series {
    to: RecorderEnd,
    /// What was handed over of a counter or histogram.
    published: Value,
}

/// A recorder's end of a series.
#[derive(Debug)]
enum RecorderEnd {
    Counter(Counter),
    Gauge(Gauge),
    Times(Histogram),
}

/// The values of a gauge, by the number of each living source.
type GaugeValues = HashMap<u64, f64>;

/// All gauges of the process. Never locked while a recorder is called.
static GAUGES: LazyLock<Mutex<HashMap<SeriesKey, GaugeValues>>> = LazyLock::new(Mutex::default);

/// Takes the value of a source out of a gauge. One without sources is forgotten.
fn take_out(all: &mut HashMap<SeriesKey, GaugeValues>, key: &SeriesKey, source: u64) {
    if let Some(values) = all.get_mut(key) {
        values.remove(&source);
        if values.is_empty() {
            all.remove(key);
        }
    }
}

/// The part that one source has in the recorders' series.
#[derive(Debug)]
pub struct Published {
    /// Distinguishes sources of one name.
    source: u64,
    state: Mutex<State>,
}

/// The series that a source has published.
type AllSeries = HashMap<SeriesKey, Series>;

/// Locked for a moment, never while a recorder is called.
#[derive(Debug)]
struct State {
    /// `None` while a call hands them over.
    series: Option<AllSeries>,
    /// Set as the source ends: nothing is published any more.
    is_withdrawn: bool,
    /// Set for good by the first call that publishes in detail.
    is_in_detail: bool,
}

impl Default for Published {
    fn default() -> Self {
        static SOURCES: AtomicU64 = AtomicU64::new(0);
        Published {
            source: SOURCES.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State {
                series: Some(HashMap::new()),
                is_withdrawn: false,
                is_in_detail: false,
            }),
        }
    }
}

/// The series of a source, which one call hands over. It puts them back, also if a recorder panics.
struct HandingOver<'a> {
    published: &'a Published,
    series: AllSeries,
}

impl Drop for HandingOver<'_> {
    fn drop(&mut self) {
        let series = std::mem::take(&mut self.series);
        self.published.state.lock().series = Some(series);
    }
}

impl Published {
    /// Publishes in detail, and has every later call do so: also the samples that were declared
    /// [in detail](Sample::in_detail).
    pub fn publish_in_detail(&self, of: &SourceName, read: impl Fn() -> Vec<Sample>) {
        self.state.lock().is_in_detail = true;
        self.publish(of, read);
    }

    /// Hands the samples that `read` returns to the installed recorder, unless another call is
    /// doing so, which may be further up this stack.
    pub fn publish(&self, of: &SourceName, read: impl Fn() -> Vec<Sample>) {
        // 1. The series are this call's alone until it is over.
        let mut state = self.state.lock();
        if state.is_withdrawn {
            return;
        }
        let Some(series) = state.series.take() else {
            return;
        };
        let is_in_detail = state.is_in_detail;
        drop(state);
        let mut handing_over = HandingOver {
            published: self,
            series,
        };
        // 2. Read now: read before, samples might be older than those published last.
        let samples = read();
        // 3. To the recorder, with nothing locked.
        let publishing = Publishing::begin(of);
        self.forget_gone(&mut handing_over.series, publishing.number);
        for sample in samples
            .iter()
            .filter(|sample| is_in_detail || !sample.is_detail)
        {
            self.publish_one(&mut handing_over.series, of, &publishing, sample);
        }
        drop(publishing);
        drop(handing_over);
        // 4. A source that has ended meanwhile has left its last publishing to this call.
        self.withdraw_if_ended(&read);
    }

    /// Hands one sample over.
    fn publish_one(
        &self,
        all: &mut AllSeries,
        of: &SourceName,
        publishing: &Publishing,
        sample: &Sample,
    ) {
        let key = SeriesKey {
            recorder: publishing.number,
            metric: sample.metric,
            name: of.name.clone(),
            label: sample.label,
        };
        // Registered each time: a recorder may have forgotten a series that was idle.
        let to = sample.register(of.label, &publishing.mark);
        let published = all.remove(&key).map(|earlier| earlier.published);
        let series = all.entry(key.clone()).or_insert(Series {
            to,
            published: published.unwrap_or_else(|| sample.value.nothing()),
        });
        series.hand_over(&key, self.source, sample);
    }

    /// Forgets the series of recorders that are gone, once there is a new one.
    fn forget_gone(&self, all: &mut AllSeries, present: u64) {
        if all.is_empty() || all.keys().any(|key| key.recorder == present) {
            return;
        }
        // 1. The numbers of those that live.
        let mut living = Vec::new();
        for recorder in RECORDERS.lock().values() {
            if recorder.mark.get().is_some() {
                living.push(recorder.number);
            }
        }
        // 2. The others' series go, and this source's values in their gauges. Handles of a
        //    recorder are dropped with nothing locked.
        let gone = all.keys().filter(|key| !living.contains(&key.recorder));
        let gone: Vec<_> = gone.cloned().collect();
        for key in gone {
            all.remove(&key);
            take_out(&mut GAUGES.lock(), &key, self.source);
        }
    }

    /// Publishes for the last time, to every recorder that this was published to: what counters and
    /// histograms have counted since, and gauges without this source. Nothing is published later;
    /// a call that is publishing now does this as it ends.
    pub fn withdraw(&self, read: impl Fn() -> Vec<Sample>) {
        self.state.lock().is_withdrawn = true;
        self.withdraw_if_ended(&read);
    }

    fn withdraw_if_ended(&self, read: &impl Fn() -> Vec<Sample>) {
        // 1. Once, by the call that takes the series.
        let mut state = self.state.lock();
        if !state.is_withdrawn {
            return;
        }
        let Some(all) = state.series.take() else {
            return;
        };
        drop(state);
        if all.is_empty() {
            return;
        }
        // 2. The last state of the counters; the gauges only go.
        let samples = read();
        for (key, mut series) in all {
            let mut same = samples.iter();
            let sample = same.find(|other| other.metric == key.metric && other.label == key.label);
            // A source ends in a drop, which must not panic.
            let _ = contain(|| match (&series.to, sample) {
                (RecorderEnd::Gauge(_), _) => series.withdraw(&key, self.source),
                (_, Some(sample)) => series.hand_over(&key, self.source, sample),
                (_, None) => {}
            });
        }
    }
}

impl Sample {
    /// Registers the series with the installed recorder, of which `mark` is the source's name.
    fn register(&self, source_label: &'static str, mark: &Arc<str>) -> RecorderEnd {
        // 1. The labels: the source's name, and a further one.
        let mut labels = vec![Label::new(source_label, mark.clone())];
        if let Some((label, value)) = self.label {
            labels.push(Label::new(label, value));
        }
        // 2. The help text and the series itself, by type.
        let metric = self.metric;
        match self.value {
            Value::Counter(_) => {
                describe_counter!(metric, self.unit(), self.help);
                RecorderEnd::Counter(counter!(metric, labels))
            }
            Value::Sum(_) | Value::Largest(_) => {
                describe_gauge!(metric, self.unit(), self.help);
                RecorderEnd::Gauge(gauge!(metric, labels))
            }
            Value::Times(_) => {
                describe_histogram!(metric, self.unit(), self.help);
                RecorderEnd::Times(histogram!(metric, labels))
            }
        }
    }
}

impl Series {
    /// Hands over the difference of a counter or histogram, or the new value of a gauge.
    fn hand_over(&mut self, key: &SeriesKey, source: u64, sample: &Sample) {
        // The difference to what was published last, or the combined gauge.
        match (&self.to, &mut self.published, &sample.value) {
            (RecorderEnd::Counter(to), Value::Counter(published), &Value::Counter(count)) => {
                // Stored first, so that a recorder that panics is given nothing twice.
                let difference = count.saturating_sub(*published);
                *published = count.max(*published);
                to.increment(difference);
            }
            (RecorderEnd::Times(to), Value::Times(published), Value::Times(times)) => {
                times.hand_over(published, to);
            }
            (RecorderEnd::Gauge(_), _, &(Value::Sum(value) | Value::Largest(value))) => {
                let mut all = GAUGES.lock();
                all.entry(key.clone()).or_default().insert(source, value);
                drop(all);
                self.show_gauge(key);
            }
            _ => {} // a metric keeps its type
        }
    }

    /// Takes the source out of a gauge.
    fn withdraw(&mut self, key: &SeriesKey, source: u64) {
        take_out(&mut GAUGES.lock(), key, source);
        self.show_gauge(key);
    }

    /// Shows the values of a gauge combined; 0 for one without sources.
    ///
    /// The recorder is called with nothing locked, so a value that another call combined later may
    /// reach it earlier. Each call therefore combines the values again after it has set the gauge,
    /// and sets it again if they differ: the one that sets it last has set what all have left.
    fn show_gauge(&self, key: &SeriesKey) {
        let RecorderEnd::Gauge(to) = &self.to else {
            return;
        };
        let combine = match self.published {
            Value::Largest(_) => f64::max,
            _ => std::ops::Add::add,
        };
        let combined = || {
            let all = GAUGES.lock();
            let values = all.get(key).into_iter().flat_map(HashMap::values);
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

/// A form on a timer, which is published with it.
pub trait Publishes: Send + Sync {
    /// Hands what it counts to the installed recorder.
    fn publish(&self);
}

/// The forms on a timer. One that is dropped goes by itself.
#[derive(Default)]
pub struct Forms(Mutex<Vec<Weak<dyn Publishes>>>);

impl Forms {
    /// Adds a form. O(1) on average.
    pub fn add(&self, form: Weak<dyn Publishes>) {
        let mut forms = self.0.lock();
        // Those that are gone make room before more is asked for.
        if forms.len() == forms.capacity() {
            forms.retain(|form| form.strong_count() > 0);
        }
        forms.push(form);
    }

    /// Publishes each form, with nothing locked.
    pub(crate) fn publish(&self) {
        let forms = self.0.lock().clone();
        for form in forms {
            if let Some(form) = form.upgrade() {
                form.publish();
            }
        }
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
