//! Any thread does anything, callbacks included: on a manual timer, or with a reaper and a worker
//! that runs the callbacks of expired operations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shuttle::{
    rand::{Rng, thread_rng},
    sync::mpsc,
    thread::{self, JoinHandle},
};
use timer_core::{Clock, Executor, Job, ManualTimer, SystemTimer};

use crate::{
    schedules::check,
    world::{MS, NEVER, Time, World, join},
};

/// Faults that such threads come upon soon enough.
const FAULTS: [&str; 5] = [
    "ParkSkipsVersionCheck",
    "EventLeavesVersion",
    "EventLeavesNoRequest",
    "ExpiryLeavesNoRequest",
    "ExpiryRemovesCheckedOut",
];

/// Above the number that a walk finds in one step, 128, and a shutdown empties, 64.
const MANY: usize = 132;

#[test]
fn by_hand() {
    check(1, &FAULTS, || {
        let world = World::on(ManualTimer::new());
        park_for_levels(&world);
        join(threads(&world));
        world.finish();
    });
}

/// A walk holds its place while operations leave and come.
#[test]
fn walks_over_many() {
    check(20, &["EventLeavesNoRequest"], || {
        let world = World::on(ManualTimer::new());
        park_many(&world);
        let events = [1, 2].map(|key| world.thread(move |world| world.event(key)));
        join(threads(&world).into_iter().chain(events));
        world.finish();
    });
}

#[test]
fn with_a_reaper_and_a_worker() {
    let faults = [&FAULTS[..], &["EarlierWorkSendsNoSignal"]].concat();
    check(1, &faults, || {
        let (timer, working) = Working::timer();
        let world = World::on(timer);
        park_for_levels(&world);
        let runs = Arc::new(AtomicU64::new(0));
        let by_task = Arc::new(AtomicU64::new(0));
        let counted = runs.clone();
        let counts = by_task.clone();
        let task = world.thread(move |world| {
            let task = world
                .timer
                .schedule(MS, move || _ = counts.fetch_add(1, Relaxed))
                .unwrap();
            world.event(2);
            counted.fetch_add(u64::from(world.timer.cancel(task)), Relaxed);
        });
        join(threads(&world).into_iter().chain([task]));
        working.finish(&world);
        assert_eq!(
            runs.load(Relaxed) + by_task.load(Relaxed),
            1,
            "a task runs or is cancelled"
        );
    });
}

