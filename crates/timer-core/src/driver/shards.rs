//! Wheels for many threads: several [`TimingWheel`]s, each under its own lock, in its own cache
//! lines, with one signal for all.
//!
//! A thread that starts a timer locks one shard and nothing else, so threads do not write to the
//! same memory. The same lock guards a tick for the reaper:
//!
//! - **Wake before**: each shard holds the tick by which its reaper means to visit it. A thread
//!   that gives the shard earlier work lowers the tick and, after unlocking, signals. So no earlier
//!   arrival is missed, and no later one wakes the reaper. When tasks are cancelled the tick stays,
//!   and costs at most one needless visit.
//!
//! A shard is made when it is first locked, so an owner of wheels with few tasks takes little
//! memory. Closing makes no shard; a shard that is made later is closed from the beginning.
//!
//! - **Seen**: a thread that is about to make a shard marks it, and a thread that looks for the
//!   made shards reads these marks, both by a read-modify-write. So the second thread either finds
//!   the shard, or every thread that locks the shard sees what the second thread wrote before.
//!
//! A manual timer has no reaper. The signal tells it which shards were locked (Marked, in
//! `driver/agenda`).

use std::{
    iter,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock, atomic},
    thread,
};

use crossbeam_utils::CachePadded;

use crate::{
    driver::{handle::TimerHandle, owner::ShardLook},
    observe::TimerStats,
    sync::{AtomicU64, Late, Mutex, MutexGuard, Ordering, failpoint, is_late},
    wheel::{geometry::WheelSize, node::TaskId, timing_wheel::TimingWheel},
};

/// A shard, under its lock: a wheel, and its owner's state beside it.
pub trait ShardState {
    /// A task on the wheel.
    type Task;

    /// Returns the wheel.
    fn wheel(&mut self) -> &mut TimingWheel<Self::Task>;
}

impl<T> ShardState for TimingWheel<T> {
    type Task = T;

    fn wheel(&mut self) -> &mut TimingWheel<T> {
        self
    }
}

/// Wakes the reaper; `None` without one. Called with nothing of the timer locked.
pub(crate) type Wake = Option<Arc<dyn Fn() + Send + Sync>>;

/// Wakes the reaper, and tells it which shards of one owner have earlier work than it expects. On a
/// manual timer it tells which shards were locked.
pub(crate) struct WakeSignal {
    words: Marks,
    wake: Wake,
}

/// A bit for each shard, 64 a word.
type Marks = [AtomicU64; MAX_SHARDS / 64];

