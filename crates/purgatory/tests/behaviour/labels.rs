//! What waits, named: labels, keys without an event, and a snapshot as text.

use std::time::Duration;

use crate::support::{MINUTE, MS, Park, Probe, SECOND, Waiting, by_hand, never, poll, waiting};
use purgatory::{BoxedOperation, Purgatory, Replies, Timeout, Watches};
use timer_core::ManualTimer;

type Waits = Purgatory<&'static str, BoxedOperation>;

const NEVER: Timeout = Timeout::Never;

#[test]
fn what_is_parked_is_counted_by_label() {
    let (timer, waits): (_, Waits) = by_hand();
    let fetch = |keys| Watches::keys(keys).labelled("fetch");
    let id = waits.park(never(), fetch(&["a"]), NEVER);
    waits.park(never(), fetch(&["a", "b"]), 5 * MS);
    let mut produce =
        waits.wait(Watches::up_to(&[("a", 7)]).labelled("produce"), NEVER, || None::<()>);
    waits.park(never(), &["a"], NEVER); // without one
    let snapshot = waits.snapshot(9);
    assert_eq!(snapshot.labels, [("fetch", 2), ("produce", 1)]);
    let mut labels: Vec<_> = snapshot.oldest.iter().map(|parked| parked.label).collect();
    labels.sort();
    assert_eq!(labels, [None, Some("fetch"), Some("fetch"), Some("produce")]);

    timer.advance(5 * MS);
    waits.cancel(id, "gone");
    assert_eq!(waits.snapshot(9).labels, [("produce", 1)]);
    assert!(poll(&mut produce).is_pending());
    waits.cancel_all("gone");
    assert_eq!(waits.snapshot(9).labels, []);
}

#[test]
fn one_under_check_keeps_its_label() {
    let (_timer, waits) = waiting();
    let (probe, looks) = (Probe::new(), waits.clone());
    let labels = move || {
        let snapshot = looks.snapshot(1);
        let under_check = snapshot.under_check.first().map(|parked| parked.label);
        assert!(under_check.is_none_or(|label| label == Some("fetch"))); // none while it parks
        assert_eq!(snapshot.labels.len(), usize::from(under_check.is_some()));
    };
    let operation = probe.operation().on_check(labels);
    waits.park(operation, Watches::keys(&["a"]).labelled("fetch"), NEVER);
    waits.check_and_complete(&"a");
    assert_eq!((probe.checks(), waits.stats().panics), (2, 0));
}

/// For how long the keys have been quiet, as this look knows it.
fn quiet(waits: &Waiting) -> Vec<(&'static str, Duration)> {
    let mut quietest = waits.snapshot(9).quietest;
    quietest.sort();
    quietest
}

#[test]
fn every_kind_of_event_ends_a_keys_silence() {
    let (timer, waits) = waiting();
    let nested = Probe::new();
    let events: [fn(&Waiting, &Probe); 4] = [
        |waits, _| _ = waits.check_and_complete(&"a"),
        |waits, _| _ = waits.check_and_complete_one(&"a"),
        |waits, _| _ = waits.complete_up_to(&"a", 3),
        |waits, nested| {
            nested.make_ready();
            waits.check_and_complete(&"nested");
        },
    ];
    let raises = waits.clone();
    let then = move |_| _ = raises.check_and_complete(&"a");
    waits.park(nested.operation().then(then), &["nested"], NEVER);
    Probe::parked(&waits, &["a", "b"], NEVER);
    assert!(quiet(&waits).iter().all(|&(_, quiet)| quiet == Duration::ZERO));
    for (number, event) in events.into_iter().enumerate() {
        timer.advance(SECOND);
        Probe::parked(&waits, &["a"], MS); // is no event
        timer.advance(SECOND);
        assert_eq!(quiet(&waits)[0], ("a", 2 * SECOND), "{number}");
        event(&waits, &nested);
        timer.advance(SECOND);
        assert_eq!(quiet(&waits)[0], ("a", Duration::ZERO), "{number}"); // from this look on
        let all = u32::try_from(number).unwrap() * 3 + 3;
        assert_eq!(quiet(&waits)[1], ("b", all * SECOND), "{number}");
    }
    assert_eq!(waits.snapshot(1).quietest, [("b", 12 * SECOND)]);
}

#[test]
fn a_key_that_was_left_begins_anew() {
    let (timer, waits) = waiting();
    for _ in 0..2 {
        let id = waits.park(Probe::new().operation(), &["a"], NEVER);
        assert_eq!(quiet(&waits), [("a", Duration::ZERO)]);
        timer.advance(MINUTE);
        assert_eq!(quiet(&waits), [("a", MINUTE)]);
        waits.cancel(id, "gone");
    }
    assert_eq!(quiet(&waits), []);
}

#[test]
fn many_keys_are_all_looked_at() {
    let (timer, waits): (_, Purgatory<u32>) = by_hand();
    (0..1000).for_each(|key| _ = waits.park(never(), &[key], NEVER));
    waits.snapshot(1);
    timer.advance(SECOND);
    (0..1000).filter(|key| key % 500 != 7).for_each(|key| _ = waits.check_and_complete(&key));
    let mut quietest = waits.snapshot(2).quietest;
    quietest.sort();
    assert_eq!(quietest, [(7, SECOND), (507, SECOND)]);
}

#[test]
fn expected_replies_wait_for_no_event() {
    let (timer, purgatory) = by_hand();
    let replies: Replies<u32, u32> = purgatory.into();
    let _reply = replies.expect(1, NEVER).unwrap();
    timer.advance(MINUTE);
    assert!(replies.purgatory().snapshot(9).quietest.is_empty());
}

#[test]
fn a_snapshot_reads_as_text() {
    let timer = ManualTimer::new();
    let waits: Waits = Purgatory::builder("orders").timer(&timer).max_weight(9).build().unwrap();
    let fetch = Watches::keys(&["orders-0", "orders-1"]).labelled("fetch");
    let first = waits.park(never(), fetch, SECOND);
    timer.advance(250 * MS);
    let second = waits.park(never(), &["orders-0"], NEVER);
    waits.snapshot(1);
    timer.advance(250 * MS);
    waits.check_and_complete(&"orders-0");
    let text = format!(
        "orders: 2 parked under 2 keys, of weight 2\n  \
         before: 0 completed, 0 expired, 0 cancelled, 0 events missed\n  \
         label fetch: 1\n  \
         key \"orders-0\": 2 waiters\n  \
         key \"orders-1\": no event for 250ms\n  \
         oldest: {first} fetch under [\"orders-0\", \"orders-1\"] for 500ms, expires in 500ms\n"
    );
    assert_eq!(waits.snapshot(1).to_string(), text);
    let all = waits.snapshot(2).to_string();
    let never = format!("  oldest: {second} under [\"orders-0\"] for 250ms, never expires\n");
    assert!(all.ends_with(&never) && !all.contains("no event for 0ns"), "{all}");
}
