//! The reaper: the one thread that waits for time to pass, for all wheels of a timer. Or the one
//! task, of a tokio runtime ([`tokio`](super::tokio)); or nobody, and a hand turns them.
//!
//! It sleeps until the next bucket of any shard is due (not until the next tick: an idle timer
//! wakes nobody), turns the shards that are due or were rung for, a bounded amount of work each,
//! and sleeps again. A shard with more due is visited again in the next round, after the others.

use std::{
    fmt, io,
    sync::{Arc, Weak, atomic},
    time::Duration,
};

use crate::{
    driver::clock::TickLength,
    driver::{
        clock::Clock,
        executor::{Latch, UNLIMITED, inside_timer},
        owner::{TimerClosed, WheelCounts, WheelOwner},
        panics::contain,
    },
    observe::{TimeHistogram, TimerStats},
    sync::{AtomicU64, JoinHandle, Mutex, Ordering, Parker, Unparker, spawn},
};

/// Wakes the reaper, or keeps it from its next sleep.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    Thread(Unparker),
    #[cfg(feature = "tokio")]
    Task(Arc<tokio::sync::Notify>),
    /// A hand comes by itself.
    Nobody,
}

impl Wake {
    fn wake(&self) {
        match self {
            Wake::Thread(reaper) => reaper.unpark(),
            #[cfg(feature = "tokio")]
            Wake::Task(reaper) => reaper.notify_one(),
            Wake::Nobody => {}
        }
    }
}

/// How wheels tell their timer that one of them has work earlier than it knows of: made by
/// [`Driver::bell`](crate::driver::Driver::bell), rung by [`Shards`](crate::driver::Shards).
#[derive(Debug)]
pub struct Bell {
    /// A bit for each shard, 64 a word.
    rung: Box<[AtomicU64]>,
    shard_count: usize,
    reaper: Wake,
    /// The timer's count of tasks cancelled on wheels that are gone.
    cancelled: Arc<atomic::AtomicU64>,
}

impl Bell {
    pub(crate) fn ring(&self, shard: usize) {
        self.rung[shard / 64].fetch_or(1 << (shard % 64), Ordering::Release);
        self.reaper.wake();
    }

    /// Of 64 shards, those that were rung since the last call, a bit each.
    fn take(&self, word: usize) -> u64 {
        self.rung[word].swap(0, Ordering::Acquire)
    }

    /// Wheels are dropped on which this many tasks had been cancelled.
    pub(crate) fn leave_cancelled(&self, count: u64) {
        self.cancelled.fetch_add(count, atomic::Ordering::Relaxed);
    }
}

/// One owner of wheels.
#[derive(Clone)]
struct Attached {
    bell: Arc<Bell>,
    wheels: Weak<dyn WheelOwner>,
}

/// All owners.
#[derive(Default)]
struct Owners {
    all: Vec<Attached>,
    /// Owners the reaper has not seen yet.
    arrivals: Vec<Attached>,
    /// Those that are gone are swept out when there are this many.
    sweep_at: usize,
    closed: bool,
}

/// The counts of turning wheels.
#[derive(Default)]
struct Counts {
    fired: u64,
    cascaded: u64,
    wake_ups: u64,
    spurious_wake_ups: u64,
    turns: TimeHistogram,
    /// The most cancellations that were told: wheels that are just being dropped are neither among
    /// the living nor in the count of those that are gone.
    cancelled_told: u64,
}

struct Shared {
    clock: Arc<dyn Clock>,
    tick: TickLength,
    owners: Mutex<Owners>,
    /// Not the model's lock: nothing depends on it.
    counts: parking_lot::Mutex<Counts>,
    /// Tasks cancelled on wheels that are gone.
    cancelled: Arc<atomic::AtomicU64>,
}

/// The handle on the reaper. Dropping it ends its thread, or task, without waiting for it.
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    wake: Wake,
    /// None of a task, or of a hand.
    thread: Mutex<Option<JoinHandle<()>>>,
    running: Latch,
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").finish_non_exhaustive()
    }
}

impl Reaper {
    /// A reaper without a thread, and its rounds: for a task that `wake` wakes, or for a hand.
    pub(crate) fn new(clock: Arc<dyn Clock>, tick: TickLength, wake: Wake) -> (Reaper, Rounds) {
        let (owners, counts, cancelled) =
            (Mutex::new(Owners::default()), Default::default(), Arc::default());
        let shared = Arc::new(Shared { clock, tick, owners, counts, cancelled });
        let rounds = Rounds { shared: shared.clone(), visited: Vec::new(), woken: false };
        (Reaper { shared, wake, thread: Mutex::new(None), running: Latch::default() }, rounds)
    }

    pub(crate) fn start(clock: Arc<dyn Clock>, tick: TickLength, name: &str) -> io::Result<Reaper> {
        let parker = Parker::new();
        let wake = Wake::Thread(parker.unparker().clone());
        let (reaper, rounds) = Reaper::new(clock, tick, wake);
        let under_way = reaper.running.begin();
        let turn = move || {
            inside_timer(|| rounds.run(parker));
            drop(under_way);
        };
        *reaper.thread.lock() = Some(spawn(name, turn)?);
        Ok(reaper)
    }