impl WakeSignal {
    /// Marks a shard, and wakes the reaper.
    fn send(&self, shard: usize) {
        // Set the bit before the wake-up, so that the woken reaper finds it.
        self.words[shard / 64].fetch_or(1 << (shard % 64), Ordering::Release);
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// Takes the bits of 64 shards: those that signalled since the last call.
    pub(super) fn take(&self, word: usize) -> u64 {
        self.words[word].swap(0, Ordering::Acquire)
    }
}

/// A shard behind its lock, in cache lines of its own.
type LockedShard<S> = CachePadded<Mutex<Shard<S>>>;

/// The place of a shard, which is made when it is first locked.
type Place<S> = Late<Box<LockedShard<S>>>;

/// Sharded wheels: an `S`, which has a wheel, under each shard's lock. All are made from one seed.
pub struct Shards<S: ShardState, Seed = ()> {
    /// Made when the first shard is locked. An `Arc` with one reference: the code that drops a
    /// `Box`'s content is compiled once for each codegen unit (`benches/sizes.py` shows it).
    places: Late<Arc<[Place<S>]>>,
    /// A bit for each shard that is made, or about to be (Seen).
    begun: Marks,
    /// The owner has closed, or is about to: a shard that is made from here on is closed. An atomic
    /// of std's: every park reads it, and Seen orders it.
    closed: atomic::AtomicBool,
    layout: Layout,
    seed: Seed,
    make: MakeShard<S, Seed>,
    pub(super) signal: Arc<WakeSignal>,
    /// The timer's count of tasks cancelled on wheels that are gone.
    cancelled: Arc<atomic::AtomicU64>,
}

/// Makes a shard from the owner's seed.
pub type MakeShard<S, Seed> = fn(&Seed, ShardPlan) -> S;

/// The parts of a shard that its timer decides.
#[derive(Debug)]
pub struct ShardPlan {
    /// The number of the shard.
    pub number: usize,
    /// The owner has [closed](Shards::close), and so is the shard.
    pub is_closed: bool,
    size: WheelSize,
    start: u64,
    phase: u64,
}

impl ShardPlan {
    /// Makes the wheel of the shard.
    pub fn wheel<T>(&self) -> TimingWheel<T> {
        TimingWheel::with_phase(self.size, self.start, self.phase)
    }
}

/// The parts of an owner's shards that its timer decides.
pub(super) struct Layout {
    /// The number of shards, a power of two.
    pub(super) count: usize,
    pub(super) size: WheelSize,
    /// The tick at which all wheels begin.
    pub(super) start: u64,
    /// Set for a manual timer: order matters, so no wheel is shifted, and each hold of a shard's
    /// lock ends with its signal.
    pub(super) manual: bool,
}

impl Layout {
    /// Plans one shard.
    fn plan(&self, number: usize, is_closed: bool) -> ShardPlan {
        let mut phase = 0;
        if !self.manual {
            phase = self.size.phase(number, self.count);
        }
        ShardPlan {
            number,
            is_closed,
            size: self.size,
            start: self.start,
            phase,
        }
    }
}

struct Shard<S> {
    state: S,
    /// Wake before: see the module.
    wake_before_tick: u64,
}

impl<S: ShardState, Seed> Shards<S, Seed> {
    /// Plans the shards of an owner.
    pub(super) fn new(
        layout: Layout,
        seed: Seed,
        make: MakeShard<S, Seed>,
        wake: Wake,
        cancelled: Arc<atomic::AtomicU64>,
    ) -> Self {
        let shards = Shards {
            places: Late::new(),
            begun: Marks::default(),
            closed: atomic::AtomicBool::new(false),
            signal: Arc::new(WakeSignal {
                words: Marks::default(),
                wake,
            }),
            layout,
            seed,
            make,
            cancelled,
        };
        // Most models do not see the cells: make all shards now.
        if !is_late() {
            for number in 0..shards.count() {
                drop(shards.lock(number));
            }
        }
        shards
    }

    /// Returns the places of all shards.
    fn places(&self) -> &[Place<S>] {
        match self.places.get() {
            Some(places) => places,
            None => self.make_places(),
        }
    }

    #[cold]
    fn make_places(&self) -> &[Place<S>] {
        let places = || iter::repeat_with(Late::new).take(self.count()).collect();
        self.places.get_or_init(places)
    }

    #[cold]
    fn make<'a>(&'a self, place: &'a Place<S>, number: usize) -> &'a LockedShard<S> {
        // Mark it before others can lock it, and before a look whether the owner has closed (Seen).
        let bit = 1 << (number % 64);
        self.begun[number / 64].fetch_or(bit, Ordering::AcqRel);
        let plan = self.layout.plan(number, self.is_closed());
        place.get_or_init(|| {
            Box::new(CachePadded::new(Mutex::new(Shard {
                state: (self.make)(&self.seed, plan),
                wake_before_tick: u64::MAX,
            })))
        })
    }

    /// Returns the number of shards, made or not: a power of two.
    pub fn count(&self) -> usize {
        self.layout.count
    }

    /// Returns the numbers of the shards that are made, or about to be: no other shard has anything
    /// (Seen). O(shards).
    pub fn made(&self) -> impl Iterator<Item = usize> {
        iter::successors(self.made_from(0), |number| self.made_from(number + 1))
    }

    /// Returns the shards that are made.
    fn made_shards(&self) -> impl Iterator<Item = &LockedShard<S>> {
        // The places were made before the first mark was set.
        self.made()
            .map(|number| self.at(&self.places()[number], number))
    }

    /// Returns the first shard that is made, or about to be, and whose number is `number` or above.
    pub fn made_from(&self, number: usize) -> Option<usize> {
        // Most models have all shards from the beginning.
        if !is_late() {
            return (number < self.count()).then_some(number);
        }
        let first = number / 64;
        let mut wanted = u64::MAX << (number % 64);
        for word in first..self.count().div_ceil(64) {
            let begun = self.take_marks(word) & wanted;
            if begun != 0 {
                return Some(64 * word + begun.trailing_zeros() as usize);
            }
            wanted = u64::MAX;
        }
        None
    }

