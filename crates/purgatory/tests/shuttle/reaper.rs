//! With a reaper, and a worker that runs what expired.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use purgatory::failpoints::Failpoint;
use shuttle::{
    sync::mpsc,
    thread::{self, JoinHandle},
};
use timer_core::{Clock, Executor, Job, SystemTimer, Timer};

use crate::{
    schedules::{Fault, check},
    world::{MS, NEVER, Settings, World, join},
};

/// A clock that moves on by a fraction of a tick whenever it is read.
#[derive(Debug, Default)]
struct Clockwork(AtomicU64);

impl Clock for Clockwork {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(300_000, Relaxed)
    }
}

/// An executor whose thread is the model's.
#[derive(Debug)]
struct Worker(mpsc::Sender<Option<Job>>);

impl Executor for Worker {
    fn execute(&self, job: Job) {
        drop(self.0.send(Some(job))); // handed back, it runs as it is dropped
    }
}

/// The worker's thread.
pub struct Working {
    jobs: mpsc::Sender<Option<Job>>,
    thread: JoinHandle<()>,
}

impl Working {
    /// A timer with a reaper and a worker.
    pub fn timer() -> (SystemTimer, Self) {
        let (jobs, arrived) = mpsc::channel();
        let work = move || {
            while arrived.recv().ok().flatten().map(Job::run).is_some() {}
            arrived.try_iter().flatten().for_each(Job::run);
        };
        let working = Working { jobs: jobs.clone(), thread: thread::spawn(work) };
        let builder = SystemTimer::builder().clock(Clockwork::default()).executor(Worker(jobs));
        (builder.shards(2).build().unwrap(), working)
    }

    /// Lets the worker finish what it was given; what comes later runs where it is handed in.
    fn stop(self) {
        self.jobs.send(None).unwrap();
        self.thread.join().unwrap();
    }

    /// Waits for the threads, and for all that has a deadline to end without any help; then ends
    /// the rest by the timer's shutdown.
    pub fn finish(
        self,
        world: &World<SystemTimer>,
        threads: impl IntoIterator<Item = JoinHandle<()>>,
    ) {
        join(threads);
        world.wait_for_time();
        self.stop();
        world.wait_for_time(); // for what a callback of the worker's parked
        world.assert_nothing_missed();
        world.begin_shutdown();
        assert!(world.timer.shutdown(std::time::Duration::MAX).unfired.is_empty());
        world.assert_over();
    }
}

/// With the reaper and a worker for threads, and tasks on the same timer.
#[test]
fn expiry_without_help() {
    let faults = [Fault::Purgatory(Failpoint::ExpiryLeavesNoNote), Fault::Timer("NobodyRings")];
    check(&faults, || {
        let (timer, working) = Working::timer();
        let world = World::on(timer, Settings { max_parked: Some(3), ..Settings::default() });
        let runs = Arc::new(AtomicU64::new(0));
        let counted = runs.clone();
        working.finish(
            &world,
            [
                world.thread(|world| {
                    world.park(world.op(&[1, 2]), NEVER);
                    world.park(world.op(&[3]), NEVER);
                    world.event(1);
                }),
                world.thread(|world| {
                    let inside = world.clone();
                    let again = move || _ = inside.park(inside.op(&[3]), 2 * MS);
                    world.park(world.op(&[2, 4]).then(again), 2 * MS);
                }),
                world.thread(move |world| {
                    let by_hand = counted.clone();
                    let task = world.timer.schedule(MS, move || _ = counted.fetch_add(1, Relaxed));
                    world.event(2);
                    world.event(3);
                    if world.timer.cancel(task.unwrap()) {
                        by_hand.fetch_add(1, Relaxed);
                    }
                }),
            ],
        );
        assert_eq!(runs.load(Relaxed), 1, "a task runs or is cancelled");
    });
}

/// The timer is shut down by two threads and, on the reaper itself, by a callback.
#[test]
fn the_timer_is_shut_down_meanwhile() {
    check(&[Failpoint::ShutdownClosesNoRoom], || {
        let builder = SystemTimer::builder().clock(Clockwork::default()).inline();
        let world = World::on(builder.shards(2).build().unwrap(), Settings::default());
        let shut_down = |world: &World<SystemTimer>| {
            world.begin_shutdown();
            assert!(world.timer.shutdown(std::time::Duration::MAX).unfired.is_empty());
        };
        join([
            world.thread(move |world| {
                let inside = world.clone();
                world.park(world.op(&[1, 2]).then(move || shut_down(&inside)), MS);
                world.park(world.op(&[3]), NEVER);
            }),
            world.thread(|world| {
                world.park(world.op(&[2, 1]), 2 * MS);
                world.event(2);
            }),
            world.thread(shut_down),
            world.thread(shut_down),
        ]);
        world.assert_over();
    });
}
