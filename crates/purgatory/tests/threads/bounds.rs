//! Bounds on what others have to wait for: a shutdown with a limit, and the thread that turns all
//! wheels.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use purgatory::{BoxedOperation, Outcome, Purgatory, RefusedReason, when};
use timer_core::{Executor, Job, SystemTimer, Timer};

use crate::support::{Later, MINUTE, MS, Park, by_hand, never};

type Waits<K> = Purgatory<K, BoxedOperation>;

/// A key that counts how many of its like a reaper dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Watched(u32);

static DROPPED_BY_A_REAPER: AtomicUsize = AtomicUsize::new(0);

impl Drop for Watched {
    fn drop(&mut self) {
        let reaper = std::thread::current().name().is_some_and(|name| name.ends_with("-reaper"));
        DROPPED_BY_A_REAPER.fetch_add(usize::from(reaper), SeqCst);
    }
}

/// The thread that turns all wheels does not go through the keys of what expired, and drops none.
#[test]
fn expiring_under_many_keys_leaves_the_reaper_free() {
    let kept = Later::default();
    let timer = SystemTimer::builder().executor(kept.clone()).build().unwrap();
    let purgatory: Waits<Watched> = Purgatory::builder("many").timer(&timer).build().unwrap();
    let keys: Vec<_> = (0..1000).map(Watched).collect();
    for keys in [&keys[..], &keys[..5], &keys[7..8]] {
        let id = purgatory.park(never(), keys, MINUTE);
        purgatory.reschedule(id, MS); // it is not held any more by the time it expires
        while !purgatory.is_empty() || kept.len() == 0 {
            std::thread::yield_now();
        }
        let left = keys.len().saturating_sub(1 + 16);
        assert_eq!((purgatory.keys(), DROPPED_BY_A_REAPER.load(SeqCst)), (left, 0));
        assert_eq!(purgatory.check_and_complete(&keys[keys.len() - 1]), 0);
        assert_eq!(purgatory.stats().callbacks_waiting, 1);
        kept.run();
        assert_eq!((purgatory.keys(), purgatory.stats().callbacks_waiting), (0, 0));
    }
    timer.shutdown(Duration::MAX);
}

/// Operations under many keys are released in pieces, between which other jobs get their turn.
#[test]
fn many_keys_do_not_hold_up_the_executors_queue() {
    let kept = Later::default();
    let timer = SystemTimer::builder().executor(kept.clone()).build().unwrap();
    let purgatory: Waits<u32> = Purgatory::builder("many").timer(&timer).build().unwrap();
    let keys: Vec<_> = (0..5000).collect();
    let told = Arc::new(Mutex::new(Vec::new()));
    let park = |name: &'static str, keys: &[u32]| {
        let told = told.clone();
        let tell = when(|| false, move |_| told.lock().unwrap().push(name));
        let id = purgatory.park(tell, keys, MINUTE);
        purgatory.reschedule(id, MS);
    };
    let wait_for_jobs = |jobs| {
        while !purgatory.is_empty() || kept.len() < jobs {
            std::thread::yield_now();
        }
    };
    (0..3).for_each(|_| park("under many keys", &keys));
    wait_for_jobs(1);
    let jobs = kept.len();
    park("under one", &keys[..1]);
    wait_for_jobs(jobs + 1);
    while kept.run() > 0 {}
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!((told.len(), told.last()), (4, Some(&"under many keys")), "{told:?}");
    assert_eq!((purgatory.keys(), purgatory.stats().callbacks_waiting), (0, 0));
    timer.shutdown(Duration::MAX);
}

/// Purgatories on a shared timer are closed before its shutdown returns, though no end is told
/// yet.
#[test]
fn a_timers_shutdown_closes_its_purgatories_at_once() {
    let kept = Later::default();
    let timer = SystemTimer::builder().executor(kept.clone()).build().unwrap();
    let purgatory: Waits<u32> = Purgatory::builder("shared").timer(&timer).build().unwrap();
    let (send, told) = mpsc::channel();
    let waits = |send: &mpsc::Sender<Outcome>| {
        let send = send.clone();
        when(|| false, move |outcome| send.send(outcome).unwrap())
    };
    purgatory.park(waits(&send), &[1], MINUTE);
    timer.shutdown(Duration::ZERO);
    let refused = purgatory.try_complete_else_watch(waits(&send), &[1], MINUTE).unwrap_err();
    assert_eq!((refused.reason, told.try_iter().count()), (RefusedReason::Closed, 0));
    assert_eq!(purgatory.shutdown(Duration::ZERO).callbacks, 1, "it is left, again");
    kept.run();
    assert_eq!(told.try_iter().count(), 1);
    assert!(purgatory.shutdown(Duration::ZERO).is_nothing());
}

/// Inside a callback what the shutdown ends is told later: until then it is left.
#[test]
fn a_shutdown_inside_a_callback_tells_all_it_left() {
    let (_timer, purgatory): (_, Waits<u32>) = by_hand();
    let (send, left) = mpsc::channel();
    let inside = purgatory.clone();
    let shuts_down = move |_| send.send(inside.shutdown(MINUTE)).unwrap();
    purgatory.park(when(|| false, shuts_down), &[1], MINUTE);
    for _ in 0..3 {
        purgatory.park(never(), &[2], MINUTE);
    }
    assert_eq!(purgatory.complete_for_key(&1), 1);
    let left = left.try_recv().unwrap();
    assert_eq!((left.callbacks, left.under_check, left.threads), (3, 0, 0));
    assert!(purgatory.shutdown(MINUTE).is_nothing());
}

/// Tells the name of the thread that drops it.
struct TellsWhere(mpsc::Sender<String>);

impl Drop for TellsWhere {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().name().unwrap_or_default().to_owned());
    }
}

/// Runs its first job in place, and lets the purgatory go.
#[derive(Clone, Debug, Default)]
struct LetsGo {
    purgatory: Arc<Mutex<Option<Waits<u32>>>>,
}

impl Executor for LetsGo {
    fn execute(&self, job: Job) {
        let purgatory = self.purgatory.lock().unwrap().take();
        job.run();
        drop(purgatory);
    }
}

/// The last handle goes while the reaper has the rooms in its hands, so it has the last one itself.
#[test]
fn the_reaper_drops_no_hook_of_a_purgatory() {
    let (timer, lets_go) = (SystemTimer::new().unwrap(), LetsGo::default());
    let (tell, told) = mpsc::channel();
    let hook = TellsWhere(tell);
    let builder = Purgatory::builder("gone").timer(&timer).executor(lets_go.clone());
    let builder = builder.check_at_expiry(move |_| _ = &hook);
    let purgatory: Waits<u32> = builder.build().unwrap();
    let id = purgatory.park(never(), &[1], MINUTE);
    // The executor waits for this thread's handle to go.
    let mut has = lets_go.purgatory.lock().unwrap();
    purgatory.reschedule(id, MS);
    *has = Some(purgatory);
    drop(has);
    let dropped_by = told.recv_timeout(MINUTE).unwrap();
    assert!(dropped_by.contains("worker"), "{dropped_by}");
    timer.shutdown(Duration::MAX);
}
