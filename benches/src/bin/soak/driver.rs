//! The state that all threads share; the drivers, which park and complete at a steady rate; and the
//! thread that makes faults, one at a time: clocks that jump, executors that stall, worlds that
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
    park::{Mine, block, park, signal_any},
    world::{Closed, World},
};

/// The number of parked operations that are kept to act on.
const KEPT: usize = 32_768;
/// With more open operations than this, drivers pause: the machine cannot keep up.
const OPEN_MAX: u64 = 400_000;
/// A driver checks after this many operations whether it is ahead.
const STEP: u64 = 64;
const MILLISECOND: Duration = Duration::from_millis(1);

/// A flag that ends the run on all threads. It is set once; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub(crate) fn set(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.0.lock()
    }

    /// Waits for `time`, or until the flag is set.
    pub(crate) fn pause(&self, time: Duration) {
        // A set flag ends the wait at once.
        let (flag, changed) = &*self.0;
        changed.wait_while_for(&mut flag.lock(), |set| !*set, time);
    }
}

/// The state that all threads share.
pub(crate) struct Shared {
    pub(crate) books: Arc<Books>,
    /// The world that lasts.
    pub(crate) lasting: Arc<World>,
    /// The world that is replaced now and then.
    pub(crate) passing: RwLock<Option<Arc<World>>>,
    /// Its predecessors that are not over yet.
    pub(crate) closed: Mutex<Vec<Closed>>,
    worlds: AtomicU64,
    /// Every thread works only while it holds this for reading. To hold it for writing is a
    /// standstill.
    pub(crate) gate: RwLock<()>,
    pub(crate) stop: Stop,
    /// The number of faults of each kind.
    pub(crate) faults: [AtomicU64; FAULTS],
    /// Parked operations, for any thread to act on.
    kept: Mutex<Vec<Mine>>,
}

impl Shared {
    pub(crate) fn new(books: Arc<Books>, stop: &Stop) -> anyhow::Result<Self> {
        let shared = Shared {
            lasting: World::new(0, &books)?,
            passing: RwLock::default(),
            closed: Mutex::default(),
            worlds: AtomicU64::new(1),
            gate: RwLock::default(),
            stop: stop.clone(),
            faults: Default::default(),
            kept: Mutex::new(Vec::with_capacity(2 * KEPT)),
            books,
        };
        shared.replace_passing()?;
        Ok(shared)
    }

    /// Replaces the passing world by one with other settings; returns the old one.
    pub(crate) fn replace_passing(&self) -> anyhow::Result<Option<Arc<World>>> {
        // The number selects other settings each time.
        let fresh = World::new(self.worlds.fetch_add(1, SeqCst), &self.books)?;
        Ok(self.passing.write().replace(fresh))
    }

    /// Closes a world.
    pub(crate) fn close(&self, world: Option<Arc<World>>, random: &mut Rng) {
        if let Some(world) = world {
            let closed = world.close(random);
            self.closed.lock().push(closed);
        }
    }

    /// Draws one of the two worlds.
    pub(crate) fn world(&self, random: &mut Rng) -> Arc<World> {
        let passing = if random.bool() {
            self.passing.read().clone()
        } else {
            None
        };
        passing.unwrap_or_else(|| self.lasting.clone())
    }

    /// Parks one operation, and acts on another that any thread has parked before.
    fn step(&self, world: &Arc<World>, random: &mut Rng) {
        // Now and then a key is signalled for no operation in particular.
        let parked = park(world, random);
        if random.u32(0..1000) < 2 {
            signal_any(world, random);
        }
        if let Some(one) = self.exchange(parked, random)
            && let Some(one) = one.act(random)
        {
            self.kept.lock().push(one);
        }
    }

    /// Keeps an operation, and draws one of those that are kept once they are many.
    fn exchange(&self, parked: Option<Mine>, random: &mut Rng) -> Option<Mine> {
        let mut kept = self.kept.lock();
        kept.extend(parked);
        if kept.len() <= KEPT {
            return None;
        }
        Some(kept.swap_remove(random.usize(0..KEPT)))
    }

    /// Parks until the end, at `rate` operations per second over all threads. Now and then a
    /// short-lived thread does a part of it.
    pub(crate) fn drive(&self, rate: u64, seed: u64) {
        let mut random = Rng::with_seed(seed);
        while !self.stop.is_set() {
            // Pause while ahead of the rate, or too far behind with the open ones.
            let wanted = u128::from(self.books.clock.real_ns()) * u128::from(rate) / 1_000_000_000;
            let ahead = u128::from(self.books.operations()) > wanted;
            if ahead || self.books.pending() > OPEN_MAX {
                thread::park_timeout(MILLISECOND);
                continue;
            }

            // Do some steps, unless there is a standstill.
            let _moving = self.gate.read();
            let world = self.world(&mut random);
            let mut steps = || {
                for _ in 0..STEP {
                    self.step(&world, &mut random);
                }
            };
            steps();
            // A thread that lives shorter than its operations, and a wait that blocks this one.
            if self.books.operations().is_multiple_of(100) {
                thread::scope(|scope| {
                    scope.spawn(steps);
                });
                block(&world, &mut random);
            }
        }
    }

    /// Takes the values of all futures. Call it at a standstill, after everything was ended; false
    /// while a future is not ready.
    pub(crate) fn collect(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.retain_mut(|one| !one.is_over());
        kept.is_empty()
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
pub(crate) fn break_things(shared: &Shared, seed: u64) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(seed);
    while !shared.stop.is_set() {
        shared
            .stop
            .pause(Duration::from_millis(random.u64(20..500)));
        let _moving = shared.gate.read();
        let fault = Fault::draw(&mut random);
        make(fault, shared, &mut random)?;
        shared.faults[fault as usize].fetch_add(1, SeqCst);
        // Forget worlds that no thread uses any more.
        shared.closed.lock().retain(|closed| !closed.is_over());
    }
    Ok(())
}

/// Makes one fault; some last a while.
fn make(fault: Fault, shared: &Shared, random: &mut Rng) -> anyhow::Result<()> {
    let world = shared.world(random);
    match fault {
        // Jobs wait, and some are dropped at the end.
        Fault::Stall => {
            world.stall.begin();
            shared
                .stop
                .pause(Duration::from_millis(random.u64(10..400)));
            world.stall.end();
        }
        // Both worlds share the clock.
        Fault::Jump => shared.books.clock.jump(jump(random)),
        Fault::CancelAll => _ = world.plain.cancel_all("all at once"),
        Fault::NewWorld => {
            // Its handles elsewhere may live longer.
            drop(world);
            let old = shared.replace_passing()?;
            shared.close(old, random);
        }
        Fault::Look => world.inspect(),
    }
    Ok(())
}

/// Draws the length of a jump: mostly below a second, else up to an hour.
fn jump(random: &mut Rng) -> Duration {
    match random.u32(0..4) {
        0 => Duration::from_millis(random.u64(1000..3_600_000)),
        _ => Duration::from_micros(random.u64(1..900_000)),
    }
}