/// The timer is shut down by two threads and, on the reaper itself, by a callback.
#[test]
fn the_timer_is_shut_down_meanwhile() {
    check(1, &["ShutdownClosesNoShard"], || {
        let builder = SystemTimer::builder().clock(Clockwork::default()).inline();
        let world = World::on(builder.shards(2).build().unwrap());
        let shut_down = |world: &World<SystemTimer>| {
            world.begin("shutdown");
            assert!(world.timer.shutdown(Duration::MAX).unfired.is_empty());
        };
        join([
            world.thread(move |world| {
                let mut op = world.op(&[1, 2]);
                let inside = world.clone();
                op.then = Some(Box::new(move || shut_down(&inside)));
                world.park(op, MS);
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

/// Parks two operations that wait for levels alone.
fn park_for_levels<T: Time>(world: &World<T>) {
    for levels in [&[(1, 2), (2, 2), (3, 1)][..], &[(2, 1)]] {
        let mut op = world.op(&[]);
        op.wants.levels = levels.to_vec();
        world.park(op, NEVER);
    }
}

/// Parks more than a walk, or a shutdown, takes in one step.
fn park_many(world: &World) {
    for number in 0..MANY {
        let keys: &[u8] = if number % 4 == 3 { &[1, 2] } else { &[1] };
        let mut op = world.op(keys);
        op.wants.levels = if number % 2 == 0 {
            vec![]
        } else {
            vec![(3, 1)]
        };
        world.park(op, if number % 8 == 2 { MS.into() } else { NEVER });
    }
}

fn threads<T: Time>(world: &World<T>) -> [JoinHandle<()>; 4] {
    [0, 1, 2, 3].map(|thread| {
        world.thread(move |world| {
            for _ in 0..3 {
                anything(world, thread);
            }
        })
    })
}

fn anything<T: Time>(world: &World<T>, thread: usize) {
    let random = &mut thread_rng();
    let key = random.gen_range(1..4);
    let parked = world.parked();
    let one = parked.get(random.gen_range(0..4)).copied();
    match random.gen_range(0..24) {
        0..10 => park_anything(world),
        10..13 => world.event(key),
        13..15 => world.advance(key, random.gen_range(1..3)),
        15 => world.signal(key),
        16..18 => world.tick(),
        18 => world.cancel_for_key(key),
        19 => {
            if let Some(id) = one {
                world.cancel(id);
            }
        }
        20 if thread > 1 => {
            for id in parked {
                world.complete(id);
            }
        }
        20 => {
            if let Some(id) = one {
                world.complete(id);
            }
        }
        21 if thread == 0 => {
            let timeout = MS * random.gen_range(0..3);
            if let Some(id) = one {
                world.reschedule(id, timeout);
            }
        }
        22 => assert!(world.purgatory.snapshot(1).oldest.len() <= 1),
        23 => world.shutdown(),
        _ => {}
    }
}

fn park_anything<T: Time>(world: &World<T>) {
    let random = &mut thread_rng();
    let keys = [
        &[1][..],
        &[2],
        &[3],
        &[1, 2],
        &[3, 1],
        &[3, 2, 1],
        &[1, 2, 3, 4, 5],
    ];
    let levels = [
        &[(1, 1)][..],
        &[(2, 2)],
        &[(1, 1), (2, 1)],
        &[(3, 2), (1, 2), (3, 1)],
    ];
    let mut op = world.op(keys[random.gen_range(0..keys.len())]);
    if random.gen_range(0..2) == 0 {
        op.wants.levels = levels[random.gen_range(0..levels.len())].to_vec();
    }
    if random.gen_range(0..8) == 0 {
        op.panics_at = Some(random.gen_range(1..4));
    }
    let inside = world.clone();
    let key = random.gen_range(1..4);
    op.then = match random.gen_range(0..12) {
        0 => Some(Box::new(move || inside.event(key))),
        1 => Some(Box::new(move || inside.signal(key))),
        2 => Some(Box::new(move || inside.advance(key, 2))),
        3 => Some(Box::new(move || inside.cancel_for_key(key))),
        4 => Some(Box::new(move || inside.park(inside.op(&[key, 4]), MS))),
        5 => Some(Box::new(move || inside.tick())),
        6 => Some(Box::new(move || inside.book.panic())),
        _ => None,
    };
    match random.gen_range(0..4) {
        0 => world.park(op, NEVER),
        ticks => world.park(op, MS * (ticks - 1)),
    }
}

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
struct Working {
    jobs: mpsc::Sender<Option<Job>>,
    thread: JoinHandle<()>,
}

impl Working {
    /// A timer with a reaper and a worker.
    fn timer() -> (SystemTimer, Self) {
        let (jobs, arrived) = mpsc::channel::<Option<Job>>();
        let work = move || {
            while arrived.recv().ok().flatten().map(Job::run).is_some() {}
            for job in arrived.try_iter().flatten() {
                job.run();
            }
        };
        let working = Working {
            jobs: jobs.clone(),
            thread: thread::spawn(work),
        };
        let builder = SystemTimer::builder()
            .clock(Clockwork::default())
            .executor(Worker(jobs));
        (builder.shards(2).build().unwrap(), working)
    }

    /// Waits for each operation that has a deadline to end without any help; then ends the rest by
    /// the timer's shutdown.
    fn finish(self, world: &World<SystemTimer>) {
        world.wait_for_time();
        self.jobs.send(None).unwrap(); // what comes later runs where it is handed in
        self.thread.join().unwrap();
        world.wait_for_time(); // for what a callback of the worker's parked
        world.assert_nothing_missed();
        world.begin("shutdown");
        assert!(world.timer.shutdown(Duration::MAX).unfired.is_empty());
        world.assert_over();
    }
}
