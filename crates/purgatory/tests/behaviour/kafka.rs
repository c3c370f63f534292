//! Bugs of Kafka's purgatory that no other test here replays, each named after its number in Kafka's
//! tracker, if it has one. (`docs/KAFKA.md` names the tests of all.)

use allocation_counter::measure;

use crate::support::*;

/// KAFKA-19312: a timeout ran `onComplete` while another thread was inside `tryComplete` of the
/// same operation, both using its fields. Here a thread that ends it meanwhile leaves a request,
/// and the checker acts on it after the check, unless that has become true.
#[test]
fn kafka_19312_no_callback_runs_inside_a_check() {
    for (by_cancel, is_satisfied) in [(false, false), (false, true), (true, false), (true, true)] {
        let (timer, purgatory) = waiting();
        let inside = Stop::new();
        let stop = inside.clone();
        let probe = Probe::new();
        let operation = probe.operation().on_check(move || stop.here());
        let id = purgatory.park(operation, &["a"], MINUTE);
        inside.arm();
        thread::scope(|scope| {
            let checker = scope.spawn(|| purgatory.check_and_complete(&"a"));
            inside.meanwhile(|| {
                if by_cancel {
                    assert_eq!(purgatory.cancel(id, "given up"), ReachResult::UnderCheck);
                } else {
                    timer.advance(MINUTE);
                }
                assert!(!probe.ended(), "inside the check");
                if is_satisfied {
                    probe.make_ready();
                }
            });
            checker.join().unwrap(); // ThreadSanitizer does not see the end of a scope
        });
        let noted = if by_cancel {
            requested("given up")
        } else {
            Expired
        };
        let outcome = if is_satisfied { Completed } else { noted };
        assert_eq!(probe.endings(), [outcome]);
        assert_empty(&purgatory);
    }
}

/// In Kafka an operation is put on the timer after its last-chance check, so one whose check throws
/// there is watched and never expires.
#[test]
fn a_last_chance_check_that_panics_leaves_no_watch() {
    let (_timer, purgatory) = waiting();
    let probe = Probe::new();
    let raises = purgatory.clone();
    let mut is_first = true;
    let operation = probe.operation().on_check(move || {
        assert!(mem::take(&mut is_first), "in the last-chance check");
        // An event from elsewhere, so that it is checked again once it is watched.
        on_another_thread(|| raises.check_and_complete(&"a"));
    });
    let parked = purgatory.try_complete_else_watch(operation, &["a", "b"], MINUTE);
    parked.unwrap();
    assert_eq!((probe.checks(), probe.endings()), (2, vec![PANICKED]));
    assert_empty(&purgatory);
}

/// Parks fetches under `keys` and completes each by the event of the first. Returns by how many
/// bytes that made the memory of this thread grow.
fn fetches<const N: usize>(waits: &Purgatory<u32>, keys: impl Fn(u32) -> [u32; N]) -> i64 {
    let counted = measure(|| {
        for number in 0..3000 {
            let response = vec![0_u8; 16 << 10];
            let mut is_first = true;
            let check = move || !mem::take(&mut is_first) && !response.is_empty();
            let keys = keys(number);
            waits.park(when(check, drop), &keys, MINUTE);
            assert_eq!(waits.check_and_complete(&keys[0]), 1);
        }
    });
    counted.bytes_current
}

/// KAFKA-19389 and 19763: a fetch that one key's event answers stayed in the lists of its other
/// keys with its data, until a purge: brokers ran out of memory. Here the second key is one that
/// all fetches share, and the others are never used again.
#[test]
fn kafka_19763_nothing_stays_under_other_keys() {
    let (_timer, waits) = by_hand();
    let keys = |number| [3 * number, 3 * number + 1, 3 * number + 2, u32::MAX];
    // The shard of an operation is random, so some shards grow to their full size later; a leak
    // would grow for ever.
    let mut grown = Vec::new();
    for _ in 0..20 {
        grown.push(fetches(&waits, keys));
        assert_empty(&waits);
    }
    assert!(grown.contains(&0), "{grown:?} bytes");
    assert!(grown.iter().sum::<i64>() < 10 << 20, "{grown:?} bytes");
}

/// KAFKA-17509: a completed share fetch completed the next one from its callback, and so on, each
/// under the locks of all before it. Here its signals take effect after a callback has returned.
#[test]
fn kafka_17509_a_callback_that_signals_runs_alone() {
    let (_timer, purgatory): (_, Purgatory<usize, Op>) = by_hand();
    let running = Arc::new(AtomicUsize::new(0));
    let links = [(); 100].map(|()| Probe::new());
    for (key, link) in links.iter().enumerate() {
        let signals = purgatory.clone();
        let counted = running.clone();
        let signal = move |_| {
            assert_eq!(counted.fetch_add(1, SeqCst), 0, "inside another callback");
            signals.check_and_complete(&(key + 1));
            counted.fetch_sub(1, SeqCst);
        };
        purgatory.park(link.operation().then(signal), &[key], NEVER);
        link.make_ready();
    }
    purgatory.check_and_complete(&0);
    assert!(links.iter().all(|link| link.endings() == [Completed]));
    assert_empty(&purgatory);
    assert_eq!(purgatory.stats().panics, 0);
}
