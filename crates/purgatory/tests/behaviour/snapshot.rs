//! Introspection, under the hand-turned clock.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, Weak, mpsc},
    thread,
    time::Duration,
};

use crate::support::{MS, Op, Park, Probe, by_hand, waiting};
use purgatory::{ParkResult, Purgatory};

#[test]
fn a_snapshot_lists_operations_keys_and_ages() {
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
fn a_check_that_does_not_return_is_listed() {
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
fn unranked_keys_are_dropped_with_nothing_locked() {
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
