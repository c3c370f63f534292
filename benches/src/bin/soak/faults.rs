//! What goes wrong around the purgatories, by a seed: clocks that jump, executors that stall,
//! worlds that end. One thing at a time, and a thread that looks at it all now and then.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use clap::ValueEnum;
use fastrand::Rng;
use parking_lot::Mutex;

use crate::{
    driver::Ring,
    world::{Closing, World},
};

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    Stall,
    Forwards,
    CancelAll,
    NewWorld,
    Look,
}

impl Fault {
    fn draw(random: &mut Rng) -> Fault {
        match random.u32(0..100) {
            0..25 => Fault::Stall,
            25..75 => Fault::Forwards,
            75..80 => Fault::CancelAll,
            80..90 => Fault::NewWorld,
            _ => Fault::Look,
        }
    }
}

/// Makes the faults, and keeps what is closing.
#[derive(Default)]
pub(crate) struct Faults {
    /// How many of each there were.
    pub(crate) counts: [AtomicU64; Fault::Look as usize + 1],
    worlds: AtomicU64,
    closing: Mutex<Vec<Closing>>,
}

impl Faults {
    /// One fault after the other, until the end.
    pub(crate) fn run(&self, ring: &Ring, seed: u64) -> anyhow::Result<()> {
        let mut random = Rng::with_seed(seed);
        while !ring.stop.is_raised() {
            ring.stop.pause(Duration::from_millis(random.u64(20..500)));
            let _inside = ring.gate.read();
            let fault = Fault::draw(&mut random);
            self.make(fault, ring, &mut random)?;
            self.counts[fault as usize].fetch_add(1, SeqCst);
            self.closing.lock().retain(|closing| !closing.is_over());
        }
        Ok(())
    }

    fn make(&self, fault: Fault, ring: &Ring, random: &mut Rng) -> anyhow::Result<()> {
        let world = ring.world(random);
        match fault {
            Fault::Stall => {
                world.stall.begin();
                ring.stop.pause(Duration::from_millis(random.u64(10..400)));
                world.stall.end();
            }
            Fault::Forwards => ring.books.clock.forwards(jump(random)),
            Fault::CancelAll => _ = world.plain.cancel_all("all at once"),
            Fault::NewWorld => {
                drop(world);
                let fresh = self.world(ring)?;
                let old = ring.passing.write().replace(fresh);
                self.close(old, random);
            }
            Fault::Look => world.look(),
        }
        Ok(())
    }

    /// A world that is built in another way than the one before.
    pub(crate) fn world(&self, ring: &Ring) -> anyhow::Result<Arc<World>> {
        World::new(2 + self.worlds.fetch_add(1, SeqCst), &ring.books)
    }

    pub(crate) fn close(&self, world: Option<Arc<World>>, random: &mut Rng) {
        let closing = world.map(|world| world.close(random));
        self.closing.lock().extend(closing);
    }

    /// Operations without an outcome in worlds that were closed; 0 when all are over.
    pub(crate) fn pending(&self) -> u64 {
        let closing = self.closing.lock();
        let left = closing.iter().filter(|closing| !closing.is_over());
        left.map(|closing| closing.account.pending().max(1)).sum()
    }

    /// Nothing is under way any more: tells what is lost, and waits for the workers.
    pub(crate) fn settle(&self) {
        for closing in self.closing.lock().drain(..) {
            closing.account.close(&closing.name);
            closing.stall.join();
        }
    }
}

/// Mostly below a second, which the timer waits for when it goes back; else up to an hour.
fn jump(random: &mut Rng) -> Duration {
    match random.u32(0..4) {
        0 => Duration::from_millis(random.u64(1000..3_600_000)),
        _ => Duration::from_micros(random.u64(1..900_000)),
    }
}
