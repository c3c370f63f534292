//! Very many, very long, very much alike: what nobody should do, and somebody will. `TEST_EFFORT`
//! says how many are very many: 100 000 without it, a million in CI.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use purgatory::{
    BoxedOperation, Outcome, ParkResult, Purgatory, RefusedReason, Timeout, WatchKey, when,
};
use timer_core::ManualTimer;

use crate::support::{Later, Park, by_hand};

fn waits<K: WatchKey + Send>() -> (ManualTimer, Purgatory<K, BoxedOperation>) {
    let (timer, waits) = by_hand();
    (timer, waits)
}

/// Parks one that waits until `done` has come to `number`, and counts how many ended as `outcome`.
fn park<K: WatchKey + Send>(
    waits: &Purgatory<K, BoxedOperation>,
    keys: &[K],
    (done, number): (&Arc<AtomicU64>, u64),
    ended: &Arc<AtomicU64>,
    timeout: impl Into<Timeout>,
) {
    let (done, ended) = (done.clone(), ended.clone());
    let told = move |outcome| {
        assert!(matches!(outcome, Outcome::Completed | Outcome::Expired));
        ended.fetch_add(1, Relaxed);
    };
    let operation = when(move || done.load(Relaxed) >= number, told);
    let parked = waits.try_complete_else_watch(operation, keys, timeout).unwrap();
    assert!(matches!(parked, ParkResult::Parked(_)));
}

/// All alike to a hasher.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alike(u64);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u8.hash(state);
    }
}

#[test]
fn keys_that_all_hash_alike_are_slow_and_right() {
    let (timer, waits) = waits();
    let ended = Arc::default();
    let done: Vec<_> = (0..2000).map(|_| Arc::new(AtomicU64::new(0))).collect();
    for (key, done) in (0..).zip(&done) {
        park(&waits, &[Alike(key), Alike(key + 1)], (done, 1), &ended, Duration::from_secs(1));
    }
    done[1000].store(1, Relaxed);
    assert_eq!(waits.check_and_complete(&Alike(5)), 0);
    assert_eq!(waits.check_and_complete(&Alike(1001)), 1);
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (1999, 3998, 2001));
    timer.advance(Duration::from_secs(1));
    assert_eq!((waits.len(), waits.keys(), ended.load(Relaxed)), (0, 0, 2000));
}

/// Or an executor that falls behind would hold any number of them.
#[test]
fn expired_operations_count_until_their_callback() {
    let (timer, later, ended) = (ManualTimer::new(), Later::default(), Arc::default());
    let builder = Purgatory::builder("two").timer(&timer).max_parked(2);
    let waits = builder.executor(later.clone()).build().unwrap();
    let second = Duration::from_secs(1);
    let park_one = || {
        let ended: Arc<AtomicU64> = Arc::clone(&ended);
        let operation = when(|| false, move |_| _ = ended.fetch_add(1, Relaxed));
        waits.try_complete_else_watch(operation, &["a"], second)
    };
    (0..2).for_each(|_| assert!(matches!(park_one(), Ok(ParkResult::Parked(_)))));
    timer.advance(second);
    assert!(waits.is_empty() && ended.load(Relaxed) == 0);
    assert_eq!(park_one().unwrap_err().reason, RefusedReason::Full { limit: 2 });
    assert_eq!(later.run(), 1);
    assert_eq!(ended.load(Relaxed), 2);
    (0..2).for_each(|_| assert!(matches!(park_one(), Ok(ParkResult::Parked(_)))));
}

/// Up to four keys have their watches in the operation's entry, a fifth asks for a block.
#[test]
fn watches_of_up_to_four_keys_take_no_allocation() {
    let (_timer, waits) = waits::<&str>();
    let keys = ["a", "b", "c", "d", "e"];
    let allocations = |keys: &[&'static str]| {
        let once = || {
            let operation = when(|| false, |_| ());
            let id = waits.park(operation, keys, Timeout::Never);
            waits.complete(id);
        };
        once(); // what the rooms keep
        allocation_counter::measure(|| (0..100).for_each(|_| once())).count_total
    };
    let one = allocations(&keys[..1]); // the boxes
    assert_eq!((allocations(&keys[..3]), allocations(&keys[..4])), (one, one));
    assert!(allocations(&keys) > one);
}
