//! Counts and times, on a manual timer.

use crate::support::*;

/// Returns the bounds and counts of the buckets that are not empty.
fn filled(histogram: &TimeHistogram) -> Vec<(f64, u64)> {
    let bounds = TimeHistogram::BOUNDS_S
        .iter()
        .copied()
        .chain([f64::INFINITY]);
    bounds
        .zip(histogram.buckets().iter().copied())
        .filter(|&(_, count)| count > 0)
        .collect()
}

#[test]
fn waits_are_timed_by_outcome() {
    let (timer, purgatory) = waiting();
    Probe::parked(&purgatory, &["before"], MS);
    timer.advance(MS);
    assert_eq!(purgatory.times(), Times::default()); // times are recorded from here on
    let ready = Probe::parked(&purgatory, &["ready"], NEVER);
    Probe::parked(&purgatory, &["given up"], NEVER);
    Probe::parked(&purgatory, &["late"], 40 * MS);
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
    let sums = [
        times.completed.sum_s(),
        times.cancelled.sum_s(),
        times.expired.sum_s(),
    ];
    assert_eq!(sums, [0.02, 0.03, 0.04]);
    assert_eq!(filled(&times.lateness), [(0.00001, 1)]);
    assert_eq!(times.lateness.sum_s(), 0.0);
    Probe::parked(&purgatory, &["later"], Duration::from_micros(9_500)); // due in 10 ms
    timer.pass(60 * MS); // no thread advances the wheel meanwhile
    timer.advance(Duration::ZERO);
    let times = purgatory.times();
    assert_eq!((times.lateness.sum_s(), times.expired.sum_s()), (0.05, 0.1));
    #[cfg(feature = "serde")]
    {
        let json = serde_json::to_value(&times.completed).unwrap();
        assert_eq!((&json["count"], &json["sum_s"]), (&1.into(), &0.02.into()));
        let sums = json["sums_s"].as_array().unwrap().iter();
        assert_eq!(sums.filter_map(|sum| sum.as_f64()).sum::<f64>(), 0.02);
    }
}

#[test]
fn lateness_includes_a_check_under_way() {
    let (timer, purgatory) = waiting();
    purgatory.times();
    let turned = timer.clone();
    let probe = Probe::new();
    let mut first = true;
    let operation = probe.operation().on_check(move || {
        if !std::mem::take(&mut first) {
            turned.advance(30 * MS);
        }
    });
    purgatory.park(operation, &["k"], 10 * MS);
    purgatory.check_and_complete(&"k");
    assert_eq!(probe.endings(), [Outcome::Expired]);
    let times = purgatory.times();
    assert_eq!((times.lateness.count(), times.lateness.sum_s()), (1, 0.02));
    assert_eq!((times.expired.count(), times.expired.sum_s()), (1, 0.03));
}

#[test]
fn callback_delay_ends_when_the_callback_begins() {
    let kept = Later::default();
    let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.executor(kept.clone()));
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
    assert_eq!(purgatory.times().callback_delay.count(), 0); // times are recorded from here on
    expire();
    assert_eq!(purgatory.stats().expired, 6);
    let delay = purgatory.times().callback_delay;
    assert_eq!(filled(&delay), [(0.025, 1), (0.05, 2)]);
    assert_eq!(delay.sum_s(), 0.09);
}

