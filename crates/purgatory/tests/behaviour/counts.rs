//! Counts and times, under the hand-turned clock.

use std::time::Duration;

use crate::support::{Later, MS, Op, Park, Probe, Waiting, never, waiting};
use purgatory::{Builder, ParkResult, Purgatory, Timeout, Times, Watches};
use timer_core::{ManualTimer, TimeHistogram, Timer};

fn builder(timer: &ManualTimer) -> Builder<&'static str, Op> {
    Purgatory::builder("orders").timer(timer)
}

fn park(purgatory: &Waiting, key: &'static str, timeout: impl Into<Timeout>) -> Probe {
    let probe = Probe::new();
    let parked = purgatory.try_complete_else_watch(probe.operation(), &[key], timeout);
    assert!(matches!(parked, Ok(ParkResult::Parked(_))));
    probe
}

/// The bounds and counts of the buckets that are not empty.
fn filled(histogram: &TimeHistogram) -> Vec<(f64, u64)> {
    let bounds = TimeHistogram::BOUNDS_S.iter().copied().chain([f64::INFINITY]);
    bounds.zip(histogram.buckets().iter().copied()).filter(|&(_, count)| count > 0).collect()
}

#[test]
fn waits_are_timed_by_outcome() {
    let (timer, purgatory) = waiting();
    assert_eq!(purgatory.times(), Times::default());
    let ready = park(&purgatory, "ready", Timeout::Never);
    park(&purgatory, "given up", Timeout::Never);
    park(&purgatory, "late", 40 * MS);
    timer.advance(20 * MS);
    ready.make_ready();
    purgatory.check_and_complete(&"ready");
    timer.advance(10 * MS);
    purgatory.cancel_for_key(&"given up", "asked");
    timer.advance(10 * MS);
    let times = purgatory.times();
    assert_eq!(filled(&times.completed), [(0.025, 1)]);
    assert_eq!(filled(&times.cancelled), [(0.05, 1)]);
    assert_eq!(filled(&times.expired), [(0.05, 1)]);
    let sums = [times.completed.sum_s(), times.cancelled.sum_s(), times.expired.sum_s()];
    assert_eq!(sums, [0.02, 0.03, 0.04]);
    assert_eq!((filled(&times.lateness), times.lateness.sum_s()), (vec![(0.00001, 1)], 0.0));
}

#[test]
fn nothing_is_timed_before_times_are_asked_for() {
    let (timer, purgatory) = waiting();
    park(&purgatory, "early", 5 * MS);
    timer.advance(5 * MS);
    assert_eq!(purgatory.snapshot(0).times, Times::default());
    park(&purgatory, "later", 5 * MS);
    timer.advance(5 * MS);
    assert_eq!(purgatory.times().expired.count(), 1);
    assert_eq!(purgatory.stats().expired, 2);
}

#[test]
fn lateness_counts_from_the_rounded_deadline() {
    let (timer, purgatory) = waiting();
    purgatory.times();
    park(&purgatory, "k", Duration::from_micros(9_500)); // due at 10 ms
    timer.pass(60 * MS); // nobody turns the wheel meanwhile
    timer.advance(Duration::ZERO);
    let times = purgatory.times();
    assert_eq!((filled(&times.lateness), times.lateness.sum_s()), (vec![(0.05, 1)], 0.05));
    assert_eq!(times.expired.sum_s(), 0.06);
}

#[test]
fn lateness_includes_a_check_under_way() {
    let (timer, purgatory) = waiting();
    purgatory.times();
    let (turned, probe) = (timer.clone(), Probe::new());
    let mut first = true;
    let operation = probe.operation().on_check(move || {
        if !std::mem::take(&mut first) {
            turned.advance(30 * MS);
        }
    });
    purgatory.park(operation, &["k"], 10 * MS);
    purgatory.check_and_complete(&"k");
    assert_eq!(probe.endings(), [purgatory::Outcome::Expired]);
    let times = purgatory.times();
    assert_eq!((times.lateness.count(), times.lateness.sum_s()), (1, 0.02));
    assert_eq!((times.expired.count(), times.expired.sum_s()), (1, 0.03));
}

#[test]
fn refusals_are_counted_by_reason() {
    let timer = ManualTimer::new();
    let purgatory = builder(&timer).max_parked(1).build().unwrap();
    let refused = |watches: Watches<'_, &'static str>| {
        purgatory.try_complete_else_watch(Probe::new().operation(), watches, MS).unwrap_err()
    };
    drop(refused(Watches::keys(&[])));
    park(&purgatory, "k", Timeout::Never);
    drop(refused(Watches::keys(&["k"])));
    drop(refused(Watches::keys(&["other"])));
    let levels: Vec<_> = (0..20_000).map(|level| ("k", level)).collect();
    drop(refused(Watches::up_to(&levels)));
    purgatory.shutdown(Duration::from_secs(60));
    drop(refused(Watches::keys(&["k"])));
    let stats = purgatory.stats();
    assert_eq!((stats.refused_no_keys, stats.refused_full, stats.refused_closed), (1, 2, 1));
    assert_eq!(stats.refused_too_many_watermarks, 1);
    assert_eq!(purgatory.stats().checks, 1 + 4); // all but the one without keys were checked
}

#[test]
fn callback_delay_ends_when_the_callback_begins() {
    let (timer, kept) = (ManualTimer::new(), Later::default());
    let purgatory = builder(&timer).executor(kept.clone()).build().unwrap();
    let expire = || {
        for _ in 0..3 {
            let slow = timer.clone();
            let operation = Probe::new().operation().then(move |_| slow.pass(10 * MS));
            purgatory.park(operation, &["k"], MS);
        }
        timer.advance(MS);
        assert_eq!(purgatory.stats().callbacks_waiting, 3);
        timer.pass(20 * MS);
        assert_eq!(kept.run(), 1);
        assert_eq!(purgatory.stats().callbacks_waiting, 0);
    };
    expire();
    assert_eq!(purgatory.times().callback_delay.count(), 0); // timed from here on
    expire();
    assert_eq!(purgatory.stats().expired, 6);
    let delay = purgatory.times().callback_delay;
    assert_eq!((filled(&delay), delay.sum_s()), (vec![(0.025, 1), (0.05, 2)], 0.09));
}

#[test]
fn a_purgatory_tells_its_own_timer() {
    let own: Purgatory<u8> = Purgatory::new("own").unwrap();
    own.park(never(), &[1], Duration::from_secs(3600));
    let timer = own.own_timer().unwrap();
    assert_eq!((timer.name(), timer.stats().pending), ("own", 1));
    assert!(waiting().1.own_timer().is_none());
}

/// The wheel of a purgatory that is gone: its timer still counts what was taken off it.
#[test]
fn a_timer_counts_for_purgatories_that_are_gone() {
    let (timer, purgatory) = waiting();
    for key in ["one", "two", "three"] {
        park(&purgatory, key, 40 * MS);
    }
    purgatory.cancel_for_key(&"one", "asked");
    purgatory.cancel_for_key(&"two", "asked");
    assert_eq!((timer.stats().cancelled, timer.stats().pending), (2, 1));
    drop(purgatory);
    assert_eq!((timer.stats().cancelled, timer.stats().pending), (3, 0));
}
