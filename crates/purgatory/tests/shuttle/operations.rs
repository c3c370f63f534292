//! Parkers, events, cancels, shutdown and time, under a hand-turned clock.

use purgatory::failpoints::Failpoint;
use shuttle::thread;
use timer_core::{ManualTimer, Timer};

use crate::{
    schedules::{check, check_one_in},
    world::{MS, NEVER, Settings, World, join},
};

/// Above what a walk finds in one step, 128, and what shutdown empties, 64.
const MANY: usize = 132;

/// Operations wait for several conditions, each made true by another thread: the last one to come
/// by, or the parker, must see them all.
#[test]
fn events_on_several_keys() {
    let faults = [
        Failpoint::ParkSkipsVersionCheck,
        Failpoint::EventRaisesNoVersion,
        Failpoint::EventLeavesNoNote,
    ];
    check(&faults, || {
        let world = World::new();
        (4..6).for_each(|key| world.make_true(key));
        world.finish([
            world.thread(|world| {
                world.park(world.op(&[1, 2, 3]), NEVER);
                world.park(world.op(&[2]), NEVER);
            }),
            world.thread(|world| {
                world.park(world.op(&[3, 2, 1]), NEVER);
                world.park(world.op(&[1, 2, 3, 4, 5]), NEVER);
            }),
            world.thread(|world| world.event(1)),
            world.thread(|world| world.event(2)),
            world.thread(|world| {
                world.event(3);
                world.raise(2);
            }),
        ]);
    });
}

/// Levels rise on several keys: whoever takes the last one completes.
#[test]
fn levels_on_several_keys() {
    let faults = [
        Failpoint::ParkSkipsVersionCheck,
        Failpoint::EventRaisesNoVersion,
        Failpoint::EventLeavesNoNote,
        Failpoint::MetWatchNotCounted,
    ];
    check(&faults, || {
        let world = World::new();
        world.park(world.op(&[]).up_to(&[(1, 2), (2, 2), (3, 1)]).blind(), NEVER);
        world.park(world.op(&[4]).up_to(&[(2, 1)]).blind(), NEVER);
        world.finish([
            world.thread(|world| {
                world.park(world.op(&[4]).up_to(&[(1, 1), (2, 2)]), NEVER);
                world.park(world.op(&[1]).up_to(&[(1, 2), (3, 1)]).checked(), NEVER);
            }),
            world.thread(|world| {
                let levels = [(3, 1), (2, 1), (1, 2), (4, 0), (5, 0)];
                world.park(world.op(&[1]).up_to(&levels), NEVER);
                world.park(world.op(&[4]).up_to(&[(2, 2), (2, 1)]).checked(), NEVER);
            }),
            world.thread(|world| {
                world.rise(1, 1);
                world.event(1);
                world.rise(1, 2);
            }),
            world.thread(|world| world.rise(2, 2)),
            world.thread(|world| {
                world.rise(3, 1);
                world.rise(2, 1);
                world.event(4);
            }),
        ]);
    });
}

/// Levels that rise against everything else that ends an operation.
#[test]
fn levels_cancels_and_time() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::ExpiryRemovesCheckedOut], || {
        let world = World::new();
        world.finish([
            world.thread(|world| {
                world.park(world.op(&[]).up_to(&[(1, 2)]), MS);
                world.park(world.op(&[2]).up_to(&[(1, 1), (2, 2)]).checked(), 2 * MS);
            }),
            world.thread(|world| {
                world.park(world.op(&[]).up_to(&[(2, 2), (1, 1)]), NEVER);
                world.park(world.op(&[3]).up_to(&[(1, 2)]).checked().panics_at(2), MS);
            }),
            world.thread(|world| {
                world.rise(1, 1);
                world.event(2);
                world.rise(1, 2);
            }),
            world.thread(|world| {
                world.cancel_for_key(1);
                world.parked().last().copied().into_iter().for_each(|id| world.cancel(id));
            }),
            world.thread(|world| {
                world.tick();
                world.rise(2, 1);
                world.tick();
            }),
        ]);
    });
}

