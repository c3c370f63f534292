//! Parkers, events, cancels, shutdown and time, under a hand-turned clock.

use purgatory::failpoints::Failpoint;
use timer_core::ManualTimer;

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

/// Levels rise on several keys: the thread that takes the last one completes.
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

/// A walk holds its place while operations leave and come.
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
