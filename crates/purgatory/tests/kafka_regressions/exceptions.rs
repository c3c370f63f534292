//! Checks and executors that throw.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use purgatory::{CancelReason, Outcome, Purgatory, when};
use timer_core::{Executor, Job, SystemTimer};

use crate::{
    naive::{Busy, Naive},
    script::{AnyPurgatory, Ours, Probe, ends},
};

const PANICKED: Outcome = Outcome::Cancelled(CancelReason::Panicked);

/// The check after the first panics.
fn last_chance_check_that_panics(purgatory: &impl AnyPurgatory, probe: &Probe) {
    let checks = AtomicUsize::new(0);
    let operation = probe.acting(move |_| {
        assert_eq!(checks.fetch_add(1, SeqCst), 0, "in the last-chance check");
        false
    });
    let park = || purgatory.park_meanwhile(operation, &[1, 2], || ());
    let _ = catch_unwind(AssertUnwindSafe(park)); // as the request's thread does
    purgatory.expire();
}

/// In Kafka an operation is put on the timer after its last-chance check, so one whose check throws
/// there is watched and never expires. Here it is on the wheel before, and ends as
/// Cancelled(Panicked).
#[test]
fn a_last_chance_check_that_panics_leaves_no_watch() {
    let (naive, probe) = (Naive::new(Busy::Waits), Probe::new());
    last_chance_check_that_panics(&naive, &probe);
    assert_eq!((probe.endings(), naive.watched()), (vec![], 2), "watched for ever");

    let (ours, probe) = (Ours::new(), Probe::new());
    last_chance_check_that_panics(&ours, &probe);
    assert_eq!(probe.endings(), [PANICKED]);
    ours.assert_empty();
}

/// Of three operations of a key, all ready, the second one's check panics.
fn scan_with_a_check_that_panics(purgatory: &impl AnyPurgatory) -> [Vec<Outcome>; 3] {
    let probes = [Probe::new(), Probe::new(), Probe::new()];
    let bad = Arc::new(AtomicBool::new(false));
    purgatory.park(probes[0].operation(), &[1]);
    let throws = bad.clone();
    let operation = probes[1].acting(move |ready| {
        assert!(!throws.load(SeqCst), "in a scan");
        ready
    });
    purgatory.park(operation, &[1]);
    purgatory.park(probes[2].operation(), &[1]);
    probes.iter().for_each(Probe::make_ready);
    bad.store(true, SeqCst);
    let _ = catch_unwind(AssertUnwindSafe(|| purgatory.event(1)));
    probes.map(|probe| probe.endings())
}

/// In Kafka an exception in one operation's check ends the walk over its key, and the rest is not
/// checked. Here it ends that operation, and the walk goes on.
#[test]
fn a_check_that_panics_in_a_scan_skips_no_other() {
    const COMPLETED: Outcome = Outcome::Completed;
    let kafka = scan_with_a_check_that_panics(&Naive::new(Busy::Waits));
    assert_eq!(kafka, [vec![COMPLETED], vec![], vec![]], "the third is ready, and unchecked");

    let ours = Ours::new();
    let here = scan_with_a_check_that_panics(&ours);
    assert_eq!(here, [vec![COMPLETED], vec![PANICKED], vec![COMPLETED]]);
    assert_eq!(ours.purgatory.stats().panics, 1);
    ours.assert_empty();
}

/// Refuses its first job.
#[derive(Debug, Default)]
struct RefusesOnce(AtomicBool);

impl RefusesOnce {
    fn take(&self) {
        assert!(self.0.swap(true, SeqCst), "the executor is full");
    }
}

impl Executor for RefusesOnce {
    fn execute(&self, job: Job) {
        self.take();
        job.run();
    }
}

/// An exception in the loop of Kafka's reaper, such as an executor's that refuses a task, ends the
/// thread and with it every later expiry. Here it is contained, and the refused job runs where it
/// is dropped.
#[test]
fn an_executor_that_panics_leaves_the_reaper_alive() {
    let (expired, told) = mpsc::channel();
    let (due, falls_due) = mpsc::channel::<u32>();
    let send = expired.clone();
    let reaper = thread::spawn(move || {
        let executor = RefusesOnce::default();
        for number in falls_due {
            executor.take();
            send.send(number).unwrap();
        }
    });
    due.send(1).unwrap();
    assert!(reaper.join().is_err(), "the thread is gone");
    assert!(due.send(2).is_err());
    assert_eq!(told.try_iter().count(), 0, "nothing expires any more");

    let timer = SystemTimer::builder().executor(RefusesOnce::default()).build().unwrap();
    let purgatory = Purgatory::builder("reaper").timer(&timer).build().unwrap();
    let expire_one = move |number: u32| {
        let expired = expired.clone();
        let tell = move |outcome| {
            assert_eq!(outcome, Outcome::Expired);
            expired.send(number).unwrap();
        };
        let (operation, timeout) = (when(|| false, tell), Duration::from_millis(1));
        let _ = purgatory.try_complete_else_watch(operation, &["key"], timeout).unwrap();
        told.recv()
    };
    assert_eq!(ends(move || [1, 2].map(expire_one)), [Ok(1), Ok(2)]);
}
