//! The metrics that `publish` gives to a real recorder; `docs/METRICS.md` has to list them.
#![cfg(all(feature = "metrics", not(loom)))]

use std::collections::BTreeSet;

use metrics::{Counter, Gauge, GaugeFn, Histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use timer_core::driver::{Published, Sample, SourceName};

use crate::support::*;

/// Creates a purgatory in which something of every kind has happened.
fn eventful(timer: &ManualTimer) -> Waiting {
    let purgatory = Purgatory::builder("orders")
        .timer(timer)
        .max_parked(4)
        .build()
        .unwrap();
    purgatory.publish(); // times are recorded from here on
    let ready = Probe::parked(&purgatory, &["k"], NEVER);
    Probe::parked(&purgatory, &["k"], 10 * MS);
    let panics = Probe::new();
    let checks = panics.clone();
    let operation = panics
        .operation()
        .on_check(move || assert!(checks.checks() < 2, "panics"));
    purgatory.park(operation, &["k"], NEVER);
    Probe::parked(&purgatory, Watches::keys(&["k"]).labelled("yours"), NEVER);
    refused(&purgatory, Probe::new().operation(), &["k"]); // full
    timer.advance(20 * MS);
    ready.make_ready();
    assert_eq!(purgatory.check_and_complete(&"k"), 1);
    purgatory
        .try_complete_else_watch(ready.operation(), &["k"], NEVER)
        .unwrap(); // at once
    timer.advance(1500 * MS);
    purgatory
}

fn exposition(publish: impl FnOnce()) -> String {
    let builder = PrometheusBuilder::new()
        .set_buckets(TimeHistogram::BOUNDS_S)
        .unwrap();
    let recorder = builder.build_recorder();
    metrics::with_local_recorder(&recorder, publish);
    recorder.handle().render()
}

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().build_recorder()
}

/// Asserts that this line is on the recorder's page.
#[track_caller]
fn assert_told(recorder: &PrometheusRecorder, line: &str) {
    let page = recorder.handle().render();
    assert!(page.contains(line), "no {line} in\n{page}");
}

/// Returns the number of series on the recorder's page whose names begin with this.
fn series_of(recorder: &PrometheusRecorder, name: &str) -> usize {
    let page = recorder.handle().render();
    page.lines().filter(|line| line.starts_with(name)).count()
}

#[test]
fn counters_of_one_name_go_on_and_gauges_add_up() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let connect = || -> Waiting {
        let builder = Purgatory::builder("replies").timer(&timer);
        builder.max_parked(1000).build().unwrap()
    };
    let park = |purgatory: &Waiting, count| {
        for _ in 0..count {
            Probe::parked(purgatory, &["k"], 10 * MS);
        }
    };
    let ended = |outcome: &str, count: u64| {
        let labels = format!("{{purgatory=\"replies\",outcome=\"{outcome}\"}}");
        assert_told(
            &recorder,
            &format!("purgatory_ended_total{labels} {count}\n"),
        );
    };
    let gauge = |name: &str, value: f64| {
        let line = format!("purgatory_{name}{{purgatory=\"replies\"}} {value}\n");
        assert_told(&recorder, &line);
    };
    metrics::with_local_recorder(&recorder, || {
        // A thousand operations end; then the connection is made anew, under the same name.
        let first = connect();
        first.publish();
        let series_of_one = series_of(&recorder, "purgatory_");
        park(&first, 1000);
        timer.advance(20 * MS);
        assert_eq!(first.stats().expired, 1000);
        drop(first); // publishes the counts that were not published yet
        ended("expired", 1000);
        gauge("max_parked", 0.0);

        let second = connect();
        park(&second, 900);
        timer.advance(20 * MS);
        second.publish();
        second.publish(); // nothing twice
        ended("expired", 1900);
        gauge("max_parked", 1000.0);

        // With two forms at once, numbers add up, and the largest age is shown.
        let third = connect();
        park(&second, 5);
        timer.advance(5 * MS);
        park(&third, 2);
        second.publish();
        third.publish();
        gauge("parked", 7.0);
        gauge("max_parked", 2000.0);
        gauge("oldest_age_seconds", 0.005);
        drop(second);
        gauge("parked", 2.0);
        gauge("oldest_age_seconds", 0.0);
        drop(third);
        gauge("parked", 0.0);
        ended("cancelled", 7);
        let series = series_of(&recorder, "purgatory_");
        assert_eq!(series, series_of_one, "three have as many series as one");
    });
}

