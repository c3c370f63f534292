//! Inspection: snapshots, labels, and a snapshot as text.

use crate::support::*;

type Waits = Purgatory<&'static str>;

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
    assert_eq!(none.busiest.len(), 0);
    assert_eq!(none.oldest.len(), 0);
    assert_eq!(none.key_count, 2);
    #[cfg(feature = "serde")]
    {
        let json = serde_json::to_value(first).unwrap();
        assert_eq!(json["name"], "test");
        assert_eq!(json["stats"]["parked"], 2);
        assert_eq!(json["busiest"][0], serde_json::json!(["a", 2]));
        let oldest = &json["oldest"][0];
        assert_eq!(oldest["age"], 0.03);
        assert_eq!(oldest["expires_in"], 0.07);
        assert_eq!(oldest["under_check"], serde_json::Value::Null);
        assert_eq!(oldest["id"], snapshot.oldest[0].id.to_string());
    }
}

/// Each check takes two snapshots, which tell for how long it has been under way. A second check
/// follows the first at once, because of an event that came meanwhile.
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
            on_another_thread(|| raises.check_and_complete(&"k"));
        }
    });
    purgatory.park(operation, &["k"], MINUTE);
    for _ in 0..2 {
        _ = purgatory.check_and_complete(&"k");
    }
    let each = (Some(Duration::ZERO), Some(5 * MS));
    let expected = [(None, None), each, each, each];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
}

thread_local! {
    static CALLED: RefCell<Option<Purgatory<Hooked>>> = RefCell::default();
}

#[test]
fn unranked_keys_are_dropped_with_nothing_locked() {
    let (_timer, purgatory): (_, Purgatory<Hooked>) = by_hand();
    let key = Hooked::new(0, |at| {
        if at == At::Drop {
            // The call locks every shard.
            CALLED.with_borrow(|called| _ = called.as_ref().map(Purgatory::keys));
        }
    });
    for number in (0..50).flat_map(|number| std::iter::repeat_n(number, number as usize + 1)) {
        purgatory.park(never(), &[key.like(number)], MS);
    }
    CALLED.set(Some(purgatory.clone()));
    let busiest = purgatory.snapshot(2).busiest;
    assert!(
        busiest
            .iter()
            .map(|busy| (busy.0.number, busy.1))
            .eq([(49, 50), (48, 49)])
    );
    drop(busiest);
    CALLED.set(None);
}

#[test]
fn parked_operations_are_counted_by_label() {
    let (timer, waits): (_, Waits) = by_hand_with(|builder| builder.shards(1));
    let acks = Watches::keys(&["a"]).labelled("acks");
    let mut acks = waits.wait(acks, NEVER, || None::<()>);
    let fetch = |keys| Watches::keys(keys).labelled("fetch");
    let id = waits.park(never(), fetch(&["a"]), NEVER);
    waits.park(never(), fetch(&["a", "b"]), 5 * MS);
    waits.park(never(), &["a"], NEVER); // no label
    let snapshot = waits.snapshot(9);
    assert_eq!(snapshot.labels, [("fetch", 2), ("acks", 1)]);
    let mut labels: Vec<_> = snapshot.oldest.iter().map(|parked| parked.label).collect();
    labels.sort();
    let expected = [None, Some("acks"), Some("fetch"), Some("fetch")];
    assert_eq!(labels, expected);

    timer.advance(5 * MS);
    waits.cancel(id, "gone");
    assert_eq!(waits.snapshot(9).labels, [("acks", 1)]);
    assert!(poll(&mut acks).is_pending());
    waits.cancel_all("gone");
    assert_eq!(waits.snapshot(9).labels, []);
}

/// The first snapshot that finds a check under way does not know when the check began.
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
fn a_snapshot_reads_as_text() {
    let (timer, waits): (_, Waits) = by_hand();
    let fetch = Watches::keys(&["orders-0", "orders-1"]).labelled("fetch");
    let first = waits.park(never(), fetch, SECOND);
    timer.advance(250 * MS);
    let second = waits.park(never(), &["orders-0"], NEVER);
    waits.snapshot(1);
    timer.advance(250 * MS);
    waits.check_and_complete(&"orders-0");
    let text = format!(
        "test: 2 parked under 2 keys\n  \
         before: 0 completed, 0 expired, 0 cancelled, 0 events missed\n  \
         label fetch: 1\n  \
         key \"orders-0\": 2 waiters\n  \
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