/// Everything that ends an operation, at once.
#[test]
fn events_cancels_and_time() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::ExpiryRemovesCheckedOut], || {
        let world = World::new();
        world.finish([
            world.thread(|world| {
                world.park(world.op(&[1]), MS);
                world.park(world.op(&[1, 2]), 2 * MS);
            }),
            world.thread(|world| {
                world.park(world.op(&[2, 3, 1]), NEVER);
                world.park(world.op(&[3]), MS);
            }),
            world.thread(|world| {
                world.event(1);
                world.raise(3);
            }),
            world.thread(|world| {
                world.cancel_for_key(2);
                world.parked().first().copied().into_iter().for_each(|id| world.complete(id));
                world.parked().last().copied().into_iter().for_each(|id| world.cancel(id));
            }),
            world.thread(|world| {
                world.tick();
                world.tick();
            }),
        ]);
    });
}

/// Deadlines move while time passes: nothing expires before the one it was given last.
#[test]
fn deadlines_that_move() {
    check(&[Failpoint::ExpiryLeavesNoNote], || {
        let world = World::new();
        for key in 1..4 {
            world.park(world.op(&[key, 4]), MS * u32::from(key));
        }
        let parked = world.parked();
        world.finish([
            world.thread(move |world| {
                world.reschedule(parked[0], 3 * MS);
                world.reschedule(parked[1], NEVER);
                world.reschedule(parked[2], MS);
                world.reschedule(parked[0], NEVER);
                world.reschedule(parked[1], MS);
            }),
            world.thread(|world| (0..3).for_each(|_| world.tick())),
            world.thread(|world| {
                world.raise(4);
                world.event(1);
                world.raise(2);
            }),
            world.thread(|world| world.parked().into_iter().for_each(|id| world.cancel(id))),
        ]);
    });
}

/// Each park is refused, or ended by somebody.
#[test]
fn shutdown_in_the_middle() {
    check(&[Failpoint::ShutdownClosesNoRoom], || {
        let world = World::new();
        join([
            world.thread(|world| {
                world.park(world.op(&[1]), NEVER);
                world.park(world.op(&[1, 2]), MS);
            }),
            world.thread(|world| {
                world.park(world.op(&[1, 2, 3, 4, 5]), NEVER);
            }),
            world.thread(|world| world.event(1)),
            world.thread(|world| world.tick()),
            world.thread(|world| world.shutdown()),
        ]);
        world.assert_over();
    });
}

/// Two purgatories on a timer raise each other's events; then the timer is shut down.
#[test]
fn two_purgatories_and_the_end_of_their_timer() {
    check(&[Failpoint::ShutdownClosesNoRoom], || {
        let timer = ManualTimer::new();
        let worlds = [(); 2].map(|()| World::on(timer.clone(), Settings::default()));
        let cross = |here: usize| {
            let (here, there) = (worlds[here].clone(), worlds[1 - here].clone());
            thread::spawn(move || {
                let other = there.clone();
                let op = here.op(&[1]).then(move || other.event(2));
                here.park(op, 2 * MS);
                here.park(here.op(&[2]), NEVER);
                there.event(1);
                here.park(here.op(&[3]), NEVER);
            })
        };
        let threads = [cross(0), cross(1)];
        let (ending, ended) = (worlds.clone(), timer.clone());
        let end = thread::spawn(move || {
            ended.advance(2 * MS);
            ending.iter().for_each(World::begin_shutdown);
            assert!(ended.shutdown(std::time::Duration::MAX).unfired.is_empty());
        });
        join(threads.into_iter().chain([end]));
        worlds.iter().for_each(World::assert_over);
    });
}

/// A panic in a check or a callback is that operation's own affair.
#[test]
fn checks_and_callbacks_that_panic() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::PanickedPutBack], || {
        let world = World::new();
        world.finish([
            world.thread(|world| {
                let book = world.book.clone();
                world.park(world.op(&[1, 2]).panics_at(3), NEVER);
                world.park(world.op(&[1]).then(move || book.panic()), MS);
            }),
            world.thread(|world| {
                world.park(world.op(&[2, 1, 3]).panics_at(1), 2 * MS);
                world.park(world.op(&[2, 4]), NEVER);
            }),
            world.thread(|world| world.event(1)),
            world.thread(|world| {
                world.event(3);
                world.raise(2);
            }),
            world.thread(|world| {
                world.tick();
                world.cancel_for_key(2);
            }),
        ]);
    });
}

