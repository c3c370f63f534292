//! What a form tells of its waits: ages, times, metrics.
#![cfg(not(loom))]

use crate::support::*;

#[test]
fn ages_and_times_are_those_of_each_wait() {
    let (timer, waits, values) = watermarks::<u32>();
    waits.times(); // timed from here on
    timer.advance(5 * MS);
    let _first = values.wait_for(&1, 5, 100 * MS);
    timer.advance(20 * MS);
    let _second = values.wait_for(&2, 7, NEVER);
    timer.advance(10 * MS);
    let snapshot = waits.snapshot(9);
    let oldest = snapshot.oldest.iter();
    let told = oldest.map(|told| (&*told.keys, told.age, told.expires_in));
    let first = (&[1][..], 30 * MS, Some(70 * MS));
    assert!(told.eq([first, (&[2], 10 * MS, None)]));
    let one = waits.snapshot(1);
    assert_eq!(one.oldest.len(), 1);
    assert_eq!(one.oldest[0].id, snapshot.oldest[0].id);

    values.advance(&2, 7).unwrap();
    timer.advance(70 * MS);
    let times = waits.times();
    assert_eq!(times.completed.sum_s(), 0.01);
    assert_eq!(times.expired.sum_s(), 0.1);
}

#[cfg(feature = "metrics")]
#[test]
fn a_form_publishes_its_numbers_and_takes_them_away() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let told = |name: &str, value: &str| {
        let page = recorder.handle().render();
        let line = format!("purgatory_{name} {value}\n");
        assert!(page.contains(&line), "no {line} in\n{page}");
    };
    metrics::with_local_recorder(&recorder, || {
        let (timer, waits, values) = watermarks::<u32>();
        let _two = [1, 2].map(|key| values.wait_for(&key, 5, NEVER));
        timer.advance(20 * MS);
        values.advance(&1, 5).unwrap();
        waits.publish();
        told("parked{purgatory=\"test\"}", "1");
        told("oldest_age_seconds{purgatory=\"test\"}", "0.02");
        values.advance(&2, 5).unwrap();
        drop((waits, values)); // what it has not published is published now
        told("parked{purgatory=\"test\"}", "0");
        told("ended_total{purgatory=\"test\",outcome=\"completed\"}", "2");
    });
}