/// A form counts in its own shards, not in the kernel's.
#[test]
fn forms_count_events_delays_and_ends_at_once() {
    let later = Later::default();
    let (timer, waits, values) = watermarks_with::<u32>(|builder| builder.executor(later.clone()));
    for value in [5, 6] {
        values.advance(&1, value).unwrap();
    }
    assert_eq!((waits.stats().events, waits.max_parked()), (2, None));
    // 1. A wait that is met, over or closed at once is never parked.
    drop(values.wait_for(&1, 6, SECOND));
    drop(values.unwanted(&1, SECOND));
    drop(values.wanted(&1, Duration::ZERO));
    drop(values.wait_for(&1, 9, Duration::ZERO));
    values.close(&1, "closed");
    drop(values.wait_for(&1, 9, SECOND));
    let stats = waits.stats();
    assert_eq!((stats.ended_at_once, stats.parked_total), (5, 0));
    // 2. A callback's delay on the executor counts from the deadline.
    assert_eq!(waits.times().callback_delay.count(), 0);
    values.park(&2, 10, 10 * MS, drop).unwrap();
    timer.advance(10 * MS);
    timer.advance(20 * MS);
    assert_eq!(later.run(), 1);
    assert_eq!(waits.times().callback_delay.sum_s(), 0.02);
    // 3. If no thread advances a wheel for 40 ms, a wait ends that much too late.
    let wait = values.wait_for(&2, 10, 10 * MS);
    timer.pass(50 * MS);
    timer.advance(Duration::ZERO);
    drop(wait);
    assert_eq!(waits.times().lateness.sum_s(), 0.04);
}

/// The model of `Watermarks` compares their counts.
#[test]
fn events_are_changes_and_refusals_are_none() {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::on(&timer, "sets").unwrap();
    sets.set(&(), 1, [("a", 1), ("b", 1)], 1, Rule::all())
        .unwrap();
    sets.in_epoch(&(), 1).report(&"a", 9).unwrap(); // the other member holds it back
    assert_eq!(sets.waits().stats().events, 1);
    sets.in_epoch(&(), 1).report(&"b", 9).unwrap();
    assert_eq!(sets.waits().stats().events, 2);

    let permits = Permits::on(&timer, "permits", 1).unwrap();
    permits.close();
    drop(permits.acquire(1, SECOND));
    assert_eq!(permits.waits().stats().refused_closed, 1);
}

#[test]
fn ages_and_times_are_those_of_each_wait() {
    let (timer, waits, values) = watermarks::<u32>();
    waits.times(); // times are recorded from here on
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

    let replies: Replies<u32, u32> = Replies::on(&timer, "test").unwrap();
    replies.waits().times();
    let reply = replies.expect(1, 100 * MS).unwrap();
    timer.advance(10 * MS);
    replies.deliver(&1, 7).unwrap();
    assert_eq!(replies.waits().times().completed.sum_s(), 0.01);
    drop(reply);
}

/// An advance that reaches many waits calls some back before it ends the others.
#[test]
fn a_wait_that_callbacks_delay_is_timed_as_it_ends() {
    let (timer, waits, values) = watermarks::<u32>();
    waits.times(); // times are recorded from here on
    for _ in 0..65 {
        let slow = timer.clone();
        let parked = values.park(&1, 5, MINUTE, move |_| slow.pass(10 * MS));
        parked.unwrap();
    }
    assert_eq!(values.advance(&1, 5), Ok(65));
    let completed = waits.times().completed;
    assert_eq!((completed.count(), completed.sum_s()), (65, 0.64));
}

/// An epoch first completes the waits that the advance under way has reached, and calls them back.
#[test]
fn wait_behind_an_advance_is_timed_at_its_end() {
    let (timer, waits, values) = watermarks::<u32>();
    waits.times(); // times are recorded from here on
    let stop = Stop::armed();
    let held_up = stop.clone();
    let first = move |_| held_up.here();
    values.park(&1, 5, MINUTE, first).unwrap();
    for _ in 1..66 {
        let slow = timer.clone();
        let parked = values.park(&1, 5, MINUTE, move |_| slow.pass(10 * MS));
        parked.unwrap();
    }
    values.park(&1, 6, MINUTE, drop).unwrap();
    thread::scope(|scope| {
        let advance = scope.spawn(|| values.advance(&1, 5));
        // The advance has not yet taken two of the waits that it reaches.
        stop.meanwhile(|| assert_eq!(values.begin_epoch(&1, 1, 5), Ok(3)));
        assert_eq!(advance.join().unwrap(), Ok(64));
    });
    let cancelled = waits.times().cancelled;
    assert_eq!((cancelled.count(), cancelled.sum_s()), (1, 0.02));
}