    /// Takes the marks of 64 shards.
    fn take_marks(&self, word: usize) -> u64 {
        if failpoint!(LookPassesTheUnmade) {
            return self.begun[word].load(Ordering::Acquire);
        }
        // A write, though nothing changes: see Seen.
        self.begun[word].fetch_or(0, Ordering::AcqRel)
    }

    /// Marks the owner as closed: a shard that is made from here on is closed. The owner then closes
    /// the shards that are [made](Self::made). Returns true the first time.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, atomic::Ordering::AcqRel)
    }

    /// Returns true once the owner has closed, or is about to.
    pub fn is_closed(&self) -> bool {
        self.closed.load(atomic::Ordering::Relaxed)
    }

    /// Returns a shard by its place and number, and makes it if need be.
    #[inline(always)]
    fn at<'a>(&'a self, place: &'a Place<S>, number: usize) -> &'a LockedShard<S> {
        match place.get() {
            Some(shard) => shard,
            None => self.make(place, number),
        }
    }

    /// Locks a shard; numbers beyond the last wrap around.
    pub fn lock(&self, shard: usize) -> ShardGuard<'_, S> {
        // The number of shards is a power of two.
        let places = self.places();
        let number = shard & (places.len() - 1);
        // Most models do not see a mark, which is one more step of each lock hold.
        let is_marked = self.layout.manual && is_late();
        ShardGuard {
            guard: self.at(&places[number], number).lock(),
            unlocked: SignalAfter {
                signal: &self.signal,
                shard: number,
                due: is_marked.then_some(&self.signal),
            },
        }
    }

    /// Sums `count` over the shards, locking one after the other. Exact when idle.
    pub fn sum(&self, count: impl Fn(&S) -> usize) -> usize {
        let made = self.made_shards();
        made.map(|shard| count(&shard.lock().state)).sum()
    }

    /// Looks at a shard: when it next has work, and whether it has changed. Signals nothing.
    pub fn look(&self, shard: usize) -> ShardLook {
        let places = self.places.get();
        let Some(shard) = places.and_then(|places| places.get(shard)?.get()) else {
            return ShardLook::default();
        };
        let mut shard = shard.lock();
        let wheel = shard.state.wheel();
        ShardLook {
            next_due: wheel.next_due(),
            changes: wheel.changes(),
        }
    }

    /// Adds the counts of pending and of cancelled tasks. O(shards).
    pub fn add_to(&self, stats: &mut TimerStats) {
        for shard in self.made_shards() {
            let mut shard = shard.lock();
            let wheel = shard.state.wheel();
            stats.pending += wheel.scheduled_count() as u64;
            stats.cancelled += wheel.cancelled_count();
        }
    }
}

impl<S: ShardState, Seed> Drop for Shards<S, Seed> {
    fn drop(&mut self) {
        // The count of cancelled tasks outlives the wheels. No other thread makes a shard now.
        let places = self.places.get().into_iter();
        let shards = places
            .flat_map(|places| places.iter())
            .filter_map(Late::get);
        let counts = shards.map(|shard| shard.lock().state.wheel().cancelled_count());
        self.cancelled
            .fetch_add(counts.sum(), atomic::Ordering::Relaxed);
    }
}

/// A locked shard. Unlocks when dropped, and then signals if the shard was given earlier work.
#[must_use = "dropped at once, it unlocks at once"]
pub struct ShardGuard<'a, S> {
    // In this order: the lock is released before the signal is sent.
    guard: MutexGuard<'a, Shard<S>>,
    unlocked: SignalAfter<'a>,
}

/// Sends a shard's signal when it is dropped, if the shard was given earlier work, or belongs to a
/// manual timer.
struct SignalAfter<'a> {
    signal: &'a Arc<WakeSignal>,
    shard: usize,
    /// The signal, if it is to be sent. A word, as the other fields are: a guard is moved by words,
    /// and a move waits for a word that was written in part.
    due: Option<&'a Arc<WakeSignal>>,
}

impl Drop for SignalAfter<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(signal) = self.due {
            if !failpoint!(EarlierWorkSendsNoSignal) {
                signal.send(self.shard);
            }
        }
    }
}

impl<S> Deref for ShardGuard<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.guard.state
    }
}

impl<S> DerefMut for ShardGuard<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.guard.state
    }
}

