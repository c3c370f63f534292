//! Introspection, under the hand-turned clock.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, Weak, mpsc},
    thread,
    time::Duration,
};

use crate::support::{MS, Op, Park, Probe, by_hand, waiting};
use purgatory::{ParkResult, Purgatory, Watches};

#[test]
fn a_snapshot_tells_what_waits_for_what_and_since_when() {
    let (timer, purgatory) = waiting();
    for (keys, timeout) in [(&["a", "b"][..], 100), (&["a"], 50), (&["c", "a"], 1)] {
        let parked =
            purgatory.try_complete_else_watch(Probe::new().operation(), keys, timeout * MS);
        assert!(matches!(parked, Ok(ParkResult::Parked(_))));
        timer.advance(10 * MS);
    }
    let snapshot = purgatory.snapshot(10);
    assert_eq!((&*snapshot.name, snapshot.key_count), ("test", 2));
    let busiest: Vec<_> = snapshot.busiest.to_vec();
    assert_eq!(busiest, [("a", 2), ("b", 1)]);
    let told = |parked: &purgatory::Parked<&'static str>| {
        (parked.keys.clone(), parked.age, parked.expires_in, parked.under_check)
    };
    let oldest: Vec<_> = snapshot.oldest.iter().map(told).collect();
    assert_eq!(
        oldest,
        [(vec!["a", "b"], 30 * MS, Some(70 * MS), None), (vec!["a"], 20 * MS, Some(30 * MS), None)]
    );
    assert_eq!((snapshot.stats.parked, snapshot.stats.expired), (2, 1));
    assert!(snapshot.under_check.is_empty());

    let first = purgatory.snapshot(1);
    assert_eq!((first.busiest.len(), first.oldest.len()), (1, 1));
    assert_eq!(first.oldest[0].id, snapshot.oldest[0].id);
    let none = purgatory.snapshot(0);
    assert_eq!((none.busiest.len(), none.oldest.len(), none.key_count), (0, 0, 2));
}

#[test]
fn of_thousands_the_oldest_and_the_busiest_are_found() {
    let (timer, purgatory) = waiting();
    let names: Vec<String> = (0..100).map(|number| format!("key-{number}")).collect();
    let keys: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    for number in 0..5_000 {
        // key-99 gets the most, then key-98, ...
        let key = keys[(number as f64).sqrt() as usize % 100];
        let never = purgatory::Timeout::Never;
        purgatory.park(Probe::new().operation(), &[key], never);
        timer.advance(MS);
    }
    let snapshot = purgatory.snapshot(3);
    let ages: Vec<_> = snapshot.oldest.iter().map(|parked| parked.age).collect();
    assert_eq!(ages, [5_000 * MS, 4_999 * MS, 4_998 * MS]);
    assert_eq!(snapshot.oldest[0].expires_in, None);
    let busiest: Vec<_> = snapshot.busiest.to_vec();
    assert_eq!(busiest, [("key-69", 139), ("key-68", 137), ("key-67", 135)]);
}

#[test]
fn a_check_that_does_not_return_shows_and_for_how_long() {
    let (timer, purgatory) = waiting();
    let (entered, inside) = mpsc::channel();
    let (go_on, stuck) = mpsc::channel::<()>();
    let mut first = true;
    let operation = Probe::new().operation().on_check(move || {
        if !std::mem::take(&mut first) {
            entered.send(()).unwrap();
            stuck.recv().unwrap();
        }
    });
    purgatory.park(operation, &["k"], 5 * MS);
    thread::scope(|scope| {
        let event = scope.spawn(|| purgatory.check_and_complete(&"k"));
        inside.recv().unwrap();
        assert_eq!(purgatory.snapshot(9).under_check[0].under_check, Some(Duration::ZERO));
        timer.advance(10 * MS); // it is due, and cannot expire
        let snapshot = purgatory.snapshot(9);
        assert_eq!(snapshot.under_check.len(), 1);
        let stuck = &snapshot.under_check[0];
        assert_eq!((stuck.under_check, stuck.expires_in), (Some(10 * MS), Some(Duration::ZERO)));
        assert_eq!((stuck.age, &*stuck.keys), (10 * MS, &["k"][..]));
        assert_eq!(snapshot.oldest[0].under_check, Some(10 * MS));
        go_on.send(()).unwrap();
        assert_eq!(event.join().unwrap(), 0);
    });
    let snapshot = purgatory.snapshot(9);
    assert_eq!((snapshot.under_check.len(), snapshot.stats.expired), (0, 1));
}