    /// True when it is a task, and the calling thread runs a runtime's tasks.
    pub(crate) fn needs_this_thread(&self) -> bool {
        match self.wake {
            #[cfg(feature = "tokio")]
            Wake::Task(_) => super::tokio::runs_tasks_here(),
            _ => false,
        }
    }

    pub(crate) fn bell(&self, shard_count: usize) -> Arc<Bell> {
        let words = std::iter::repeat_with(|| AtomicU64::new(0)).take(shard_count.div_ceil(64));
        let (reaper, cancelled) = (self.wake.clone(), self.shared.cancelled.clone());
        Arc::new(Bell { rung: words.collect(), shard_count, reaper, cancelled })
    }

    /// Nobody is woken: the reaper learns of the owner when that rings.
    pub(crate) fn attach(
        &self,
        bell: &Arc<Bell>,
        wheels: Weak<dyn WheelOwner>,
    ) -> Result<(), TimerClosed> {
        let mut owners = self.shared.owners.lock();
        if owners.closed {
            return Err(TimerClosed);
        }
        if owners.all.len() >= owners.sweep_at {
            owners.all.retain(|owner| owner.wheels.strong_count() > 0);
            owners.arrivals.retain(|owner| owner.wheels.strong_count() > 0);
            owners.sweep_at = 2 * owners.all.len() + 16;
        }
        let attached = Attached { bell: bell.clone(), wheels };
        if !matches!(self.wake, Wake::Nobody) {
            owners.arrivals.push(attached.clone());
        }
        owners.all.push(attached);
        Ok(())
    }

    /// Attaches no more, and lets the thread, or task, end; returns all owners.
    pub(crate) fn close(&self) -> Vec<Arc<dyn WheelOwner>> {
        self.shared.owners.lock().closed = true;
        self.wake.wake();
        self.owners().into_iter().map(|(owner, _)| owner).collect()
    }

    /// Waits for the thread to end, after [`close`](Self::close); false when it has not within
    /// `limit`. Not for a timer's thread to call without one.
    pub(crate) fn join(&self, limit: Duration) -> bool {
        if limit < UNLIMITED {
            return self.running.wait(limit) == 0;
        }
        let mut thread = self.thread.lock(); // kept: another caller waits, too
        if let Some(thread) = thread.take() {
            let _ = thread.join(); // each turn is contained
        }
        true
    }

    /// All owners, in the order they were attached, and how many shards each has.
    pub(crate) fn owners(&self) -> Vec<(Arc<dyn WheelOwner>, usize)> {
        let owners = self.shared.owners.lock();
        let alive = |owner: &Attached| Some((owner.wheels.upgrade()?, owner.bell.shard_count));
        owners.all.iter().filter_map(alive).collect()
    }

    /// Counts a turn of a wheel.
    pub(crate) fn count(&self, fired: usize, cascaded: usize) {
        let mut counts = self.shared.counts.lock();
        counts.fired += fired as u64;
        counts.cascaded += cascaded as u64;
    }

    /// How often it has woken up.
    pub(crate) fn wake_ups(&self) -> u64 {
        self.shared.counts.lock().wake_ups
    }

    /// How long rounds took.
    #[cfg(feature = "metrics")]
    pub(crate) fn turns(&self) -> TimeHistogram {
        self.shared.counts.lock().turns.clone()
    }

    /// All counts but those of panics and of the executor.
    pub(crate) fn stats(&self) -> TimerStats {
        // Kept until the end: what is dropped meanwhile would be counted twice.
        let owners = self.owners();
        let living: WheelCounts = owners.iter().map(|(owner, _)| owner.counts()).sum();
        let mut counts = self.shared.counts.lock();
        let cancelled = living.cancelled + self.shared.cancelled.load(atomic::Ordering::Relaxed);
        counts.cancelled_told = counts.cancelled_told.max(cancelled);
        TimerStats {
            pending: living.pending,
            fired: counts.fired,
            cancelled: counts.cancelled_told,
            cascaded: counts.cascaded,
            wake_ups: counts.wake_ups,
            spurious_wake_ups: counts.spurious_wake_ups,
            panics: 0,
            executor_queue: None,
            turns: counts.turns.clone(),
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.shared.owners.lock().closed = true;
        self.wake.wake();
    }
}

/// The thread's, or task's, own state.
pub(crate) struct Rounds {
    shared: Arc<Shared>,
    visited: Vec<Visited>,
    /// The round to come is the first after a sleep.
    woken: bool,
}

/// How long to sleep before the next round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// There is more to do now.
    None,
    /// There is more to do now, but this round has handed tasks over and buckets down: a worker
    /// may run first, as the system may have put it on this very processor.
    Yield,
    /// So long, or until woken.
    For(Duration),
    /// Until woken.
    UntilWoken,
    /// For good: the timer was closed.
    Over,
}

/// A turn that panicked may have left work that nobody rings for any more, so its shard is looked
/// at again this much later. Not at once: it may panic for ever.
const AFTER_PANIC_NS: u64 = 100_000_000;

