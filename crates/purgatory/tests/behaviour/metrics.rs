//! What `publish` hands to a real recorder, and that `docs/METRICS.md` says so.
#![cfg(all(feature = "metrics", not(loom)))]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{MS, Op, Park, Probe, Waiting, waiting};
use metrics::{Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::PrometheusBuilder;
use purgatory::{Purgatory, Timeout, Watches};
use timer_core::{ManualTimer, SystemTimer, TimeHistogram, Timer};

/// A purgatory in which something of everything has happened.
fn eventful(timer: &ManualTimer) -> Waiting {
    let purgatory =
        Purgatory::builder("orders").timer(timer).max_parked(4).max_weight(9).build().unwrap();
    purgatory.publish(); // times count from here on
    let park = |operation: Op, timeout| {
        purgatory.try_complete_else_watch(operation, &["k"], timeout).map(drop)
    };
    let ready = Probe::new();
    park(ready.operation(), Timeout::Never).unwrap();
    park(Probe::new().operation(), Timeout::After(10 * MS)).unwrap();
    let mut checks = 0;
    let panics = move || {
        checks += 1;
        assert!(checks < 2, "the second check panics");
    };
    park(Probe::new().operation().on_check(panics), Timeout::Never).unwrap();
    let named = Watches::keys(&["k"]).labelled("yours");
    purgatory.park(Probe::new().operation(), named, Timeout::Never);
    drop(park(Probe::new().operation(), Timeout::Never).unwrap_err()); // full
    timer.advance(20 * MS);
    ready.make_ready();
    assert_eq!(purgatory.check_and_complete(&"k"), 1);
    park(ready.operation(), Timeout::Never).unwrap(); // at once
    timer.advance(Duration::from_millis(1500));
    purgatory
}

fn exposition(publish: impl FnOnce()) -> String {
    let builder = PrometheusBuilder::new().set_buckets(TimeHistogram::BOUNDS_S).unwrap();
    let recorder = builder.build_recorder();
    metrics::with_local_recorder(&recorder, publish);
    recorder.handle().render()
}

fn assert_has(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|other| other == *line), "{line} is not in\n{page}");
    }
}

#[test]
fn a_real_recorder_is_handed_counts_and_histograms() {
    let timer = ManualTimer::new();
    let page = exposition(|| {
        let purgatory = eventful(&timer);
        purgatory.publish();
        purgatory.publish(); // each wait is handed over once
    });
    assert_has(
        &page,
        &[
            "purgatory_parked{purgatory=\"orders\"} 1",
            "purgatory_watched{purgatory=\"orders\"} 1",
            "purgatory_keys{purgatory=\"orders\"} 1",
            "purgatory_oldest_age_seconds{purgatory=\"orders\"} 1.52",
            "purgatory_longest_check_seconds{purgatory=\"orders\"} 0",
            "purgatory_callbacks_waiting{purgatory=\"orders\"} 0",
            "purgatory_parked_total{purgatory=\"orders\"} 4",
            "purgatory_ended_total{purgatory=\"orders\",outcome=\"completed\"} 1",
            "purgatory_ended_total{purgatory=\"orders\",outcome=\"expired\"} 1",
            "purgatory_ended_total{purgatory=\"orders\",outcome=\"cancelled\"} 1",
            "purgatory_cancelled_total{purgatory=\"orders\",reason=\"panicked\"} 1",
            "purgatory_cancelled_total{purgatory=\"orders\",reason=\"requested\"} 0",
            "purgatory_ended_at_once_total{purgatory=\"orders\"} 1",
            "purgatory_refused_total{purgatory=\"orders\",reason=\"full\"} 1",
            "purgatory_events_total{purgatory=\"orders\"} 1",
            "purgatory_panics_total{purgatory=\"orders\"} 1",
            "purgatory_missed_events_total{purgatory=\"orders\"} 0",
            // 4, one refused, one at once, 3 for the event.
            "purgatory_checks_total{purgatory=\"orders\"} 9",
            "purgatory_wait_seconds_bucket{purgatory=\"orders\",outcome=\"completed\",le=\"0.01\"} 0",
            "purgatory_wait_seconds_bucket{purgatory=\"orders\",outcome=\"completed\",le=\"0.025\"} 1",
            "purgatory_wait_seconds_sum{purgatory=\"orders\",outcome=\"completed\"} 0.02",
            "purgatory_wait_seconds_count{purgatory=\"orders\",outcome=\"completed\"} 1",
            "purgatory_wait_seconds_bucket{purgatory=\"orders\",outcome=\"expired\",le=\"0.01\"} 1",
            "purgatory_expiry_lateness_seconds_count{purgatory=\"orders\"} 1",
            "purgatory_callback_delay_seconds_count{purgatory=\"orders\"} 1",
        ],
    );
}

/// Keeps what histograms are given, and does something once while gauges are registered.
struct Kept<F> {
    values: Arc<Values>,
    once: Mutex<Option<F>>,
}

/// Given to a histogram; after so many values it panics once.
#[derive(Default)]
struct Values {
    given: Mutex<Vec<f64>>,
    panics_after: Mutex<Option<usize>>,
}