#[test]
fn a_check_is_timed_from_the_scrape_that_found_it() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let (timer, purgatory) = waiting();
        let inside = purgatory.clone();
        let operation = Probe::new().operation().on_check(move || {
            inside.publish();
            timer.pass(5 * MS);
            inside.publish();
        });
        purgatory.park(operation, &["k"], NEVER);
        purgatory.check_and_complete(&"k");
        let line = "purgatory_longest_check_seconds{purgatory=\"test\"} 0.005\n";
        assert_told(&recorder, line);
    });
}

#[test]
fn timers_of_one_name_add_up() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let timers = [3, 4].map(|count| {
            let timer = SystemTimer::builder().name("shared").build().unwrap();
            for _ in 0..count {
                timer.schedule(3_600_000 * MS, || ()).unwrap();
            }
            timer.publish();
            timer
        });
        let [first, second] = timers;
        assert_told(&recorder, "timer_pending{timer=\"shared\"} 7\n");
        drop(first);
        assert_told(&recorder, "timer_pending{timer=\"shared\"} 4\n");
        drop(second);
        assert_told(&recorder, "timer_pending{timer=\"shared\"} 0\n");
    });
}

#[test]
fn timer_of_any_kind_publishes_what_its_kind_does() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let publish = |timer: Timer| {
            timer.schedule(3_600_000 * MS, || ()).unwrap();
            timer.publish();
            let page = recorder.handle().render();
            drop(timer);
            page
        };
        assert_eq!(publish(ManualTimer::new().into()), "");
        let system = SystemTimer::builder().name("any").build().unwrap();
        system.publish();
        let page = publish(system.clone().into()); // one timer: no second series, and no sum
        assert!(page.contains("timer_pending{timer=\"any\"} 1\n"), "{page}");
    });
}

#[test]
fn timer_publishes_each_form_on_it() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let orders: Purgatory<u32> = Purgatory::on(&timer, "orders").unwrap();
    let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
    let places = Permits::builder("places").timer(&timer).build().unwrap();
    let wait = ends.wait_for(&7, 1, NEVER);
    metrics::with_local_recorder(&recorder, || {
        timer.publish();
        let parked = |name: &str, count: u32| {
            let line = format!("purgatory_parked{{purgatory=\"{name}\"}} {count}\n");
            assert_told(&recorder, &line);
        };
        parked("orders", 0);
        parked("ends", 1);
        parked("places", 0);
        // A future keeps the memory of its form, but a form without handles is no longer published.
        drop(ends);
        parked("ends", 0);
        timer.publish();
        let ended = "purgatory_ended_total{purgatory=\"ends\",outcome=\"cancelled\"} 1\n";
        assert_told(&recorder, ended);
        drop((wait, orders, places));
        timer.publish();
        parked("orders", 0);
    });
}

/// The limits of one name add up, and so do the permits taken, over keys and forms.
#[test]
fn permits_publish_their_limit_and_what_is_taken() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let told = |limit: u64, taken: u64| {
        metrics::with_local_recorder(&recorder, || timer.publish());
        for (gauge, value) in [("limit", limit), ("taken", taken)] {
            let line = format!("purgatory_permits_{gauge}{{purgatory=\"sends\"}} {value}\n");
            assert_told(&recorder, &line);
        }
    };
    let sends = Permits::on(&timer, "sends", 5).unwrap();
    told(5, 0);
    let used_up = sends.try_acquire(2).unwrap();
    let lease = sends.lease(1, MINUTE, NEVER).wait_blocking().unwrap();
    told(5, 3);
    used_up.forget();
    told(3, 1);

    // Permits with more keys than one lock hold visits.
    let by_client = Permits::<u32>::keyed_builder("sends").limit(10);
    let by_client = by_client.timer(&timer).shards(2).build().unwrap();
    told(13, 1);
    let take = |client| by_client.try_acquire_for(&client, 2).unwrap();
    let mut held: Vec<_> = (0..300).map(take).collect();
    told(13, 601);
    held.truncate(100);
    told(13, 201);
    drop(by_client); // its permits are still held
    told(3, 1);
    drop((sends, lease, held));
    told(0, 0);
}

