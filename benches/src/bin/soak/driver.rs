//! The threads that park and complete, at a steady rate; and those that do so for a moment and end.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use fastrand::Rng;
use parking_lot::{Mutex, RwLock};

use crate::{
    act::{Mine, act, happen},
    books::Books,
    park::{block, park},
    stop::Stop,
    world::World,
};

/// So many a thread holds in its hands at least, once it has parked so many.
const HANDS: usize = 16_384;
/// Through this pool things go from thread to thread.
const POOL: usize = 4096;
/// With more open than this no more are parked for a while: the machine cannot keep up.
const OPEN_MAX: u64 = 400_000;
/// Seconds of operations that are made up for; what is behind by more is given up.
const BEHIND_MAX: u64 = 1;
/// A thread looks whether it is ahead after so many.
const STEP: u64 = 64;
/// Operations of a thread that lives for a moment.
const MOMENT: usize = 100;
const MILLISECOND: Duration = Duration::from_millis(1);

/// What all threads share.
pub(crate) struct Ring {
    pub(crate) books: Arc<Books>,
    /// The world that stays.
    pub(crate) lasting: Arc<World>,
    /// The one that is made anew now and then.
    pub(crate) passing: RwLock<Option<Arc<World>>>,
    /// Whatever a thread does it does holding this; one that holds it alone knows that nothing
    /// moves.
    pub(crate) gate: RwLock<()>,
    pub(crate) stop: Stop,
    /// What each driver has in its hands, and the pool.
    hands: Vec<Mutex<Vec<Mine>>>,
    pool: Mutex<Vec<Mine>>,
    pub(crate) visitors: AtomicU64,
    /// What drivers gave up because they were behind.
    given_up: AtomicU64,
}

impl Ring {
    pub(crate) fn new(books: &Arc<Books>, stop: &Stop, drivers: usize) -> anyhow::Result<Self> {
        let hands = || Mutex::new(Vec::with_capacity(2 * HANDS));
        Ok(Ring {
            books: books.clone(),
            lasting: World::new(0, books)?,
            passing: RwLock::new(Some(World::new(1, books)?)),
            gate: RwLock::default(),
            stop: stop.clone(),
            hands: (0..drivers).map(|_| hands()).collect(),
            pool: Mutex::new(Vec::with_capacity(2 * POOL)),
            visitors: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        })
    }

    /// Operations that are open now.
    pub(crate) fn open(&self) -> u64 {
        let passing = self.passing.read().as_ref().map_or(0, |world| world.account.pending());
        self.lasting.account.pending() + passing
    }

    /// One of the two worlds.
    pub(crate) fn world(&self, random: &mut Rng) -> Arc<World> {
        let passing = if random.bool() { self.passing.read().clone() } else { None };
        passing.unwrap_or_else(|| self.lasting.clone())
    }

    /// Parks one, and does something to another that was parked before.
    fn step(&self, world: &Arc<World>, mine: &mut Vec<Mine>, hands: usize, random: &mut Rng) {
        mine.extend(park(world, random));
        if random.u32(0..1000) < 2 {
            happen(world, random);
        }
        if mine.len() < hands {
            return;
        }
        let mut one = mine.swap_remove(random.usize(0..mine.len()));
        if random.u32(0..4) == 0 {
            let mut pool = self.pool.lock();
            if pool.len() < POOL {
                return pool.push(one);
            }
            let at = random.usize(0..POOL);
            mem::swap(&mut one, &mut pool[at]);
        }
        mine.extend(act(one, random));
    }

    /// True when fewer than `rate` a second have been parked so far, by all threads together.
    fn is_behind(&self, rate: u64) -> bool {
        let wanted = u128::from(self.books.clock.real_ns()) * u128::from(rate) / 1_000_000_000;
        let given_up = self.given_up.load(SeqCst);
        let behind = (wanted as u64).saturating_sub(given_up + self.books.operations());
        if behind > rate * BEHIND_MAX {
            let more = given_up + behind - rate * BEHIND_MAX;
            let _ = self.given_up.compare_exchange(given_up, more, SeqCst, SeqCst);
        }
        behind > 0
    }

    /// Parks, so that all together park so many a second, until the end.
    pub(crate) fn drive(&self, number: usize, rate: u64, seed: u64) {
        let mut random = Rng::with_seed(seed);
        while !self.stop.is_raised() {
            if !self.is_behind(rate) || self.open() > OPEN_MAX {
                thread::park_timeout(MILLISECOND);
                continue;
            }
            let _inside = self.gate.read();
            let world = self.world(&mut random);
            let mut mine = self.hands[number].lock();
            for _ in 0..STEP {
                self.step(&world, &mut mine, HANDS, &mut random);
            }
        }
    }

    /// Starts threads that live for a moment, two at a time, until the end.
    pub(crate) fn visit(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        while !self.stop.is_raised() {
            self.stop.pause(Duration::from_millis(random.u64(1..100)));
            let _inside = self.gate.read();
            let seeds = [random.u64(..), random.u64(..)];
            thread::scope(|scope| {
                let _two = seeds.map(|seed| scope.spawn(move || self.moment(seed)));
            });
            self.visitors.fetch_add(2, SeqCst);
        }
    }

    /// All that a thread does that lives for a moment. What is left in its hands goes to the pool.
    fn moment(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let (world, mut mine) = (self.world(&mut random), Vec::new());
        for _ in 0..MOMENT {
            self.step(&world, &mut mine, MOMENT / 2, &mut random);
        }
        for _ in 0..random.u32(0..3) {
            block(&world, &mut random);
        }
        for one in mine.into_iter().filter_map(|one| act(one, &mut random)) {
            let mut pool = self.pool.lock();
            pool.push(one);
            let oldest = (pool.len() > POOL).then(|| pool.swap_remove(0));
            drop(pool);
            if let Some(still) = oldest.and_then(Mine::leave) {
                self.pool.lock().push(still);
            }
        }
    }

    /// Everything is over that was parked, with nothing moving: takes what futures have. True when
    /// none is left that is not ready.
    pub(crate) fn collect(&self) -> bool {
        let hands = self.hands.iter().chain([&self.pool]);
        hands.fold(true, |all, mine| {
            let mut mine = mine.lock();
            mine.retain_mut(|one| !one.is_over());
            all && mine.is_empty()
        })
    }
}
