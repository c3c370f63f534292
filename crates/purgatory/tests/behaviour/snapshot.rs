//! Inspection: snapshots, labels, quiet keys, and a snapshot as text.

use std::{cell::RefCell, rc::Rc, sync::mpsc, thread, time::Duration};

use crate::support::{
    MINUTE, MS, NEVER, Op, Park, Probe, SECOND, Waiting, by_hand, by_hand_with, never, poll,
    waiting,
};
use purgatory::{Purgatory, Replies, Watches};

type Waits = Purgatory<&'static str>;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_snapshot_lists_operations_keys_and_ages() {
    let (timer, purgatory) = waiting();
    for (keys, timeout) in [(&["a", "b"][..], 100), (&["a"], 50), (&["c", "a"], 1)] {
        Probe::parked(&purgatory, keys, timeout * MS);
        timer.advance(10 * MS);
    }
    let snapshot = purgatory.snapshot(10);
    assert_eq!((&*snapshot.name, snapshot.key_count), ("test", 2));
    assert_eq!(snapshot.busiest, [("a", 2), ("b", 1)]);
    let told = snapshot
        .oldest
        .iter()
        .map(|told| (&*told.keys, told.age, told.expires_in));
    let [ab, a] = [&["a", "b"][..], &["a"]];
    assert!(told.eq([(ab, 30 * MS, Some(70 * MS)), (a, 20 * MS, Some(30 * MS))]));
    assert_eq!((snapshot.stats.parked, snapshot.stats.expired), (2, 1));
    assert!(snapshot.under_check.is_empty());

    let first = purgatory.snapshot(1);
    assert_eq!((first.busiest.len(), first.oldest.len()), (1, 1));
    assert_eq!(first.oldest[0].id, snapshot.oldest[0].id);
    let none = purgatory.snapshot(0);
    assert_eq!(
        (none.busiest.len(), none.oldest.len(), none.key_count),
        (0, 0, 2)
    );
    #[cfg(feature = "serde")]
    {
        let json = serde_json::to_value(first).unwrap();
        assert_eq!(
            (&json["name"], &json["stats"]["parked"]),
            (&"test".into(), &2.into())
        );
        assert_eq!(json["busiest"][0], serde_json::json!(["a", 2]));
        let oldest = &json["oldest"][0];
        assert_eq!(
            (&oldest["age"], &oldest["expires_in"]),
            (&0.03.into(), &0.07.into())
        );
        assert_eq!(oldest["under_check"], serde_json::Value::Null);
        assert_eq!(oldest["id"], snapshot.oldest[0].id.to_string());
    }
}

/// Two snapshots in each check: for how long each says that the check is under way. The second
/// follows the first at once, as an event comes by meanwhile.
#[test]
fn a_later_check_is_not_taken_for_an_earlier_one() {
    let (timer, purgatory) = waiting();
    let inside = purgatory.clone();
    let clock = timer.clone();
    let (send, told) = mpsc::channel();
    let probe = Probe::new();
    let raises = purgatory.clone();
    let seen = probe.clone();
    let known = move || {
        inside
            .snapshot(9)
            .under_check
            .first()
            .and_then(|one| one.under_check)
    };
    let operation = probe.operation().on_check(move || {
        let at_first = known();
        clock.pass(5 * MS);
        send.send((at_first, known())).unwrap();
        if seen.checks() == 2 {
            thread::scope(|scope| _ = scope.spawn(|| raises.check_and_complete(&"k")).join());
        }
    });
    purgatory.park(operation, &["k"], MINUTE);
    for _ in 0..2 {
        _ = purgatory.check_and_complete(&"k");
    }
    let each = (Some(Duration::ZERO), Some(5 * MS));
    assert_eq!(
        told.try_iter().collect::<Vec<_>>(),
        [(None, None), each, each, each]
    );
}

/// A key that uses this thread's purgatory when it is dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Calls(u32);

thread_local! {
    static CALLED: RefCell<Option<Purgatory<Calls, Op>>> = RefCell::default();
}

impl Drop for Calls {
    fn drop(&mut self) {
        // It locks every shard.
        CALLED.with_borrow(|called| {
            if let Some(purgatory) = called {
                _ = purgatory.keys();
            }
        });
    }
}

