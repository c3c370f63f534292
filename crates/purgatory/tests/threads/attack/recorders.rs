//! Recorders come and go on several threads, beside one that stays, while forms are published and
//! dropped: at its end each recorder has been given exactly what was counted until then.

use std::{cell::Cell, panic::resume_unwind};

use metrics::with_local_recorder;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::effort::effort;
use crate::support::*;

const THREADS: u64 = 4;

/// The number of rounds (`TEST_EFFORT` multiplies it): each makes a form and two recorders on each
/// thread.
const ROUNDS: u64 = 5;

/// The number of operations with each outcome, on each form in each round.
const ENDS: u64 = 3;

fn recorder() -> PrometheusRecorder {
    let builder = PrometheusBuilder::new();
    let bounded = builder.set_buckets(TimeHistogram::COARSE_BOUNDS_S).unwrap();
    bounded.build_recorder()
}

/// Asserts that a recorder's page has these values for series of this name.
#[track_caller]
fn assert_has(recorder: &PrometheusRecorder, name: &str, values: &[(&str, u64)]) {
    let page = recorder.handle().render();
    for (series, value) in values {
        let (metric, label) = series.split_once(' ').unwrap_or((series, ""));
        let line = format!("purgatory_{metric}{{purgatory=\"{name}\"{label}}} {value}\n");
        assert!(page.contains(&line), "no {line} in\n{page}");
    }
}

/// Publishes to a recorder that panics at one of its series and keeps none of them.
fn publish_to_one_that_panics(round: u64, publish: impl Fn()) {
    let left = Cell::new(round % 40);
    let panics = || {
        if left.replace(left.get().wrapping_sub(1)) == 0 {
            resume_unwind(Box::new("this recorder panics")); // prints nothing
        }
    };
    let recorder = Records::acting(panics);
    with_local_recorder(&recorder, || {
        let _ = catch_unwind(AssertUnwindSafe(publish));
    });
}

/// Ends operations of a purgatory under a key of this thread: as many complete as are cancelled,
/// and as many are left to expire.
fn end_some(purgatory: &Purgatory<u32>, thread: u64) {
    for _ in 0..ENDS {
        let park = |operation, timeout| {
            let parked = purgatory.try_complete_else_watch(operation, &[thread as u32], timeout);
            parked.unwrap().unwrap()
        };
        let completes = park(never(), MINUTE);
        let cancelled = park(never(), MINUTE);
        park(never(), MS);
        assert!(purgatory.complete(completes).reached().is_some());
        assert!(purgatory.cancel(cancelled, "gone").reached().is_some());
    }
}

/// The counts of a purgatory that is published in detail, with this number of ends of each kind.
fn counts(of_each: u64) -> [(&'static str, u64); 7] {
    [
        ("parked_total", 3 * of_each),
        ("ended_total ,outcome=\"completed\"", of_each),
        ("ended_total ,outcome=\"cancelled\"", of_each),
        ("ended_total ,outcome=\"expired\"", of_each),
        ("wait_seconds_count ,outcome=\"completed\"", of_each),
        ("wait_seconds_count ,outcome=\"cancelled\"", of_each),
        ("wait_seconds_count ,outcome=\"expired\"", of_each),
    ]
}

/// All threads publish the forms that they share; a call that meets another call for the same form
/// leaves the work to it. In each round, each thread has a purgatory of its own, whose counts each
/// recorder has to be given whole.
#[test]
fn changing_recorders_lose_and_double_no_count() {
    let rounds = effort(ROUNDS);
    let stays = recorder();
    let timer = ManualTimer::new();
    let shared: Purgatory<u32> = Purgatory::on(&timer, "shared").unwrap();
    let ends: Watermarks<u32> = Watermarks::on(&timer, "ends").unwrap();
    with_local_recorder(&stays, || {
        shared.publish_in_detail(); // waits are timed from here on
        ends.waits().publish_in_detail();
    });

    race(THREADS, |thread| {
        let name = format!("of thread {thread}");
        for round in 0..rounds {
            let timer = ManualTimer::new();
            let own: Purgatory<u32> = Purgatory::on(&timer, &*name).unwrap();
            own.publish_in_detail();
            let publish = || {
                own.publish();
                shared.publish();
                ends.waits().publish();
            };

            for count in [ENDS, 2 * ENDS] {
                // A recorder comes, at the address of this thread's last one.
                let goes = recorder();
                end_some(&own, thread);
                end_some(&shared, thread);
                drop(ends.wait_for(&(thread as u32), 1, MINUTE));
                with_local_recorder(&goes, || {
                    publish();
                    // Meanwhile, the forms are published to the recorder that stays and to one that
                    // panics.
                    with_local_recorder(&stays, publish);
                    publish_to_one_that_panics(round, publish);
                    timer.advance(MS);
                    publish();
                });
                assert_has(&goes, &name, &counts(count));
            }
            // The form is dropped with counts that no recorder has yet.
            end_some(&own, thread);
            timer.advance(MS);
            drop(own);
        }
    });

    // The last call for the shared forms meets no other.
    timer.advance(MS);
    with_local_recorder(&stays, || timer.publish());
    let all = THREADS * rounds * 2;
    assert_has(&stays, "shared", &counts(all * ENDS));
    let cancelled = [
        ("parked_total", all),
        ("ended_total ,outcome=\"cancelled\"", all),
        ("wait_seconds_count ,outcome=\"cancelled\"", all),
        ("wait_seconds_count ,outcome=\"completed\"", 0),
    ];
    assert_has(&stays, "ends", &cancelled);
    for thread in 0..THREADS {
        let name = format!("of thread {thread}");
        assert_has(&stays, &name, &counts(rounds * 3 * ENDS));
        assert_has(&stays, &name, &[("parked", 0)]);
    }
}
