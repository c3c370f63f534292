//! Every interleaving of the timer and its reaper, on the shipped code: `just loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p timer-core --features __loom --test loom`.
//!
//! Each model is run unchanged, where no interleaving may fail or stop, and then with a planted
//! fault, where one must. The fault is at a failpoint in the very line that the model is about, or
//! in the model itself. Time stands still at 0, and only a signal wakes a sleeping reaper: if a
//! signal is missed, the model stops.

#![cfg(loom)]

#[path = "support/mod.rs"]
mod support;

use std::{
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    thread,
    time::Duration,
};

use loom::sync::{Arc, Condvar};
use support::{HOUR, MS, Woken};
use timer_core::{
    Clock, ManualTimer, Sleep, SystemTimer, TimerError,
    driver::sync::{is_planted, make_late, plant},
};

const PREEMPTIONS: usize = 3;
const NOW: Duration = Duration::ZERO;

/// A clock on which time stands still.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

fn timer() -> SystemTimer {
    let builder = SystemTimer::builder().clock(Still).shards(1).inline();
    builder.build().unwrap()
}

/// Tells the thread that waits for it that a task ran.
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

/// Runs `model` in every interleaving, then again in a process of its own with a planted fault,
/// which one of the interleavings must show. (A model that stops cannot be unwound, so that process
/// aborts.)
fn check(fault: &str, model: fn()) {
    if std::env::var("PLANT").is_ok_and(|planted| planted == fault) {
        plant(Some(fault.to_owned()));
        return explore(model);
    }
    explore(model);
    let test = thread::current()
        .name()
        .expect("a test's thread has its name")
        .to_owned();
    let faulty = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .env("PLANT", fault)
        .output()
        .unwrap();
    assert!(!faulty.status.success(), "{fault} was not noticed");
    println!("{test}: {fault} noticed");
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
    println!(
        "{}: {} interleavings at {PREEMPTIONS} preemptions",
        thread::current().name().unwrap_or_default(),
        runs.load(SeqCst)
    );
}

/// Tasks arrive while the reaper turns the wheel: each fires.
#[test]
fn schedule_against_turn() {
    check("AdvanceLeavesWakeBefore", || {
        let timer = timer();
        let fired = [Fired::new(), Fired::new()];
        for fired in &fired {
            let fired = fired.clone();
            timer.schedule(NOW, move || fired.say()).unwrap();
        }
        for fired in &fired {
            fired.wait();
        }
        assert!(timer.shutdown(Duration::MAX).unfired.is_empty());
    });
}

/// The reaper is about to sleep for an hour when another thread schedules a task for now.
#[test]
fn the_reapers_sleep_against_an_earlier_arrival() {
    check("EarlierWorkSendsNoSignal", || {
        let timer = timer();
        timer.schedule(HOUR, || ()).unwrap();
        let (other, fired) = (timer.clone(), Fired::new());
        let say = fired.clone();
        let arrival = loom::thread::spawn(move || {
            other.schedule(NOW, move || say.say()).unwrap();
        });
        fired.wait();
        arrival.join().unwrap();
        assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
    });
}

/// A task fires or is cancelled, never both and never neither.
#[test]
fn cancel_against_fire() {
    check("CancelLooksThenActs", || {
        let timer = timer();
        let runs = std::sync::Arc::new(Mutex::new(0));
        let counted = runs.clone();
        let handle = timer
            .schedule(NOW, move || *counted.lock().unwrap() += 1)
            .unwrap();
        // The fault is here: `cancel` is one call under one lock hold.
        let cancelled = if is_planted("CancelLooksThenActs") {
            let was_pending = timer.is_pending(handle);
            timer.cancel(handle);
            was_pending
        } else {
            timer.cancel(handle)
        };
        let left = timer.shutdown(Duration::MAX).unfired.len();
        let runs = *runs.lock().unwrap();
        assert_eq!(
            usize::from(cancelled) + runs + left,
            1,
            "{cancelled} {runs} {left}"
        );
    });
}

/// A task is either refused, fired, or handed back.
#[test]
fn shutdown_against_schedule() {
    check("ShutdownClosesNoShard", || {
        let timer = timer();
        let runs = std::sync::Arc::new(Mutex::new(0));
        let (other, counted) = (timer.clone(), runs.clone());
        let scheduling = loom::thread::spawn(move || {
            let task = move || *counted.lock().unwrap() += 1;
            let refused = other.schedule(HOUR, task).err();
            refused.map_or(0, |refused| {
                usize::from(refused.reason == TimerError::Closed)
            })
        });
        let left = timer.shutdown(Duration::MAX).unfired.len();
        let refused = scheduling.join().unwrap();
        assert_eq!((refused + left, *runs.lock().unwrap()), (1, 0));
    });
}