#[test]
fn unranked_keys_are_dropped_with_nothing_locked() {
    let (_timer, purgatory): (_, Purgatory<Calls, Op>) = by_hand();
    for number in (0..50).flat_map(|number| std::iter::repeat_n(number, number as usize + 1)) {
        purgatory.park(Probe::new().operation(), &[Calls(number)], MS);
    }
    CALLED.set(Some(purgatory.clone()));
    let busiest = purgatory.snapshot(2).busiest;
    assert!(
        busiest
            .iter()
            .map(|busy| (busy.0.0, busy.1))
            .eq([(49, 50), (48, 49)])
    );
    drop(busiest);
    CALLED.set(None);
}

#[test]
fn parked_operations_are_counted_by_label() {
    let (timer, waits): (_, Waits) = by_hand_with(|builder| builder.shards(1));
    let fetch = |keys| Watches::keys(keys).labelled("fetch");
    let id = waits.park(never(), fetch(&["a"]), NEVER);
    waits.park(never(), fetch(&["a", "b"]), 5 * MS);
    let produce = Watches::up_to(&[("a", 7)]).labelled("produce");
    let mut produce = waits.wait(produce, NEVER, || None::<()>);
    waits.park(never(), &["a"], NEVER); // without one
    let snapshot = waits.snapshot(9);
    assert_eq!(snapshot.labels, [("fetch", 2), ("produce", 1)]);
    let mut labels: Vec<_> = snapshot.oldest.iter().map(|parked| parked.label).collect();
    labels.sort();
    assert_eq!(
        labels,
        [None, Some("fetch"), Some("fetch"), Some("produce")]
    );

    timer.advance(5 * MS);
    waits.cancel(id, "gone");
    assert_eq!(waits.snapshot(9).labels, [("produce", 1)]);
    assert!(poll(&mut produce).is_pending());
    waits.cancel_all("gone");
    assert_eq!(waits.snapshot(9).labels, []);
}

/// Returns how long the keys have been quiet, as this snapshot knows it.
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
    assert!(
        quiet(&waits)
            .iter()
            .all(|&(_, quiet)| quiet == Duration::ZERO)
    );
    for (number, event) in (1..).zip(events) {
        timer.advance(SECOND);
        Probe::parked(&waits, &["a"], MS); // is no event
        timer.advance(SECOND);
        assert_eq!(quiet(&waits)[0], ("a", 2 * SECOND), "{number}");
        event(&waits, &nested);
        timer.advance(SECOND);
        let expected = [("a", Duration::ZERO), ("b", number * 3 * SECOND)]; // from this look on
        assert_eq!(quiet(&waits)[..2], expected, "{number}");
    }
    assert_eq!(waits.snapshot(1).quietest, [("b", 12 * SECOND)]);
    waits.cancel_all("gone");
    assert_eq!(quiet(&waits), []);
    Probe::parked(&waits, &["b"], NEVER); // begins anew
    assert_eq!(quiet(&waits), [("b", Duration::ZERO)]);
}