impl metrics::HistogramFn for Values {
    fn record(&self, value: f64) {
        let mut given = self.given.lock().unwrap();
        if self.panics_after.lock().unwrap().take_if(|after| given.len() == *after).is_some() {
            drop(given);
            panic!("this recorder panics");
        }
        given.push(value);
    }
}

impl<F: FnOnce()> Recorder for Kept<F> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> metrics::Counter {
        metrics::Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let once = self.once.lock().unwrap().take();
        if let Some(once) = once {
            metrics::with_local_recorder(self, once);
        }
        metrics::Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.values.clone())
    }
}

#[test]
fn a_panicking_recorder_is_given_no_bucket_twice() {
    let (timer, purgatory) = waiting();
    purgatory.times();
    for timeout in [MS, 20 * MS, 300 * MS] {
        let operation = Probe::new().operation();
        purgatory.park(operation, &["k"], timeout);
    }
    timer.advance(300 * MS);
    let values = Arc::<Values>::default();
    *values.panics_after.lock().unwrap() = Some(2);
    let recorder = Kept { values: values.clone(), once: Mutex::new(None::<fn()>) };
    metrics::with_local_recorder(&recorder, || {
        let publish = std::panic::AssertUnwindSafe(|| purgatory.publish());
        std::panic::catch_unwind(publish).unwrap_err();
        purgatory.publish();
    });
    let mut waits = values.given.lock().unwrap().clone();
    waits.retain(|&wait| wait > 0.0); // nothing was late
    assert_eq!(waits, [0.001, 0.02]); // the third was lost with the panic, and none came twice
}

/// What the table of a page says, or an exposition: type, help, and labels with their values, by
/// name.
type Told = BTreeMap<String, (String, String, Vec<String>)>;

fn exposed(page: &str) -> Told {
    let mut told = Told::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            told.entry(name.to_owned()).or_default().1 = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            told.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else if let Some((name, rest)) = line.split_once('{') {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let name = base.filter(|base| told.contains_key(*base)).unwrap_or(name);
            let labels = rest.split_once('}').unwrap().0.split(',');
            let said = told.get_mut(name).unwrap();
            for label in labels.filter(|label| !label.starts_with("le=")) {
                let (label, value) = label.split_once('=').unwrap();
                if !["purgatory", "timer"].contains(&label) {
                    said.2.push(format!("{label}={}", value.trim_matches('"')));
                }
            }
        }
    }
    told.values_mut().for_each(|told| {
        told.2.sort_unstable();
        told.2.dedup();
    });
    told
}

/// The rows `| name | type | labels | HELP, then more | ... |`.
fn documented(page: &str) -> Told {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let mut labels = Vec::new();
        for label in cells[3].split(';').filter(|cell| !cell.is_empty()) {
            let (label, values) = label.split_once(':').unwrap();
            let label = label.trim().trim_matches('`');
            labels.extend(
                values.split(',').map(|v| format!("{label}={}", v.trim().trim_matches('`'))),
            );
        }
        labels.sort_unstable();
        (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), cells[4].to_owned(), labels))
    })
    .collect()
}

#[test]
fn the_page_lists_exactly_what_is_published() {
    let page = exposition(|| {
        eventful(&ManualTimer::new()).publish();
        let timer = SystemTimer::new().unwrap();
        timer.schedule(Duration::ZERO, || ()).unwrap();
        while timer.stats().turns.count() == 0 {
            std::thread::yield_now();
        }
        timer.publish();
    });
    let (exposed, documented) =
        (exposed(&page), documented(include_str!("../../../../docs/METRICS.md")));
    let names = |told: &Told| told.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&exposed), names(&documented));
    for (name, (kind, help, labels)) in &exposed {
        let row = &documented[name];
        assert_eq!((kind, labels), (&row.0, &row.2), "{name}: type and labels");
        assert!(row.1.starts_with(help.as_str()), "{name}: {help:?} does not begin {:?}", row.1);
        let suffix = match kind.as_str() {
            "counter" => name.ends_with("_total"),
            "histogram" => name.ends_with("_seconds"),
            _ => !name.ends_with("_total"),
        };
        assert!(suffix, "{name} is no name for a {kind}");
    }
}

#[test]
fn labels_read_zero_in_the_end_and_silence_is_told() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (timer, waits) = waiting();
    let told = |line: &str| {
        metrics::with_local_recorder(&recorder, || waits.publish());
        let page = recorder.handle().render();
        assert!(page.contains(line), "no {line} in\n{page}");
    };
    let fetch = Watches::keys(&["k"]).labelled("fetch");
    let id = waits.park(Probe::new().operation(), fetch, Timeout::Never);
    told("purgatory_parked_by_label{purgatory=\"test\",label=\"fetch\"} 1\n");
    timer.advance(Duration::from_millis(1500));
    told("purgatory_quietest_key_seconds{purgatory=\"test\"} 1.5\n");
    waits.cancel(id, "gone");
    told("purgatory_parked_by_label{purgatory=\"test\",label=\"fetch\"} 0\n");
    told("purgatory_quietest_key_seconds{purgatory=\"test\"} 0\n");
}
