//! Any thread does anything, callbacks included.

use purgatory::failpoints::Failpoint;
use shuttle::{
    rand::{Rng, thread_rng},
    thread::JoinHandle,
};
use timer_core::ManualTimer;

use crate::{
    reaper::Working,
    schedules::check,
    world::{MS, NEVER, Settings, Time, World},
};

/// Faults that such threads come upon soon enough.
const FAULTS: [Failpoint; 5] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventRaisesNoVersion,
    Failpoint::ExpiryLeavesNoNote,
    Failpoint::ExpiryRemovesCheckedOut,
    Failpoint::ShutdownClosesNoRoom,
];

#[test]
fn by_hand() {
    check(&FAULTS, || {
        let world = World::on(ManualTimer::new(), settings());
        world.finish(threads(&world));
    });
}

#[test]
fn with_a_reaper_and_a_worker() {
    check(&FAULTS, || {
        let (timer, working) = Working::timer();
        let world = World::on(timer, settings());
        working.finish(&world, threads(&world));
    });
}

fn settings() -> Settings {
    let random = &mut thread_rng();
    Settings {
        max_parked: (random.gen_range(0..4) == 0).then_some(3),
        callbacks_on_executor: random.gen_range(0..4) == 0,
    }
}

fn threads<T: Time>(world: &World<T>) -> [JoinHandle<()>; 4] {
    [0, 1, 2, 3]
        .map(|thread| world.thread(move |world| (0..3).for_each(|_| anything(world, thread))))
}

fn anything<T: Time>(world: &World<T>, thread: usize) {
    let random = &mut thread_rng();
    let key = random.gen_range(1..4);
    let parked = world.parked();
    let one = parked.get(random.gen_range(0..4)).copied().into_iter();
    match random.gen_range(0..24) {
        0..10 => park_anything(world),
        10..13 => world.event(key),
        13..15 => world.rise(key, random.gen_range(1..3)),
        15 => world.raise(key),
        16..18 => world.tick(),
        18 => world.cancel_for_key(key),
        19 => one.for_each(|id| world.cancel(id)),
        20 if thread > 1 => parked.into_iter().for_each(|id| world.complete(id)),
        20 => one.for_each(|id| world.complete(id)),
        21 if thread == 0 => {
            let timeout = MS * random.gen_range(0..3);
            one.for_each(|id| world.reschedule(id, timeout));
        }
        22 => assert!(world.purgatory.snapshot(1).oldest.len() <= 1),
        23 => world.shutdown(),
        _ => {}
    }
}

fn park_anything<T: Time>(world: &World<T>) {
    let random = &mut thread_rng();
    let keys = [&[1][..], &[2], &[3], &[1, 2], &[3, 1], &[3, 2, 1], &[1, 2, 3, 4, 5]];
    let levels = [&[(1, 1)][..], &[(2, 2)], &[(1, 1), (2, 1)], &[(3, 2), (1, 2), (3, 1)]];
    let mut op = world.op(keys[random.gen_range(0..keys.len())]);
    let levels = levels[random.gen_range(0..levels.len())];
    op = match random.gen_range(0..4) {
        0 => op.up_to(levels),
        1 => op.up_to(levels).checked(),
        _ => op,
    };
    if random.gen_range(0..8) == 0 {
        op = op.panics_at(random.gen_range(1..4));
    }
    let (inside, key) = (world.clone(), random.gen_range(1..4));
    op = match random.gen_range(0..12) {
        0 => op.then(move || inside.event(key)),
        1 => op.then(move || inside.raise(key)),
        2 => op.then(move || inside.rise(key, 2)),
        3 => op.then(move || inside.cancel_for_key(key)),
        4 => op.then(move || _ = inside.park(inside.op(&[key, 4]), MS)),
        5 => op.then(move || inside.tick()),
        6 => op.then(move || inside.book.panic()),
        _ => op,
    };
    match random.gen_range(0..4) {
        0 => world.park(op, NEVER),
        ticks => world.park(op, MS * (ticks - 1)),
    };
}
