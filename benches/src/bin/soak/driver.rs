//! What all threads share; the threads that park and complete, at a steady rate; and the thread
//! that makes faults by a seed, one at a time: clocks that jump, executors that stall, worlds that
//! end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use clap::ValueEnum;
use fastrand::Rng;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{
    books::Books,
    park::{Mine, block, happen, park},
    world::{Closed, World},
};

/// The number of operations that are at hand at least, once that many were parked.
const HANDS: usize = 32_768;
/// With more open than this no more are parked for a while: the machine cannot keep up.
const OPEN_MAX: u64 = 400_000;
/// A thread looks whether it is ahead after this many.
const STEP: u64 = 64;
const MILLISECOND: Duration = Duration::from_millis(1);

/// The end of the run, as all threads hear of it. Raised once; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub(crate) fn raise(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.0.lock()
    }

    /// Waits so long, or until it is raised.
    pub(crate) fn pause(&self, time: Duration) {
        self.0
            .1
            .wait_while_for(&mut self.0.0.lock(), |raised| !*raised, time);
    }
}

/// What all threads share.
pub(crate) struct Ring {
    pub(crate) books: Arc<Books>,
    /// The world that stays.
    pub(crate) lasting: Arc<World>,
    /// The one that is made anew now and then, and those before it.
    pub(crate) passing: RwLock<Option<Arc<World>>>,
    pub(crate) closed: Mutex<Vec<Closed>>,
    worlds: AtomicU64,
    /// A thread does all that it does while it holds this; one that holds it alone knows that
    /// nothing moves.
    pub(crate) gate: RwLock<()>,
    pub(crate) stop: Stop,
    /// How many faults of each kind there were.
    pub(crate) faults: [AtomicU64; FAULTS],
    /// Operations that were parked, for any thread to do something about.
    hands: Mutex<Vec<Mine>>,
}

impl Ring {
    pub(crate) fn new(books: Arc<Books>, stop: &Stop) -> anyhow::Result<Self> {
        let ring = Ring {
            lasting: World::new(0, &books)?,
            passing: RwLock::default(),
            closed: Mutex::default(),
            worlds: AtomicU64::new(1),
            gate: RwLock::default(),
            stop: stop.clone(),
            faults: Default::default(),
            hands: Mutex::new(Vec::with_capacity(2 * HANDS)),
            books,
        };
        ring.pass()?;
        Ok(ring)
    }

    /// Replaces the passing world by one that is built in another way.
    pub(crate) fn pass(&self) -> anyhow::Result<Option<Arc<World>>> {
        let fresh = World::new(self.worlds.fetch_add(1, SeqCst), &self.books)?;
        Ok(self.passing.write().replace(fresh))
    }

    /// Closes a world.
    pub(crate) fn close(&self, world: Option<Arc<World>>, random: &mut Rng) {
        let closed = world.map(|world| world.close(random));
        self.closed.lock().extend(closed);
    }

    /// One of the two worlds.
    pub(crate) fn world(&self, random: &mut Rng) -> Arc<World> {
        let passing = if random.bool() {
            self.passing.read().clone()
        } else {
            None
        };
        passing.unwrap_or_else(|| self.lasting.clone())
    }

    /// Parks one, and does something to another that was parked before, by this thread or another.
    fn step(&self, world: &Arc<World>, random: &mut Rng) {
        let parked = park(world, random);
        if random.u32(0..1000) < 2 {
            happen(world, random);
        }
        let one = {
            let mut hands = self.hands.lock();
            hands.extend(parked);
            (hands.len() > HANDS).then(|| {
                let at = random.usize(0..HANDS);
                hands.swap_remove(at)
            })
        };
        let still = one.and_then(|one| one.act(random));
        self.hands.lock().extend(still);
    }

    /// Parks until the end, at `rate` operations a second over all threads. Now and then a thread
    /// that lives for a moment does it.
    pub(crate) fn drive(&self, rate: u64, seed: u64) {
        let mut random = Rng::with_seed(seed);
        while !self.stop.is_raised() {
            let wanted = u128::from(self.books.clock.real_ns()) * u128::from(rate) / 1_000_000_000;
            let ahead = u128::from(self.books.operations()) > wanted;
            if ahead || self.books.pending() > OPEN_MAX {
                thread::park_timeout(MILLISECOND);
                continue;
            }
            let _inside = self.gate.read();
            let world = self.world(&mut random);
            let mut steps = || (0..STEP).for_each(|_| self.step(&world, &mut random));
            steps();
            if self.books.operations().is_multiple_of(100) {
                thread::scope(|scope| _ = scope.spawn(steps));
                block(&world, &mut random);
            }
        }
    }

    /// Takes the values of all futures, once everything parked is over and nothing moves. True when
    /// each was ready.
    pub(crate) fn collect(&self) -> bool {
        let mut hands = self.hands.lock();
        hands.retain_mut(|one| !one.is_over());
        hands.is_empty()
    }
}

/// A fault around the purgatories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    Stall,
    Jump,
    CancelAll,
    NewWorld,
    Look,
}

const FAULTS: usize = Fault::Look as usize + 1;

impl Fault {
    fn draw(random: &mut Rng) -> Fault {
        match random.u32(0..100) {
            0..40 => Fault::Stall,
            40..55 => Fault::Jump,
            55..60 => Fault::CancelAll,
            60..80 => Fault::NewWorld,
            _ => Fault::Look,
        }
    }
}

/// Makes one fault after the other, until the end.
pub(crate) fn break_things(ring: &Ring, seed: u64) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(seed);
    while !ring.stop.is_raised() {
        ring.stop.pause(Duration::from_millis(random.u64(20..500)));
        let _inside = ring.gate.read();
        let fault = Fault::draw(&mut random);
        make(fault, ring, &mut random)?;
        ring.faults[fault as usize].fetch_add(1, SeqCst);
        ring.closed.lock().retain(|closed| !closed.is_over());
    }
    Ok(())
}

fn make(fault: Fault, ring: &Ring, random: &mut Rng) -> anyhow::Result<()> {
    let world = ring.world(random);
    match fault {
        Fault::Stall => {
            world.stall.begin();
            ring.stop.pause(Duration::from_millis(random.u64(10..400)));
            world.stall.end();
        }
        Fault::Jump => ring.books.clock.jump(jump(random)),
        Fault::CancelAll => _ = world.plain.cancel_all("all at once"),
        Fault::NewWorld => {
            drop(world);
            let old = ring.pass()?;
            ring.close(old, random);
        }
        Fault::Look => world.look(),
    }
    Ok(())
}

/// Mostly below a second, else up to an hour.
fn jump(random: &mut Rng) -> Duration {
    match random.u32(0..4) {
        0 => Duration::from_millis(random.u64(1000..3_600_000)),
        _ => Duration::from_micros(random.u64(1..900_000)),
    }
}
