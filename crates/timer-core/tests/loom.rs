//! Every interleaving of the timer and its reaper, on the shipped code: `just loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p timer-core --test loom`.
//!
//! Each model is run as it is, where no interleaving may fail or stop, and then with a fault planted in
//! the very line it is about, where one must. Time stands still at 0, and a sleeping reaper is woken by
//! the bell alone: a ring that is missed is a model that stops.

#![cfg(loom)]

use std::{
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use loom::sync::{Arc, Condvar};
use timer_core::{ManualClock, ScheduleErrorReason, SystemTimer, Timer, sync::plant};

const PREEMPTIONS: usize = 3;
const NOW: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

fn timer() -> SystemTimer {
    let builder = SystemTimer::builder().clock(ManualClock::new()).shards(1).inline();
    builder.build().unwrap()
}

/// Says that a task ran, to whoever waits for it.
#[derive(Clone)]
struct Fired(Arc<(loom::sync::Mutex<bool>, Condvar)>);

impl Fired {
    fn new() -> Self {
        Fired(Arc::new((loom::sync::Mutex::new(false), Condvar::new())))
    }

    fn say(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut fired = self.0.0.lock().unwrap();
        while !*fired {
            fired = self.0.1.wait(fired).unwrap();
        }
    }
}

/// Runs `model` in every interleaving, then again, in a process of its own, with `fault` planted,
/// which one of them must show. (A model that stops cannot be unwound: that process aborts.)
fn check(fault: &'static str, model: fn()) {
    if std::env::var("PLANT").is_ok_and(|planted| planted == fault) {
        plant(fault);
        return explore(model);
    }
    explore(model);
    let test = thread::current().name().expect("a test's thread has its name").to_owned();
    let faulty = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .env("PLANT", fault)
        .output()
        .unwrap();
    assert!(!faulty.status.success(), "{fault:?} was not noticed");
    println!("{fault:?} noticed");
}

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, SeqCst);
        model();
    });
    println!("{} interleavings at {PREEMPTIONS} preemptions", runs.load(SeqCst));
}

/// Tasks keep coming while the reaper turns: each fires.
#[test]
fn schedule_against_turn() {
    check("a turn leaves wake-before as it was", || {
        let timer = timer();
        let fired = [Fired::new(), Fired::new()];
        for fired in &fired {
            let fired = fired.clone();
            timer.schedule(NOW, move || fired.say()).unwrap();
        }
        fired.iter().for_each(Fired::wait);
        assert!(timer.shutdown().is_empty());
    });
}

/// The reaper means to sleep for an hour when another thread has something for now.
#[test]
fn the_reapers_sleep_against_an_earlier_arrival() {
    check("nobody rings", || {
        let timer = timer();
        timer.schedule(HOUR, || ()).unwrap();
        let (other, fired) = (timer.clone(), Fired::new());
        let say = fired.clone();
        let arrival = loom::thread::spawn(move || {
            other.schedule(NOW, move || say.say()).unwrap();
        });
        fired.wait();
        arrival.join().unwrap();
        assert_eq!(timer.shutdown().len(), 1);
    });
}

/// A task fires or is cancelled, never both and never neither.
#[test]
fn cancel_against_fire() {
    check("cancel looks, then acts", || {
        let timer = timer();
        let runs = std::sync::Arc::new(Mutex::new(0));
        let counted = runs.clone();
        let handle = timer.schedule(NOW, move || *counted.lock().unwrap() += 1).unwrap();
        let cancelled = timer.cancel(handle);
        let left = timer.shutdown().len();
        let runs = *runs.lock().unwrap();
        assert_eq!(usize::from(cancelled) + runs + left, 1, "{cancelled} {runs} {left}");
    });
}

/// A task is refused, fires, or is handed back.
#[test]
fn shutdown_against_schedule() {
    check("shutdown closes no shard", || {
        let timer = timer();
        let runs = std::sync::Arc::new(Mutex::new(0));
        let (other, counted) = (timer.clone(), runs.clone());
        let scheduling = loom::thread::spawn(move || {
            let task = move || *counted.lock().unwrap() += 1;
            let refused = other.schedule(HOUR, task).err();
            refused.map_or(0, |refused| usize::from(refused.reason == ScheduleErrorReason::Closed))
        });
        let left = timer.shutdown().len();
        let refused = scheduling.join().unwrap();
        assert_eq!((refused + left, *runs.lock().unwrap()), (1, 0));
    });
}