impl<S> ShardGuard<'_, S> {
    /// Returns this shard's number.
    pub fn number(&self) -> usize {
        self.unlocked.shard
    }

    /// Returns the public name of a task on this shard's wheel.
    pub fn handle(&self, id: TaskId) -> TimerHandle {
        TimerHandle::new(self.unlocked.shard, id)
    }

    /// Notes that the wheel was given work that is due at this tick (Wake before). Returns true if
    /// the reaper is woken for it, once the lock is released.
    pub fn work_at(&mut self, due_tick: u64) -> bool {
        let is_earlier = due_tick < self.guard.wake_before_tick;
        if is_earlier {
            self.guard.wake_before_tick = due_tick;
            self.unlocked.due = Some(self.unlocked.signal);
        }
        is_earlier
    }

    /// Notes that the reaper advanced the wheel, which next has work at this tick.
    pub fn advanced(&mut self, next_due_tick: Option<u64>) {
        if !failpoint!(AdvanceLeavesWakeBefore) {
            self.guard.wake_before_tick = next_due_tick.unwrap_or(u64::MAX);
        }
    }
}

/// The most shards an owner's wheels can have.
pub const MAX_SHARDS: usize = 256;

/// Returns the default number of shards: `per_processor` for each processor, rounded up to a power
/// of two, from `per_processor` to [`MAX_SHARDS`].
///
/// The system is asked once: to answer it reads files, which takes longer than the rest of building
/// an owner of wheels.
///
/// # Panics
/// When `per_processor` is greater than [`MAX_SHARDS`].
pub fn default_shards(per_processor: usize) -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();

    let ask = || thread::available_parallelism().map_or(1, usize::from);
    let processors = *PROCESSORS.get_or_init(ask);
    (processors * per_processor)
        .next_power_of_two()
        .clamp(per_processor, MAX_SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::driver::Driver;

    fn shards() -> Shards<TimingWheel<()>> {
        Driver::new().shards(128, (), |(), plan| plan.wheel())
    }

    #[test]
    fn a_shard_is_made_as_it_is_first_locked() {
        let shards = shards();
        assert_eq!(shards.made().count(), 0);
        // Looking makes no shard.
        assert_eq!(shards.sum(|_| 1), 0);
        assert_eq!(shards.look(3), ShardLook::default());
        shards.add_to(&mut TimerStats::default());
        assert_eq!((shards.made().count(), shards.count()), (0, 128));

        for number in [3, 70, 128 + 70, 127] {
            drop(shards.lock(number));
        }
        assert!(shards.made().eq([3, 70, 127]));
        assert_eq!(shards.sum(|_| 1), 3);
        let from = [0, 3, 4, 71, 127].map(|number| shards.made_from(number));
        assert_eq!(from, [Some(3), Some(3), Some(70), Some(127), Some(127)]);
        assert_eq!(shards.made_from(128), None);
    }

    /// All shards have one deadline, in a coarse bucket.
    #[test]
    fn shards_hand_down_apart_but_on_a_manual_timer() {
        for manual in [false, true] {
            let mut driver = Driver::new();
            driver.config.manual = manual;
            let shards = driver.shards(64, (), |(), plan| plan.wheel());
            let mut dues = Vec::new();
            for number in 0..64 {
                let mut shard = shards.lock(number);
                assert_eq!(shard.number(), number);
                dues.push(shard.insert(1000, ()).unwrap().due);
            }
            dues.sort_unstable();
            dues.dedup();
            assert_eq!(dues.len() == 1, manual, "{dues:?}");
        }
    }

    #[test]
    fn default_shards_are_enough_for_all_processors() {
        let processors = thread::available_parallelism().unwrap().get();
        for a_processor in [1, 5, 64, 256] {
            let shards = default_shards(a_processor);
            assert!(shards.is_power_of_two() && shards >= a_processor);
            let enough = (a_processor * processors).min(MAX_SHARDS);
            assert!((enough..2 * enough).contains(&shards), "{shards} shards");
        }
    }

    /// A shard that says whether it was made closed.
    struct Told(TimingWheel<()>, bool);

    impl ShardState for Told {
        type Task = ();

        fn wheel(&mut self) -> &mut TimingWheel<()> {
            &mut self.0
        }
    }

    #[test]
    fn to_close_makes_no_shard_and_later_ones_are_closed() {
        let shards = Driver::new().shards(128, (), |(), plan| Told(plan.wheel(), plan.is_closed));
        drop(shards.lock(5));
        assert!(shards.close() && !shards.close());
        assert!(shards.made().eq([5]));
        assert_eq!([5, 6].map(|number| shards.lock(number).1), [false, true]);
    }
}
