//! Completions that are lost or come at the wrong time, checks and executors that throw, and memory
//! that ended operations keep.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use allocation_counter::measure;
use purgatory::{
    Outcome::{self, Completed, Expired},
    Purgatory, when,
};
use timer_core::{Executor, Job, SystemTimer};

use crate::{
    script::{Ours, Probe, ends, here},
    support::{MS, PANICKED, Stop, assert_empty, requested},
};

const KEY: u32 = 1;

fn given_up() -> Outcome {
    requested("given up")
}

/// A checker has found the condition false and is still inside; meanwhile the condition becomes
/// true, and its key is signalled for the last time.
fn event_while_a_checker_has_seen_it_false(purgatory: &Ours, probe: &Probe) {
    let inside = Stop::new();
    let stop = inside.clone();
    let operation = probe.acting(move |ready| {
        stop.here();
        ready
    });
    purgatory.park(operation, &[KEY]);
    inside.arm();
    thread::scope(|scope| {
        let checker = scope.spawn(|| purgatory.event(KEY));
        inside.meanwhile(|| {
            probe.make_ready();
            assert_eq!(purgatory.event(KEY), 0);
        });
        checker.join().unwrap(); // ThreadSanitizer does not see the end of a scope
    });
}

/// KAFKA-6653: so that no thread waited for a checker, a thread that found one gave up. When the
/// condition became true after the checker had read it, no thread checked again. Here a thread that
/// finds a checker requests a recheck from it.
#[test]
fn kafka_6653_a_condition_true_during_a_check_is_seen() {
    assert_eq!(here(event_while_a_checker_has_seen_it_false).1, [Completed]);
}

/// A checker is inside the check, which will say `satisfied`, when another thread ends the
/// operation. Returns how often the callback ran inside the check.
fn end_while_a_checker_is_inside(
    purgatory: &Ours,
    probe: &Probe,
    satisfied: bool,
    end: impl Fn(&Ours),
) -> usize {
    let inside = Stop::new();
    let overlaps = Arc::new(AtomicUsize::new(0));
    let checking = Arc::new(AtomicBool::new(false));
    let stop = inside.clone();
    let enters = checking.clone();
    let counted = overlaps.clone();
    let check = move |ready| {
        enters.store(true, SeqCst);
        stop.here();
        enters.store(false, SeqCst);
        ready && satisfied
    };
    let count = move || _ = counted.fetch_add(checking.load(SeqCst).into(), SeqCst);
    purgatory.park(probe.acting_and_then(check, count), &[KEY]);
    probe.make_ready();
    inside.arm();
    thread::scope(|scope| {
        let checker = scope.spawn(|| purgatory.event(KEY));
        inside.meanwhile(|| end(purgatory));
        checker.join().unwrap();
    });
    overlaps.load(SeqCst)
}

/// KAFKA-19312: a timeout ran `onComplete` while another thread was inside `tryComplete` of the
/// same operation, both using its fields. Here a check borrows the operation and the callback
/// consumes it: a thread that ends it meanwhile leaves a request, and the checker acts on it,
/// unless its check has become true.
#[test]
fn kafka_19312_no_callback_runs_inside_a_check() {
    type End = fn(&Ours);
    let cancel: End = |ours| assert_eq!(ours.cancel(KEY), 0);
    for (end, noted) in [(Ours::expire as End, Expired), (cancel, given_up())] {
        for (satisfied, outcome) in [(false, noted), (true, Completed)] {
            let ours = here(move |purgatory, probe| {
                end_while_a_checker_is_inside(purgatory, probe, satisfied, end)
            });
            assert_eq!(ours, (0, vec![outcome]));
        }
    }
}

/// Two operations wait, one of them under a second key too; the first key is given up.
fn give_up_a_key(purgatory: &Ours) -> [Vec<Outcome>; 2] {
    let probes = [Probe::default(), Probe::default()];
    purgatory.park(probes[0].operation(), &[1]);
    purgatory.park(probes[1].operation(), &[1, 2]);
    assert_eq!(purgatory.cancel(1), 2);
    purgatory.expire();
    probes.map(|probe| probe.endings())
}

/// Kafka's `cancelForKey` stops the timers of the operations that it returns and completes nothing,
/// so that a request is answered by the caller or not at all. Here each operation is called back
/// with its cancellation.
#[test]
fn operations_cancelled_for_a_key_are_called_back() {
    let (ours, _) = here(|ours, _| give_up_a_key(ours));
    assert_eq!(ours, [[given_up()], [given_up()]]);
}

/// The check after the first panics.
fn last_chance_check_that_panics(purgatory: &Ours, probe: &Probe) {
    let checks = AtomicUsize::new(0);
    let operation = probe.acting(move |_| {
        assert_eq!(checks.fetch_add(1, SeqCst), 0, "in the last-chance check");
        false
    });
    let park = || purgatory.park_with(operation, &[1, 2], None, Some(Box::new(|| ())));
    let _ = catch_unwind(AssertUnwindSafe(park)); // as the request's thread does
    purgatory.expire();
}

/// In Kafka an operation is put on the timer after its last-chance check, so one whose check throws
/// there is watched and never expires. Here it is on the wheel before, and ends as
/// Cancelled(Panicked).
#[test]
fn a_last_chance_check_that_panics_leaves_no_watch() {
    assert_eq!(here(last_chance_check_that_panics).1, [PANICKED]);
}