/// A group belongs to this process while the process leads it and it is open.
#[test]
fn groups_are_published_with_those_below_floor() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let told = |groups: u64, below_floor: u64| {
        metrics::with_local_recorder(&recorder, || timer.publish());
        for (gauge, value) in [("groups", groups), ("groups_below_floor", below_floor)] {
            let line = format!("purgatory_{gauge}{{purgatory=\"logs\"}} {value}\n");
            assert_told(&recorder, &line);
        }
    };
    let logs: ReplicaSets<u32, &str> = {
        let builder = ReplicaSets::builder("logs").timer(&timer);
        builder.shards(2).build().unwrap()
    };
    let _marks: Watermarks<u32> = Watermarks::on(&timer, "marks").unwrap(); // it has no groups
    told(0, 0);
    // More groups than one lock hold visits.
    let set = |group, members: &[&'static str]| {
        let members = members.iter().map(|&member| (member, 0));
        logs.set(&group, 1, members, 0, Rule::all().floor(2))
            .unwrap();
    };
    for group in 0..300 {
        set(group, &["leader", "a"]);
    }
    told(300, 0);
    for group in 0..200 {
        logs.in_epoch(&group, 1).leave(&"a").unwrap();
    }
    told(300, 200);
    logs.in_epoch(&0, 1).join("b", 0).unwrap();
    logs.in_epoch(&1, 1).set_rule(Rule::all()).unwrap();
    told(300, 198);
    logs.in_epoch(&2, 1).set_rule(Rule::at_least(2)).unwrap();
    told(300, 198);
    logs.follow(&3, 2).unwrap(); // its leader has the set
    logs.close(&4, "deleted"); // no member can come back
    logs.remove(&5);
    told(297, 195);
    assert_eq!(series_of(&recorder, "purgatory_groups"), 2);
    logs.waits().shutdown(Duration::ZERO);
    told(0, 0);
}

/// A form that was not published before its last handle was dropped is not published later.
#[test]
fn form_without_handles_is_not_published() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
    let wait = ends.wait_for(&7, 1, NEVER);
    drop(ends);
    metrics::with_local_recorder(&recorder, || timer.publish());
    drop(wait);
    // Nor does a call that found the form earlier publish it.
    let published = Published::default();
    published.withdraw(&Vec::new);
    let name = SourceName {
        label: "purgatory",
        name: "gone".into(),
    };
    let read = || vec![Sample::sum("parked", "Waits.", 1.0)];
    metrics::with_local_recorder(&recorder, || published.publish(&name, false, &read));
    assert_eq!(recorder.handle().render(), "");
}

/// The last handle is dropped in a last check: then that wait ends, and the callback after it
/// panics.
#[test]
fn ends_after_the_last_handle_are_published() {
    let recorder = recorder();
    let timer = ManualTimer::new();
    let purgatory: Purgatory<u32> = Purgatory::on(&timer, "gone").unwrap();
    metrics::with_local_recorder(&recorder, || purgatory.publish());
    let handle = Arc::new(Mutex::new(None));
    let last = handle.clone();
    let wait = purgatory.wait(&[1], 10 * MS, move || {
        drop(last.lock().unwrap().take());
        false
    });
    purgatory.park(when(|| false, |_| panic!("a callback")), &[1], 10 * MS);
    *handle.lock().unwrap() = Some(purgatory);
    timer.advance(10 * MS);
    assert!(handle.lock().unwrap().is_none());
    drop(wait);
    let counted = |name: &str, labels: &str, count: u64| {
        let line = format!("purgatory_{name}{{purgatory=\"gone\"{labels}}} {count}\n");
        assert_told(&recorder, &line);
    };
    counted("parked_total", "", 2);
    counted("ended_total", ",outcome=\"expired\"", 2);
    counted("panics_total", "", 1);
    counted("parked", "", 0);
}