/// An owner of wheels, and when each of its shards is next due.
struct Visited {
    attached: Attached,
    next_due: Vec<Option<u64>>,
}

impl Rounds {
    fn run(mut self, parker: Parker) {
        loop {
            match self.round() {
                Pause::None => {}
                Pause::Yield => std::thread::yield_now(),
                Pause::For(wait) => parker.park_timeout(wait),
                Pause::UntilWoken => parker.park(),
                Pause::Over => return,
            }
        }
    }

    /// Advances what is due; tells how long to sleep then.
    pub(crate) fn round(&mut self) -> Pause {
        let Some(called) = self.welcome() else { return Pause::Over };
        let mut round = Round { called, ..Round::default() };
        let now_ns = self.shared.clock.now_ns();
        let now_tick = self.shared.tick.round_down(now_ns);
        let again_ticks = self.shared.tick.round_up(AFTER_PANIC_NS);
        self.visited.retain_mut(|visited| visited.advance_due(now_tick, again_ticks, &mut round));
        self.count(&round, self.woken, now_ns);
        let pause = match self.pause() {
            Pause::None if round.fired > 0 && round.cascaded > 0 => Pause::Yield,
            pause => pause,
        };
        self.woken = !matches!(pause, Pause::None | Pause::Yield);
        pause
    }

    /// The rounds end though nobody closed the timer: closes it, and tells its owners.
    #[cfg(feature = "tokio")]
    pub(crate) fn abandon(&mut self) {
        let mut owners = self.shared.owners.lock();
        if std::mem::replace(&mut owners.closed, true) {
            return;
        }
        let all = owners.all.clone();
        drop(owners);
        for owner in all.iter().filter_map(|attached| attached.wheels.upgrade()) {
            let _ = contain(|| owner.timer_closed());
        }
    }

    fn count(&self, round: &Round, woken: bool, began_ns: u64) {
        let turned = round.fired + round.cascaded > 0;
        let took_ns = turned.then(|| self.shared.clock.now_ns().saturating_sub(began_ns));
        let mut counts = self.shared.counts.lock();
        counts.wake_ups += u64::from(woken);
        if let Some(took_ns) = took_ns {
            counts.fired += round.fired;
            counts.cascaded += round.cascaded;
            counts.turns.record(took_ns);
        } else {
            counts.spurious_wake_ups += u64::from(woken && !round.called);
        }
    }

    /// Takes in new owners; true when there are some, `None` when the timer was closed.
    fn welcome(&mut self) -> Option<bool> {
        let mut owners = self.shared.owners.lock();
        let arrivals = (!owners.closed).then(|| std::mem::take(&mut owners.arrivals))?;
        drop(owners);
        let welcomed = !arrivals.is_empty();
        self.visited.extend(arrivals.into_iter().map(|attached| {
            let next_due = vec![None; attached.bell.shard_count];
            Visited { attached, next_due }
        }));
        Some(welcomed)
    }

    /// Until the next bucket of any shard is due.
    fn pause(&self) -> Pause {
        let dues = self.visited.iter().flat_map(|visited| &visited.next_due);
        let Some(next_tick) = dues.filter_map(|&due| due).min() else { return Pause::UntilWoken };
        let Shared { clock, tick, .. } = &*self.shared;
        let now_ns = clock.now_ns();
        if next_tick <= tick.round_down(now_ns) {
            return Pause::None;
        }
        // Beyond the end of time (u64 nanoseconds) it is never.
        let wait_ns = tick.start_ns(next_tick).checked_sub(now_ns).filter(|&wait| wait > 0);
        let wait = wait_ns.map_or(Duration::MAX, Duration::from_nanos);
        Pause::For(wait.min(clock.sleep_max().unwrap_or(Duration::MAX)))
    }
}

/// What a round over all wheels came to.
#[derive(Default)]
struct Round {
    /// Somebody rang, or came.
    called: bool,
    fired: u64,
    cascaded: u64,
}

impl Visited {
    /// Advances the shards that are due or were rung for; one whose turn panics is turned again
    /// after `again_ticks`. False when their owner is gone.
    fn advance_due(&mut self, now_tick: u64, again_ticks: u64, round: &mut Round) -> bool {
        let (mut rung, mut turned) = (0, None);
        for (shard, next_due) in self.next_due.iter_mut().enumerate() {
            if shard % 64 == 0 {
                rung = self.attached.bell.take(shard / 64);
                round.called |= rung != 0;
            }
            let called = rung & 1 == 1;
            rung >>= 1;
            if !called && next_due.is_none_or(|due| due > now_tick) {
                continue;
            }
            let Some(wheels) = self.attached.wheels.upgrade() else { return false };
            *next_due = Some(now_tick.saturating_add(again_ticks)); // when it panics
            let _ = contain(|| {
                let advanced = wheels.advance(shard, now_tick);
                *next_due = advanced.next_due;
                round.fired += advanced.fired as u64;
                round.cascaded += advanced.cascaded as u64;
            });
            turned = Some(wheels);
        }
        turned.into_iter().for_each(|wheels| _ = contain(|| wheels.round_over()));
        self.attached.wheels.strong_count() > 0
    }
}