/// Parks three operations under a key, all ready; the check of the second panics.
fn scan_with_a_check_that_panics(purgatory: &Ours) -> [Vec<Outcome>; 3] {
    let probes = [(); 3].map(|()| Probe::default());
    let bad = Arc::new(AtomicBool::new(false));
    for (number, probe) in probes.iter().enumerate() {
        let throws = bad.clone();
        let operation = probe.acting(move |ready| {
            assert!(number != 1 || !throws.load(SeqCst), "in a scan");
            ready
        });
        purgatory.park(operation, &[KEY]);
        probe.make_ready();
    }
    bad.store(true, SeqCst);
    let _ = catch_unwind(AssertUnwindSafe(|| purgatory.event(KEY)));
    probes.map(|probe| probe.endings())
}

/// In Kafka an exception in one operation's check ends the walk over its key, and the rest is not
/// checked. Here it ends that operation, and the walk goes on.
#[test]
fn a_check_that_panics_in_a_scan_skips_no_other() {
    let ours = here(|ours, _| {
        (
            scan_with_a_check_that_panics(ours),
            ours.purgatory.stats().panics,
        )
    });
    assert_eq!(
        ours.0,
        ([vec![Completed], vec![PANICKED], vec![Completed]], 1)
    );
}

/// Refuses its first job.
#[derive(Debug, Default)]
struct RefusesOnce(AtomicBool);

impl Executor for RefusesOnce {
    fn execute(&self, job: Job) {
        assert!(self.0.swap(true, SeqCst), "the executor is full");
        job.run();
    }
}

/// An exception in the loop of Kafka's reaper, such as an executor's that refuses a task, ends the
/// thread and with it every later expiry. Here it is contained, and the refused job runs where it
/// is dropped.
#[test]
fn an_executor_that_panics_leaves_the_reaper_alive() {
    let (expired, told) = mpsc::channel();
    let timer = SystemTimer::builder()
        .executor(RefusesOnce::default())
        .build()
        .unwrap();
    let purgatory = Purgatory::builder("reaper").timer(&timer).build().unwrap();
    let expire_one = move |number: u32| {
        let expired = expired.clone();
        let tell = move |outcome| {
            assert_eq!(outcome, Expired);
            expired.send(number).unwrap();
        };
        let operation = when(|| false, tell);
        let timeout = MS;
        let _ = purgatory
            .try_complete_else_watch(operation, &["key"], timeout)
            .unwrap();
        told.recv()
    };
    assert_eq!(ends(move || [1, 2].map(expire_one)), [Ok(1), Ok(2)]);
}

/// The size of a fetch's answer, which is dropped with the operation.
const RESPONSE: i64 = 16 << 10;

/// Kafka purges its lists when this many more operations have completed than are pending. They hold
/// 16 MB until then.
const PURGE_INTERVAL: u32 = 1000;

/// Parks a fetch under `keys` and completes it by the event of the first, `count` times. Returns by
/// how many bytes that made the memory in use grow: this thread's, where nothing else allocates.
fn fetches<const N: usize>(purgatory: &Ours, count: u32, keys: impl Fn(u32) -> [u32; N]) -> i64 {
    let counted = measure(|| {
        for number in 0..count {
            let probe = Probe::default();
            let response = vec![0_u8; RESPONSE as usize];
            let operation = probe.acting(move |ready| ready && !response.is_empty());
            let keys = keys(number);
            purgatory.park(operation, &keys);
            probe.make_ready();
            assert_eq!(purgatory.event(keys[0]), 1);
        }
    });
    counted.bytes_current
}

/// The memory of slots that remains after all have ended: a few pages of each used shard, once,
/// after any number of endings.
const SHARD_KEEPS: i64 = 32 << 10;
const ALL_KEEP: i64 = 4096 * (2 << 10);

/// KAFKA-19389: a share fetch is watched under its group and its partition. The event of one
/// answered it, and the other's list kept it, with the answer, until a purge: brokers ran out of
/// memory. Here an ended operation is out of every list, and dropped, before the event returns.
#[test]
fn kafka_19389_nothing_stays_under_a_second_key() {
    let partition_and_group = |_| [1, 2];
    let ours = Ours::new();
    assert!(fetches(&ours, PURGE_INTERVAL, partition_and_group) <= SHARD_KEEPS);
    assert_empty(&ours.purgatory);
    assert_eq!(fetches(&ours, 10 * PURGE_INTERVAL, partition_and_group), 0);
}

/// KAFKA-19763: a fetch that reads from remote storage is watched under each of its partitions, and
/// the lists of the others kept it with the data: brokers ran out of memory again. The same as
/// above, under a key that all share and keys that are never used again.
#[test]
fn kafka_19763_nothing_stays_under_keys_used_once() {
    const HOT: u32 = u32::MAX;
    let under_its_own = |number| [3 * number, 3 * number + 1, 3 * number + 2, HOT];
    let ours = Ours::new();
    let many = 10 * PURGE_INTERVAL; // 160 MB of responses
    assert!(fetches(&ours, many, under_its_own) <= SHARD_KEEPS + ALL_KEEP);
    assert_empty(&ours.purgatory);
    // To a purgatory they are new keys again. The shard of an operation is random, so some shards
    // grow to their full size later; a leak would grow for ever.
    let grown: Vec<_> = (0..20)
        .map(|_| fetches(&ours, many, under_its_own))
        .collect();
    assert!(grown.contains(&0), "{grown:?} bytes");
}