/// A source that stays lets go of a recorder that is gone when it publishes to another one.
#[test]
fn series_of_recorders_that_are_gone_are_forgotten() {
    let purgatory = eventful(&ManualTimer::new());
    let counted = Arc::new(AtomicU64::new(0));
    let labels = Mutex::new(Vec::new());
    let keeps_labels = Records {
        counter: Box::new(|key| {
            labels.lock().unwrap().push(key.clone());
            Counter::from_arc(counted.clone())
        }),
        ..Records::nothing()
    };
    metrics::with_local_recorder(&keeps_labels, || purgatory.publish());
    drop(keeps_labels);
    drop(labels);
    assert!(Arc::strong_count(&counted) > 1);
    metrics::with_local_recorder(&recorder(), || purgatory.publish());
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// A recorder that keeps no labels, as a program without a recorder has, is known by its address.
/// It gets no count twice, not even when it publishes itself. It has one counter for all series.
#[test]
fn recorder_without_labels_gets_no_count_twice() {
    let counted = Arc::new(AtomicU64::new(0));
    let purgatory = eventful(&ManualTimer::new());
    let recorder = Records {
        counter: Box::new(|_| {
            purgatory.publish();
            Counter::from_arc(counted.clone())
        }),
        ..Records::nothing()
    };
    metrics::with_local_recorder(&recorder, || {
        purgatory.publish();
        let first = counted.load(SeqCst);
        assert!(first > 0);
        purgatory.publish();
        purgatory.publish();
        assert_eq!(counted.load(SeqCst), first);
    });
}

/// A gauge whose first set is overtaken: before its value arrives, another source publishes.
struct Overtaken {
    shown: Mutex<f64>,
    overtake: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl GaugeFn for Overtaken {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        let overtake = self.overtake.lock().unwrap().take();
        if let Some(overtake) = overtake {
            overtake();
        }
        *self.shown.lock().unwrap() = value;
    }
}

#[test]
fn overtaken_gauge_shows_the_last_sum() {
    let timer = ManualTimer::new();
    let [first, second] = [1, 2].map(|count| {
        let purgatory: Waiting = Purgatory::on(&timer, "overtaken").unwrap();
        for _ in 0..count {
            Probe::parked(&purgatory, &["k"], NEVER);
        }
        purgatory
    });
    let other = second.clone();
    let gauge = Arc::new(Overtaken {
        shown: Mutex::new(0.0),
        overtake: Mutex::new(Some(Box::new(move || other.publish()))),
    });
    let recorder = Records {
        gauge: Box::new(|name| match name {
            "purgatory_parked" => Gauge::from_arc(gauge.clone()),
            _ => Gauge::noop(),
        }),
        ..Records::nothing()
    };
    metrics::with_local_recorder(&recorder, || first.publish());
    assert_eq!(*gauge.shown.lock().unwrap(), 3.0);
    // The same happens when a purgatory is dropped.
    let other = second.clone();
    *gauge.overtake.lock().unwrap() = Some(Box::new(move || {
        Probe::parked(&other, &["k"], NEVER);
        other.publish();
    }));
    metrics::with_local_recorder(&recorder, || drop(first));
    assert_eq!(*gauge.shown.lock().unwrap(), 3.0);
}

#[test]
fn a_real_recorder_is_handed_counts_and_histograms() {
    let timer = ManualTimer::new();
    let mut kept = None; // a dropped purgatory takes its gauges along
    let page = exposition(|| {
        let purgatory = kept.insert(eventful(&timer));
        purgatory.publish_in_detail();
        purgatory.publish(); // each wait is handed over once
    });
    // Checks: 4 at parks, of which one is refused and one ends at once, and 3 by the event.
    let expected = r#"
        parked 1
        watched 1
        keys 1
        oldest_age_seconds 1.52
        longest_check_seconds 0
        callbacks_waiting 0
        parked_total 4
        ended_total{outcome="completed"} 1
        ended_total{outcome="expired"} 1
        ended_total{outcome="cancelled"} 1
        cancelled_total{reason="future_dropped"} 0
        cancelled_total{reason="panicked"} 1
        cancelled_total{reason="requested"} 0
        ended_at_once_total 1
        refused_total{reason="full"} 1
        events_total 1
        panics_total 1
        missed_events_total 0
        checks_total 9
        wait_seconds_bucket{outcome="completed",le="0.01"} 0
        wait_seconds_bucket{outcome="completed",le="0.025"} 1
        wait_seconds_sum{outcome="completed"} 0.02
        wait_seconds_count{outcome="completed"} 1
        wait_seconds_bucket{outcome="expired",le="0.01"} 1
        expiry_lateness_seconds_count 1
        callback_delay_seconds_count 1
    "#;
    let page = page
        .replace("{purgatory=\"orders\"}", "")
        .replace("purgatory=\"orders\",", "");
    for line in expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let line = format!("purgatory_{line}");
        assert!(
            page.lines().any(|other| other == line),
            "{line} is not in\n{page}"
        );
    }
}

