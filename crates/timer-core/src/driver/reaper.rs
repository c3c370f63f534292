//! The reaper: the one thread that waits for time to pass, for all wheels of a timer. Or the one
//! task, of a tokio runtime ([`tokio`](super::tokio)).
//!
//! It sleeps until the next bucket of any shard is due (not until the next tick: an idle timer
//! wakes nobody), turns the shards that are due or were rung for, a bounded amount of work each,
//! and sleeps again. A shard with more due is visited again in the next round, after the others.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    driver::{
        bell::Bell,
        clock::Clock,
        counts::{AdvanceCounts, CancelledOnDropped},
        executor::{Latch, UNLIMITED, inside_timer},
        panics::contain,
        spi::{TimerClosed, WheelOwner},
        wake::Wake,
    },
    sync::{AtomicBool, JoinHandle, Mutex, Ordering, Parker, spawn},
    wheel::tick::TickLength,
};

/// One owner of wheels.
#[derive(Clone)]
struct Attached {
    bell: Arc<Bell>,
    wheels: Weak<dyn WheelOwner>,
}

/// The handle on the reaper. Dropping it ends its thread, or task, without waiting for it.
#[derive(Debug)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    wake: Wake,
    /// None of a task.
    thread: Mutex<Option<JoinHandle<()>>>,
    running: Latch,
}

struct Shared {
    clock: Arc<dyn Clock>,
    tick: TickLength,
    /// Owners the thread has not seen yet; `None` once closed.
    arrivals: Mutex<Option<Vec<Attached>>>,
    closed: AtomicBool,
    /// Only the thread itself writes it. Not the model's lock: nothing depends on it.
    counts: parking_lot::Mutex<AdvanceCounts>,
    gone: CancelledOnDropped,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Reaper {
    pub(crate) fn start(clock: Arc<dyn Clock>, tick: TickLength, name: &str) -> io::Result<Reaper> {
        let parker = Parker::new();
        let wake = Wake::Thread(parker.unparker().clone());
        let (shared, rounds) = Rounds::new(clock, tick);
        let running = Latch::default();
        let under_way = running.begin();
        let turn = move || {
            inside_timer(|| rounds.run(parker));
            drop(under_way);
        };
        let thread = Mutex::new(Some(spawn(name, turn)?));
        Ok(Reaper { shared, wake, thread, running })
    }

    /// A reaper whose rounds are gone over by a task, which `wake` wakes.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_task(clock: Arc<dyn Clock>, tick: TickLength, wake: Wake) -> (Reaper, Rounds) {
        let (shared, rounds) = Rounds::new(clock, tick);
        let (thread, running) = (Mutex::new(None), Latch::default());
        (Reaper { shared, wake, thread, running }, rounds)
    }

    pub(crate) fn bell(&self, shards: usize) -> Arc<Bell> {
        Arc::new(Bell::new(shards, Some(self.wake.clone()), self.shared.gone.count.clone()))
    }

    pub(crate) fn attach(
        &self,
        bell: &Arc<Bell>,
        wheels: Weak<dyn WheelOwner>,
    ) -> Result<(), TimerClosed> {
        let mut arrivals = self.shared.arrivals.lock();
        let arrivals = arrivals.as_mut().ok_or(TimerClosed)?;
        arrivals.push(Attached { bell: bell.clone(), wheels }); // seen when it rings
        Ok(())
    }

    /// What it has counted.
    pub(crate) fn counts(&self) -> AdvanceCounts {
        self.shared.counts.lock().clone()
    }

    /// What wheels that are gone had cancelled.
    pub(crate) fn gone(&self) -> &CancelledOnDropped {
        &self.shared.gone
    }

    /// Attaches no more, and lets the thread, or task, end.
    pub(crate) fn close(&self) {
        *self.shared.arrivals.lock() = None;
        self.shared.closed.store(true, Ordering::Release);
        self.wake.wake();
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
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.close();
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
    fn new(clock: Arc<dyn Clock>, tick: TickLength) -> (Arc<Shared>, Rounds) {
        let shared = Arc::new(Shared {
            clock,
            tick,
            arrivals: Mutex::new(Some(Vec::new())),
            closed: AtomicBool::new(false),
            counts: parking_lot::Mutex::default(),
            gone: CancelledOnDropped::default(),
        });
        (shared.clone(), Rounds { shared, visited: Vec::new(), woken: false })
    }

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
        if self.shared.closed.load(Ordering::Acquire) {
            return Pause::Over;
        }
        let mut round = Round { called: self.welcome(), ..Round::default() };
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
        if self.shared.closed.load(Ordering::Acquire) {
            return;
        }
        self.welcome();
        let late = self.shared.arrivals.lock().take();
        self.shared.closed.store(true, Ordering::Release);
        let visited = self.visited.drain(..).map(|visited| visited.attached);
        for attached in visited.chain(late.into_iter().flatten()) {
            let owner = attached.wheels.upgrade();
            owner.into_iter().for_each(|owner| _ = contain(|| owner.timer_closed()));
        }
    }

    fn count(&self, round: &Round, woken: bool, began_ns: u64) {
        let turned = round.fired + round.cascaded > 0;
        let took_ns = turned.then(|| self.shared.clock.now_ns().saturating_sub(began_ns));
        let mut counts = self.shared.counts.lock();
        counts.wake_ups += u64::from(woken);
        if let Some(took_ns) = took_ns {
            counts.add(round.fired, round.cascaded);
            counts.rounds.record(took_ns);
        } else {
            counts.spurious_wake_ups += u64::from(woken && !round.called);
        }
    }

    /// Takes in new owners; true when there are some.
    fn welcome(&mut self) -> bool {
        let arrivals = match &mut *self.shared.arrivals.lock() {
            Some(arrivals) => std::mem::take(arrivals),
            None => return false,
        };
        let welcomed = !arrivals.is_empty();
        self.visited.extend(arrivals.into_iter().map(|attached| {
            let next_due = vec![None; attached.bell.shard_count()];
            Visited { attached, next_due }
        }));
        welcomed
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