/// A key that uses the purgatory when it is dropped, as a test's key may and a user's will.
#[derive(Clone)]
struct Calls(u32, Weak<Mutex<Option<Purgatory<Calls, Op>>>>);

impl PartialEq for Calls {
    fn eq(&self, other: &Calls) -> bool {
        self.0 == other.0
    }
}
impl Eq for Calls {}
impl Hash for Calls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0);
    }
}
impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(purgatory) = self.1.upgrade().and_then(|slot| slot.lock().unwrap().clone()) {
            let _ = purgatory.keys(); // locks every stripe
        }
    }
}

#[test]
fn keys_that_do_not_rank_are_dropped_with_nothing_locked() {
    let (_timer, purgatory): (_, Purgatory<Calls, Op>) = by_hand();
    let slot = Arc::new(Mutex::new(None));
    for number in 0..50 {
        for _ in 0..=number {
            let key = Calls(number, Arc::downgrade(&slot));
            purgatory.park(Probe::new().operation(), &[key], MS);
        }
    }
    *slot.lock().unwrap() = Some(purgatory.clone());
    let busiest = purgatory.snapshot(2).busiest;
    let ranked: Vec<_> = busiest.iter().map(|busy| (busy.0.0, busy.1)).collect();
    assert_eq!(ranked, [(49, 50), (48, 49)]);
    *slot.lock().unwrap() = None;
}

#[test]
fn a_watermark_that_was_taken_is_waited_for_no_more() {
    let (_timer, purgatory) = waiting();
    let watches = [("a", 1), ("b", 1)];
    let operation = Probe::new().operation();
    purgatory.park(operation, Watches::up_to(&watches), 5 * MS);
    assert_eq!(purgatory.snapshot(1).oldest[0].keys, ["a", "b"]);
    purgatory.complete_up_to(&"a", 1);
    assert_eq!(purgatory.snapshot(1).oldest[0].keys, ["b"]);
}

#[test]
fn why_operations_ended_is_counted() {
    let (timer, purgatory) = waiting();
    let park = |operation| {
        purgatory.park(operation, &["k"], MS);
    };
    park(Probe::new().operation());
    timer.advance(MS);
    park(Probe::new().operation());
    purgatory.cancel_for_key(&"k", "asked");
    let mut checks = 0;
    park(Probe::new().operation().on_check(move || {
        checks += 1;
        assert!(checks < 2, "the second check panics");
    }));
    purgatory.check_and_complete(&"k");
    park(Probe::new().operation());
    purgatory.shutdown(Duration::from_secs(60));
    let stats = purgatory.snapshot(0).stats;
    assert_eq!((stats.expired, stats.cancelled), (1, 3));
    assert_eq!((stats.cancelled_by_panic, stats.cancelled_by_shutdown), (1, 1));
}

#[cfg(feature = "serde")]
#[test]
fn a_snapshot_is_json_with_seconds() {
    let (timer, purgatory) = waiting();
    purgatory.park(Probe::new().operation(), &["k"], 100 * MS);
    timer.advance(25 * MS);
    let json = serde_json::to_value(purgatory.snapshot(1)).unwrap();
    assert_eq!(json["name"], "test");
    assert_eq!(json["busiest"][0], serde_json::json!(["k", 1]));
    assert_eq!(json["oldest"][0]["age"], 0.025);
    assert_eq!(json["oldest"][0]["expires_in"], 0.075);
    assert_eq!(json["oldest"][0]["under_check"], serde_json::Value::Null);
    assert_eq!(json["oldest"][0]["id"], purgatory.snapshot(1).oldest[0].id.to_string());
    assert_eq!(json["stats"]["parked"], 1);
}