/// A recorder that keeps the values of its histograms, and panics after the third one.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<f64>>>);

impl metrics::HistogramFn for Kept {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
        let taken = self.0.lock().unwrap().len();
        assert_ne!(taken, 3, "this recorder panics");
    }
}

#[test]
fn a_panicking_recorder_is_given_no_bucket_twice() {
    let (timer, purgatory) = waiting();
    purgatory.times();
    for timeout in [MS, 20 * MS, 300 * MS] {
        Probe::parked(&purgatory, &["k"], timeout);
    }
    timer.advance(300 * MS);
    let kept = Kept::default();
    let recorder = Records {
        histogram: Box::new(|| Histogram::from_arc(Arc::new(kept.clone()))),
        ..Records::nothing()
    };
    metrics::with_local_recorder(&recorder, || {
        let publish = std::panic::AssertUnwindSafe(|| purgatory.publish_in_detail());
        std::panic::catch_unwind(publish).unwrap_err();
        purgatory.publish();
    });
    let mut waits = kept.0.lock().unwrap().clone();
    waits.retain(|&wait| wait > 0.0); // no expiry was late
    assert_eq!(waits, [0.001, 0.02, 0.3]); // no value came twice
}

/// A row `| name | labels | Note. |` of the page's tables.
struct Row<'a> {
    name: &'a str,
    /// Each label as `label="value"`.
    labels: BTreeSet<String>,
    /// The facts that the HELP text leaves out; a histogram's note begins with that word.
    note: &'a str,
}

impl Row<'_> {
    /// Returns the type that the page gives the metric.
    fn kind(&self) -> &'static str {
        if self.name.ends_with("_total") {
            "counter"
        } else if self.note.starts_with("Histogram.") {
            "histogram"
        } else {
            "gauge"
        }
    }
}

fn documented(page: &str) -> Vec<Row<'_>> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let labels = cells[2]
            .split(';')
            .filter_map(|label| label.split_once(':'));
        let quiet = |word: &str| word.trim().trim_matches('`').to_owned();
        let labels = labels.flat_map(|(label, values)| {
            let pair = move |value| format!("{}=\"{}\"", quiet(label), quiet(value));
            values.split(',').map(pair)
        });
        Row {
            name: cells[1],
            labels: labels.collect(),
            note: cells[3],
        }
    })
    .collect()
}

#[test]
fn the_page_lists_exactly_what_is_published() {
    let page = exposition(|| {
        let forms = ManualTimer::new();
        let _permits = Permits::on(&forms, "sends", 1).unwrap();
        let _sets: ReplicaSets<u32, u32> = ReplicaSets::on(&forms, "logs").unwrap();
        eventful(&forms).publish_in_detail();
        forms.publish();
        let timer = SystemTimer::new().unwrap();
        timer.schedule(Duration::ZERO, || ()).unwrap();
        while timer.stats().turns.count() == 0 {
            std::thread::yield_now();
        }
        timer.publish();
    });
    let rows = documented(include_str!("../../../../docs/METRICS.md"));
    let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(
        types
            .map(|line| line.split(' ').next().unwrap())
            .collect::<BTreeSet<_>>(),
        names
    );
    for row in rows {
        let kind = row.kind();
        let Row { name, labels, note } = row;
        assert!(
            page.contains(&format!("# TYPE {name} {kind}\n")),
            "{name} is no {kind}"
        );
        let told = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("# HELP {name} ")));
        let told = told.unwrap();
        assert!(told.ends_with('.'), "{name}: {told:?} is cut off");
        assert!(!note.contains(told), "{name}: HELP says {told:?}");
        assert!(kind != "histogram" || name.ends_with("_seconds"));
        let ends = ["", "_bucket", "_sum", "_count"].map(|end| format!("{name}{end}{{"));
        let lines = page
            .lines()
            .filter(|line| ends.iter().any(|end| line.starts_with(end)));
        let told = lines.flat_map(|line| line.split(['{', '}']).nth(1).unwrap().split(','));
        let own = ["purgatory=", "timer=", "le="];
        let told = told.filter(|label| !own.iter().any(|own| label.starts_with(own)));
        assert_eq!(
            told.map(str::to_owned).collect::<BTreeSet<_>>(),
            labels,
            "{name}"
        );
    }
}