/// A key, a clone of which may be an act.
#[derive(PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    /// Eight keys that are far apart, and so in several shards.
    fn all() -> impl Iterator<Item = Key> {
        (0..8_u64).map(|number| Key(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

thread_local! {
    /// Done as this thread clones a key.
    static AT_CLONE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

impl Clone for Key {
    fn clone(&self) -> Self {
        let act = AT_CLONE.take();
        if let Some(act) = &act {
            act();
        }
        AT_CLONE.set(act);
        Key(self.0)
    }
}

/// They come as a key is cloned in the shard that is looked into first.
#[test]
fn events_during_a_snapshot_end_a_keys_silence() {
    let (timer, waits): (_, Purgatory<Key>) = by_hand_with(|builder| builder.shards(16));
    for key in Key::all() {
        waits.park(never(), &[key], NEVER);
    }
    let signals = waits.clone();
    let threads = Rc::new(RefCell::new(Vec::new()));
    let started = threads.clone();
    let signal_all = move || {
        timer.pass(SECOND);
        let (done, first_done) = mpsc::channel();
        for key in Key::all() {
            let (signals, done) = (signals.clone(), done.clone());
            let signal = move || {
                signals.check_and_complete(&key);
                let _ = done.send(());
            };
            started.borrow_mut().push(thread::spawn(signal));
        }
        first_done.recv().unwrap(); // one of a shard that is not locked
    };
    AT_CLONE.set(Some(Box::new(signal_all)));
    waits.snapshot(1);
    AT_CLONE.set(None);
    for thread in threads.take() {
        thread.join().unwrap();
    }
    let quietest = waits.snapshot(9).quietest;
    let quiet: Vec<_> = quietest.iter().map(|&(_, quiet)| quiet).collect();
    assert_eq!(quiet, [Duration::ZERO; 8]);
}

#[test]
fn keys_stay_quiet_for_years() {
    let (timer, waits) = waiting();
    Probe::parked(&waits, &["older"], NEVER);
    assert_eq!(quiet(&waits), [("older", Duration::ZERO)]);
    timer.advance(DAY);
    Probe::parked(&waits, &["newer"], NEVER);
    waits.snapshot(9);
    let mut days = 0;
    for until in [49, 50, 500, 2000] {
        timer.advance((until - days) * DAY);
        days = until;
        let quietest = waits.snapshot(9).quietest;
        assert_eq!(
            quietest,
            [("older", (days + 1) * DAY), ("newer", days * DAY)]
        );
    }
}

/// A clock that counts from 1970 has six years behind it when the purgatory is built.
#[test]
fn keys_are_quiet_by_a_clock_that_counts_from_1970() {
    let (timer, _) = waiting();
    timer.advance(56 * 365 * DAY);
    let waits: Waiting = Purgatory::builder("late").timer(&timer).build().unwrap();
    Probe::parked(&waits, &["k"], NEVER);
    assert_eq!(quiet(&waits), [("k", Duration::ZERO)]);
    timer.advance(MINUTE);
    assert_eq!(quiet(&waits), [("k", MINUTE)]);
}

#[test]
fn expected_replies_wait_for_no_event() {
    let (timer, purgatory) = by_hand();
    let replies: Replies<u32, u32> = Replies::over(purgatory);
    let _reply = replies.expect(1, NEVER).unwrap();
    timer.advance(MINUTE);
    assert!(replies.purgatory().snapshot(9).quietest.is_empty());
}

/// The first snapshot that finds a check does not know since when it runs.
#[test]
fn the_first_text_of_a_check_names_no_time() {
    let (timer, purgatory) = waiting();
    let inside = purgatory.clone();
    let (send, told) = mpsc::channel();
    let operation = Probe::new().operation().on_check(move || {
        let under_check = || inside.snapshot(1).under_check.pop();
        let text = || under_check().map_or_else(String::new, |one| one.to_string());
        let first = text();
        timer.pass(5 * MS);
        send.send([first, text()]).unwrap();
    });
    purgatory.park(operation, &["k"], NEVER);
    purgatory.check_and_complete(&"k");
    let [first, second] = told.try_iter().last().unwrap();
    assert!(first.ends_with("never expires, under check"), "{first}");
    assert!(
        second.ends_with(", under check for 5ms at least"),
        "{second}"
    );
}

#[test]
fn text_without_max_weight_names_no_weight() {
    let (_timer, purgatory) = waiting();
    Probe::parked(&purgatory, &["k"], NEVER);
    let text = purgatory.snapshot(1).to_string();
    assert!(text.starts_with("test: 1 parked under 1 keys\n"), "{text}");
}

#[test]
fn a_snapshot_reads_as_text() {
    let (timer, waits): (_, Waits) = by_hand_with(|builder| builder.max_weight(9));
    let fetch = Watches::keys(&["orders-0", "orders-1"]).labelled("fetch");
    let first = waits.park(never(), fetch, SECOND);
    timer.advance(250 * MS);
    let second = waits.park(never(), &["orders-0"], NEVER);
    waits.snapshot(1);
    timer.advance(250 * MS);
    waits.check_and_complete(&"orders-0");
    let text = format!(
        "test: 2 parked under 2 keys, of weight 2\n  \
         before: 0 completed, 0 expired, 0 cancelled, 0 events missed\n  \
         label fetch: 1\n  \
         key \"orders-0\": 2 waiters\n  \
         key \"orders-1\": no event for 250ms\n  \
         oldest: {first} fetch under [\"orders-0\", \"orders-1\"] for 500ms, expires in 500ms\n"
    );
    assert_eq!(waits.snapshot(1).to_string(), text);
    let all = waits.snapshot(2).to_string();
    let never = format!("  oldest: {second} under [\"orders-0\"] for 250ms, never expires\n");
    assert!(
        all.ends_with(&never) && !all.contains("no event for 0ns"),
        "{all}"
    );
}