/// Callbacks that raise events, park and cancel: a chain of five, set off somewhere.
#[test]
fn callbacks_that_cause_more() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventLeavesNoNote], || {
        let world = World::new();
        let link = |key: u8| {
            move |world: &World| {
                let inside = world.clone();
                let op = world.op(&[key]).then(move || {
                    inside.park(inside.op(&[key, 7]), MS);
                    inside.event(key + 1);
                    inside.cancel_for_key(7);
                });
                world.park(op, NEVER);
            }
        };
        world.finish([
            world.thread(move |world| [link(1), link(3)].iter().for_each(|park| park(world))),
            world.thread(move |world| [link(4), link(2)].iter().for_each(|park| park(world))),
            world.thread(|world| world.event(1)),
            world.thread(|world| {
                world.park(world.op(&[5]), NEVER);
                world.raise(3);
            }),
            world.thread(|world| world.tick()),
        ]);
    });
}

/// No more than the limit wait at once, and each permit comes back, once.
#[test]
fn a_limit_on_the_parked() {
    const LIMIT: usize = 2;
    check(&[Failpoint::ExpiryLeavesNoNote], || {
        let world = World::on(
            ManualTimer::new(),
            Settings { max_parked: Some(LIMIT), ..Settings::default() },
        );
        let threads = [
            world.thread(|world| {
                world.park(world.op(&[1]), NEVER);
                world.park(world.op(&[2, 3]), MS);
            }),
            world.thread(|world| {
                let inside = world.clone();
                let again = move || _ = inside.park(inside.op(&[3]), MS);
                world.park(world.op(&[1, 2]).then(again), MS);
                world.park(world.op(&[2]).panics_at(1), NEVER);
            }),
            world.thread(|world| {
                world.event(1);
                assert!(world.purgatory.len() <= LIMIT);
                world.raise(2);
            }),
            world.thread(|world| {
                world.tick();
                assert!(world.purgatory.len() <= LIMIT);
                world.cancel_for_key(2);
            }),
        ];
        join(threads);
        world.assert_nothing_missed();
        (1..4).for_each(|key| world.cancel_for_key(key));
        for _ in 0..LIMIT {
            world.park(world.op(&[6]), NEVER);
        }
        assert_eq!(world.purgatory.len(), LIMIT, "a permit was lost");
        world.park(world.op(&[6]), NEVER);
        assert_eq!(world.purgatory.len(), LIMIT, "a permit came back twice");
        world.finish([]);
    });
}

/// Parks more than a walk, or a shutdown, takes in one step.
fn park_many(world: &World) {
    for number in 0..MANY {
        let keys: &[u8] = match number % 8 {
            4 => &[1, 2],
            6 => &[1, 3],
            _ => &[1],
        };
        let op = world.op(keys);
        match number % 8 {
            0 | 4 | 6 => world.park(op, NEVER),
            2 => world.park(op, MS),
            1 | 5 => world.park(op.up_to(&[(3, 1)]), NEVER),
            _ => world.park(op.up_to(&[(3, 1)]).checked(), NEVER),
        };
    }
}

/// A walk holds its place among those who leave and those who come.
#[test]
fn walks_over_many() {
    check_one_in(20, &[Failpoint::EventLeavesNoNote], || {
        let world = World::new();
        park_many(&world);
        world.finish([
            world.thread(|world| world.event(1)),
            world.thread(|world| world.event(2)),
            world.thread(|world| {
                world.cancel_for_key(2);
                world.park(world.op(&[1, 2]), NEVER);
            }),
            world.thread(|world| {
                world.tick();
                world.rise(3, 1);
            }),
        ]);
    });
}

/// Shutdown goes by steps, and others come in between.
#[test]
fn shutdown_of_many() {
    check_one_in(20, &[Failpoint::ShutdownClosesNoRoom], || {
        let world = World::new();
        park_many(&world);
        join([
            world.thread(|world| world.shutdown()),
            world.thread(|world| {
                world.park(world.op(&[4]), NEVER);
                world.cancel_for_key(3);
            }),
            world.thread(|world| world.event(2)),
        ]);
        world.assert_over();
    });
}