#[test]
fn labels_end_at_zero() {
    let recorder = recorder();
    let (_timer, waits) = waiting();
    let told = |line: &str| {
        metrics::with_local_recorder(&recorder, || waits.publish());
        assert_told(&recorder, line);
    };
    let fetch = Watches::keys(&["k"]).labelled("fetch");
    let id = waits.park(Probe::new().operation(), fetch, NEVER);
    told("purgatory_parked_by_label{purgatory=\"test\",label=\"fetch\"} 1\n");
    waits.cancel(id, "gone");
    told("purgatory_parked_by_label{purgatory=\"test\",label=\"fetch\"} 0\n");
}

/// Returns the number of series of a purgatory without labels once everything has happened, and the
/// number of them that are one histogram's.
fn series_of_one(bounds_s: &[f64], in_detail: bool) -> [usize; 2] {
    let builder = PrometheusBuilder::new().set_buckets(bounds_s).unwrap();
    let recorder = builder.build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let timer = ManualTimer::new();
        let builder = Purgatory::builder("orders").timer(&timer).max_parked(4);
        let purgatory: Waiting = builder.build().unwrap();
        if in_detail {
            purgatory.publish_in_detail();
        }
        purgatory.publish();
        // A histogram has buckets only once it has a value: give it one for each outcome.
        let completes = Probe::parked(&purgatory, &["k"], NEVER);
        let cancelled = Probe::new().operation();
        let cancelled = purgatory.park(cancelled, &["other"], NEVER);
        Probe::parked(&purgatory, &["k"], MS);
        timer.advance(2 * MS);
        completes.make_ready();
        assert_eq!(purgatory.check_and_complete(&"k"), 1);
        purgatory.cancel(cancelled, "gone");
        purgatory.publish();

        let counted = ["purgatory_", "purgatory_callback_delay_seconds"];
        counted.map(|name| series_of(&recorder, name))
    })
}

/// The numbers of series on docs/METRICS.md are those of a purgatory without labels.
#[test]
fn the_page_states_how_many_series_a_purgatory_makes() {
    let coarse = TimeHistogram::COARSE_BOUNDS_S;
    let [all, of_one] = series_of_one(coarse, false);
    assert!(all <= 80, "{all} series");
    let [all_in_detail, _] = series_of_one(coarse, true);
    let [all_fine, of_one_fine] = series_of_one(TimeHistogram::BOUNDS_S, false);
    let [most, _] = series_of_one(TimeHistogram::BOUNDS_S, true);
    let stated = format!(
        "A purgatory makes {all} series, {} of them in 3 histograms of {of_one} each. \
         `publish_in_detail` adds 2 histograms: {all_in_detail} series. With `BOUNDS_S` a histogram \
         makes {of_one_fine}: {all_fine} series, and {most} in detail.",
        3 * of_one
    );
    let documented = include_str!("../../../../docs/METRICS.md").replace('\n', " ");
    assert!(documented.contains(&stated), "not on the page: {stated}");
}

/// Alerts compare a quantile with the bound of a bucket: between bounds, a quantile is a guess.
#[test]
fn coarse_bounds_include_those_of_the_alerts() {
    let alerts = include_str!("../../../../docs/prometheus/alerts.yml");
    let mut compared = 0;
    for rule in alerts.lines().filter(|line| line.contains("_bucket[")) {
        let bound_s: f64 = rule.rsplit(' ').next().unwrap().parse().unwrap();
        let bounds_s = TimeHistogram::COARSE_BOUNDS_S;
        assert!(
            bounds_s.contains(&bound_s),
            "no bucket ends at that of {rule}"
        );
        compared += 1;
    }
    assert_eq!(compared, 3);
}