/// The first task of a shard that is not made yet arrives while the timer is shut down: the task is
/// refused or handed back.
#[test]
fn shutdown_against_the_making_of_a_shard() {
    check("LookPassesTheUnmade", || {
        make_late();
        let builder = SystemTimer::builder().clock(Still).shards(2).inline();
        let timer = builder.build().unwrap();
        let other = timer.clone();
        let scheduling = loom::thread::spawn(move || {
            let refused = other.schedule(HOUR, || ()).err();
            refused.map_or(0, |refused| {
                usize::from(refused.reason == TimerError::Closed)
            })
        });
        let left = timer.shutdown(Duration::MAX).unfired.len();
        assert_eq!(scheduling.join().unwrap() + left, 1);
    });
}

/// A task is scheduled on a manual timer while another thread advances it: if this advance does not
/// find the task, the next one does.
#[test]
fn schedule_against_an_advance() {
    check("EarlierWorkSendsNoSignal", || {
        make_late();
        let timer = ManualTimer::new();
        let fired = std::sync::Arc::new(AtomicUsize::new(0));
        let (other, counted) = (timer.clone(), fired.clone());
        let scheduling = loom::thread::spawn(move || {
            let task = move || _ = counted.fetch_add(1, SeqCst);
            other.schedule(MS, task).unwrap();
        });
        timer.advance(MS);
        scheduling.join().unwrap();
        timer.advance(MS);
        assert_eq!(fired.load(SeqCst), 1);
    });
}

/// Returns a sleep that a task registered, and a thread on which its time comes.
fn falls_due(before: &std::sync::Arc<Woken>) -> (ManualTimer, Sleep, loom::thread::JoinHandle<()>) {
    let timer = ManualTimer::new();
    let mut sleep = timer.sleep(MS);
    assert!(before.poll(&mut sleep).is_pending());
    let advancing = timer.clone();
    let time = loom::thread::spawn(move || advancing.advance(MS));
    (timer, sleep, time)
}

/// Another task continues a sleep while it falls due: that task is woken, or finds the sleep ready.
#[test]
fn a_poll_with_another_waker_against_the_time() {
    check("LateWakerWaits", || {
        let (before, after) = (Woken::task(), Woken::task());
        let (_timer, mut sleep, time) = falls_due(&before);
        let polled = after.poll(&mut sleep);
        time.join().unwrap();
        if polled.is_pending() {
            assert_eq!(after.times(), 1, "nobody wakes the task that waits");
        }
        assert_eq!(after.poll(&mut sleep), Poll::Ready(Ok(())));
    });
}

/// A sleep is dropped while it falls due: its waker is called at most once, and is not kept.
#[test]
fn a_drop_against_the_time() {
    check("DroppedSleepStays", || {
        let before = Woken::task();
        let (timer, mut sleep, time) = falls_due(&before);
        let after = Woken::task();
        let ready = after.poll(&mut sleep).is_ready();
        drop(sleep);
        let left = timer.sleepers();
        time.join().unwrap();
        let wakes = before.times() + after.times();
        assert!(wakes <= 1 && (wakes == 1 || !ready), "{wakes} {ready}");
        assert_eq!(left, 0, "a dropped sleep is on the wheel");
        let (before, after) = (before.wakers(), after.wakers());
        assert_eq!((before, after), (0, 0), "a waker stays");
    });
}

/// A timer is shut down while a sleep registers: the sleep is refused, or woken.
#[test]
fn a_shutdown_against_a_first_poll() {
    check("ShutdownWakesNoSleeper", || {
        let (timer, task) = (ManualTimer::new(), Woken::task());
        let mut sleep = timer.sleep(MS);
        let closing = timer.clone();
        let shutdown = loom::thread::spawn(move || _ = closing.shutdown(Duration::MAX));
        let polled = task.poll(&mut sleep);
        shutdown.join().unwrap();
        assert_eq!(polled.is_pending(), task.times() == 1);
        assert_eq!(task.poll(&mut sleep), Poll::Ready(Err(TimerError::Closed)));
    });
}
