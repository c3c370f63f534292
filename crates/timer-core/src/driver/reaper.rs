//! The reaper: the one thread that waits for time to pass, for all wheels of a timer. Or the one
//! task, of a tokio runtime ([`tokio`](super::tokio)); or nobody, and a hand turns them.
//!
//! It sleeps until the next bucket of any shard is due (not until the next tick: an idle timer
//! wakes nobody), turns the shards that are due or were rung for, a bounded amount of work each,
//! and sleeps again. A shard with more due is visited again in the next round, after the others.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    driver::{
        clock::{Clock, TickLength},
        executor::contain,
        shards::{Bell, WheelOwner},
    },
    observe::TimerStats,
    sync::{Mutex, Parker, plain},
};

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

/// What the handles of a timer share with its reaper.
pub(crate) struct Shared {
    owners: Mutex<Owners>,
    /// What turning wheels has come to, and the most cancellations that were told: wheels that are
    /// just being dropped are neither among the living nor in the count of those that are gone.
    /// Not the model's lock: nothing depends on it.
    counts: plain::Mutex<TimerStats>,
    /// Tasks cancelled on wheels that are gone.
    pub(crate) cancelled: Arc<AtomicU64>,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        let (counts, cancelled) = Default::default();
        Arc::new(Shared {
            owners: Mutex::new(Owners::default()),
            counts,
            cancelled,
        })
    }

    /// Nobody is woken: the reaper learns of the owner when that rings. False after
    /// [`close`](Self::close).
    pub(crate) fn attach(&self, bell: &Arc<Bell>, wheels: Weak<dyn WheelOwner>) -> bool {
        let mut owners = self.owners.lock();
        if owners.closed {
            return false;
        }
        if owners.all.len() >= owners.sweep_at {
            owners.all.retain(|owner| owner.wheels.strong_count() > 0);
            owners
                .arrivals
                .retain(|owner| owner.wheels.strong_count() > 0);
            owners.sweep_at = 2 * owners.all.len() + 16;
        }
        let attached = Attached {
            bell: bell.clone(),
            wheels,
        };
        if bell.wake.is_some() {
            owners.arrivals.push(attached.clone());
        }
        owners.all.push(attached);
        true
    }

    /// Attaches no more, and ends the rounds; false if that was done before.
    pub(crate) fn close(&self) -> bool {
        !std::mem::replace(&mut self.owners.lock().closed, true)
    }

    /// All owners, in the order they were attached, and how many shards each has.
    pub(crate) fn owners(&self) -> Vec<(Arc<dyn WheelOwner>, usize)> {
        let owners = self.owners.lock();
        let alive = |owner: &Attached| Some((owner.wheels.upgrade()?, owner.bell.shard_count));
        owners.all.iter().filter_map(alive).collect()
    }

    /// Counts a turn of a wheel.
    pub(crate) fn count(&self, fired: usize, cascaded: usize) {
        let mut counts = self.counts.lock();
        counts.fired += fired as u64;
        counts.cascaded += cascaded as u64;
    }

    /// All counts but those of panics and of the executor.
    pub(crate) fn stats(&self) -> TimerStats {
        // Kept until the end: what is dropped meanwhile would be counted twice.
        let owners = self.owners();
        let mut living = TimerStats::default();
        owners
            .iter()
            .for_each(|(owner, _)| owner.add_to(&mut living));
        let mut counts = self.counts.lock();
        let cancelled = living.cancelled + self.cancelled.load(Ordering::Relaxed);
        counts.cancelled = counts.cancelled.max(cancelled);
        TimerStats {
            pending: living.pending,
            ..counts.clone()
        }
    }
}

/// The thread's, or task's, own state.
pub(crate) struct Rounds {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    tick: TickLength,
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

/// An owner of wheels, and when each of its shards is next due.
struct Visited {
    attached: Attached,
    next_due: Vec<Option<u64>>,
}

impl Rounds {
    pub(crate) fn new(shared: Arc<Shared>, clock: Arc<dyn Clock>, tick: TickLength) -> Self {
        Rounds {
            shared,
            clock,
            tick,
            visited: Vec::new(),
            woken: false,
        }
    }

    pub(crate) fn run(mut self, parker: Parker) {
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
        let Some(called) = self.welcome() else {
            return Pause::Over;
        };
        let mut round = Round {
            called,
            ..Round::default()
        };
        let now_ns = self.clock.now_ns();
        let now_tick = self.tick.round_down(now_ns);
        let again_ticks = self.tick.round_up(AFTER_PANIC_NS);
        self.visited
            .retain_mut(|visited| visited.advance_due(now_tick, again_ticks, &mut round));
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
        if self.shared.close() {
            for (owner, _) in self.shared.owners() {
                let _ = contain(|| owner.timer_closed());
            }
        }
    }

    fn count(&self, round: &Round, woken: bool, began_ns: u64) {
        let turned = round.fired + round.cascaded > 0;
        let took_ns = turned.then(|| self.clock.now_ns().saturating_sub(began_ns));
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
        let Some(next_tick) = dues.filter_map(|&due| due).min() else {
            return Pause::UntilWoken;
        };
        let now_ns = self.clock.now_ns();
        if next_tick <= self.tick.round_down(now_ns) {
            return Pause::None;
        }
        // Beyond the end of time (u64 nanoseconds) it is never.
        let wait_ns = self
            .tick
            .start_ns(next_tick)
            .checked_sub(now_ns)
            .filter(|&wait| wait > 0);
        let wait = wait_ns.map_or(Duration::MAX, Duration::from_nanos);
        Pause::For(wait.min(self.clock.sleep_max().unwrap_or(Duration::MAX)))
    }
}

/// A turn that panicked may have left work that nobody rings for any more, so its shard is looked
/// at again this much later. Not at once: it may panic for ever.
const AFTER_PANIC_NS: u64 = 100_000_000;

/// What a round over all wheels came to.
#[derive(Default)]
struct Round {
    /// Somebody rang, or came.
    called: bool,
    fired: u64,
    cascaded: u64,
}

impl Visited {
    /// Advances the shards that are due or were rung for; one whose turn panics is looked at again
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
            let Some(wheels) = self.attached.wheels.upgrade() else {
                return false;
            };
            *next_due = Some(now_tick.saturating_add(again_ticks)); // when it panics
            let _ = contain(|| {
                let advanced = wheels.advance(shard, now_tick);
                *next_due = advanced.next_due;
                round.fired += advanced.fired as u64;
                round.cascaded += advanced.cascaded as u64;
            });
            turned = Some(wheels);
        }
        turned
            .into_iter()
            .for_each(|wheels| _ = contain(|| wheels.round_over()));
        self.attached.wheels.strong_count() > 0
    }
}