/// By default only completed waits are published. After a call for details, every call publishes
/// the other waits, too, whole for each recorder, and so does the drop of the form.
#[test]
fn details_cover_expired_and_cancelled_waits() {
    let timer = ManualTimer::new();
    let purgatory: Waiting = Purgatory::on(&timer, "orders").unwrap();
    let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
    let park = || {
        Probe::parked(&purgatory, &["k"], 10 * MS);
        drop(ends.wait_for(&7, 1, NEVER)); // cancelled
        timer.advance(20 * MS);
    };
    let counts = |recorder: &PrometheusRecorder, name: &str| {
        let page = recorder.handle().render();
        let start = format!("purgatory_wait_seconds_count{{purgatory=\"{name}\",outcome=");
        let mut counts: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix(&start))
            .collect();
        counts.sort_unstable();
        counts.join(", ")
    };
    let first = recorder();
    metrics::with_local_recorder(&first, || {
        timer.publish(); // waits are timed from here on
        park();
        timer.publish();
        assert_eq!(counts(&first, "orders"), "\"completed\"} 0");
        assert_eq!(counts(&first, "ends"), "\"completed\"} 0");

        ends.waits().publish_in_detail();
        purgatory.publish_in_detail();
        park();
        timer.publish();
    });
    let second = recorder();
    metrics::with_local_recorder(&second, || {
        purgatory.publish();
        ends.waits().publish();
    });
    park();
    drop((purgatory, ends));
    for recorder in [&first, &second] {
        let orders = counts(recorder, "orders");
        assert_eq!(orders, "\"cancelled\"} 0, \"completed\"} 0, \"expired\"} 3");
        let ends = counts(recorder, "ends");
        assert_eq!(ends, "\"cancelled\"} 3, \"completed\"} 0, \"expired\"} 0");
    }
}

/// A scrape handler that has only the form asks it for the timer each time.
#[test]
fn timer_is_published_by_each_handle_from_a_form() {
    let recorder = recorder();
    let timer = SystemTimer::builder().name("asked").build().unwrap();
    let waits: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    drop(timer);
    metrics::with_local_recorder(&recorder, || {
        for pending in 1..4 {
            waits.park(when(|| false, drop), &[1], MINUTE * 60);
            waits.timer().publish();
            let timer = waits.timer();
            timer.publish();
            assert_told(
                &recorder,
                &format!("timer_pending{{timer=\"asked\"}} {pending}\n"),
            );
        }
    });
}

/// The act that an executor does, once, when it is asked how many jobs wait.
type Act = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

struct ActsAsCounted(Act);

impl std::fmt::Debug for ActsAsCounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ActsAsCounted")
    }
}

impl Executor for ActsAsCounted {
    fn execute(&self, job: Job) {
        job.run();
    }

    fn queued(&self) -> Option<u64> {
        let act = self.0.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        Some(0)
    }
}

/// The handle comes during the withdrawal of the last one, and keeps its gauges.
#[test]
fn a_handle_that_comes_as_the_last_goes_is_published() {
    let recorder = recorder();
    let at_count: Act = Arc::default();
    let builder = SystemTimer::builder().name("renewed");
    let timer = builder
        .executor(ActsAsCounted(at_count.clone()))
        .build()
        .unwrap();
    let waits: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    waits.park(never(), &[1], MINUTE * 60);
    let (send, next) = mpsc::channel();
    let pending = "timer_pending{timer=\"renewed\"} ";
    metrics::with_local_recorder(&recorder, || {
        timer.publish();
        let act = move || {
            let timer = waits.timer();
            timer.publish();
            send.send((timer, waits)).unwrap();
        };
        *at_count.lock().unwrap() = Some(Box::new(act));
        drop(timer);
        let (timer, _waits) = next.try_recv().unwrap();
        assert_told(&recorder, &format!("{pending}1\n"));
        drop(timer);
        assert_told(&recorder, &format!("{pending}0\n"));
    });
}

/// The handle is dropped during the withdrawal of the one before.
#[test]
fn counts_of_a_handle_dropped_in_withdrawal_appear() {
    let recorder = recorder();
    let at_count: Act = Arc::default();
    let builder = SystemTimer::builder().name("renewed twice");
    let timer = builder
        .executor(ActsAsCounted(at_count.clone()))
        .build()
        .unwrap();
    let waits: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    metrics::with_local_recorder(&recorder, || {
        timer.publish();
        let inside = waits.clone();
        let act = move || {
            let timer = inside.timer();
            let task = timer.schedule(MINUTE, || ()).unwrap();
            assert!(timer.cancel(task));
            timer.publish();
        };
        *at_count.lock().unwrap() = Some(Box::new(act));
        drop(timer);
        assert_told(
            &recorder,
            "timer_cancelled_total{timer=\"renewed twice\"} 1\n",
        );
    });
}
