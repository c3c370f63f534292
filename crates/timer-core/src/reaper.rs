//! The reaper: the one thread that waits for time to pass, for all wheels of a timer.
//!
//! It sleeps until the next bucket of any shard is due (not until the next tick: an idle timer
//! wakes nobody), turns the shards that are due or were rung for, a bounded amount of work each,
//! and sleeps again. A shard with more due is visited again in the next round, after the others.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    clock::Clock,
    executor::{as_timer_thread, contain},
    shards::Bell,
    sync::{AtomicBool, JoinHandle, Mutex, Ordering, Parker, Unparker, spawn},
    tick::TickLength,
    timer::{TimerClosed, Turns},
};

/// One owner of wheels.
#[derive(Clone)]
struct Attached {
    bell: Arc<Bell>,
    wheels: Weak<dyn Turns>,
    shards: usize,
}

/// The handle on the reaper's thread. Dropping it ends the thread without waiting for it.
#[derive(Debug)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    unparker: Unparker,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    tick: TickLength,
    /// Owners the thread has not seen yet; `None` once closed.
    arrivals: Mutex<Option<Vec<Attached>>>,
    closed: AtomicBool,
    wake_ups: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Reaper {
    pub(crate) fn start(clock: Arc<dyn Clock>, tick: TickLength, name: &str) -> io::Result<Reaper> {
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let shared = Arc::new(Shared {
            clock,
            tick,
            arrivals: Mutex::new(Some(Vec::new())),
            closed: AtomicBool::new(false),
            wake_ups: AtomicU64::new(0),
        });
        let rounds = Rounds { shared: shared.clone(), parker, visited: Vec::new() };
        let thread = spawn(name, || as_timer_thread(|| rounds.run()))?;
        Ok(Reaper { shared, unparker, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::new(Bell::new(Some(self.unparker.clone())))
    }

    pub(crate) fn attach(
        &self,
        bell: &Arc<Bell>,
        wheels: Weak<dyn Turns>,
        shards: usize,
    ) -> Result<(), TimerClosed> {
        let mut arrivals = self.shared.arrivals.lock();
        let arrivals = arrivals.as_mut().ok_or(TimerClosed)?;
        arrivals.push(Attached { bell: bell.clone(), wheels, shards });
        self.unparker.unpark();
        Ok(())
    }

    /// How often the thread has woken up.
    pub(crate) fn wake_ups(&self) -> u64 {
        self.shared.wake_ups.load(Relaxed)
    }

    /// Attaches no more, and lets the thread end.
    pub(crate) fn close(&self) {
        *self.shared.arrivals.lock() = None;
        self.shared.closed.store(true, Ordering::Release);
        self.unparker.unpark();
    }

    /// Waits for the thread to end, after [`close`](Self::close). Not for a timer's thread to call.
    pub(crate) fn join(&self) {
        let mut thread = self.thread.lock(); // kept: who calls meanwhile waits, too
        if let Some(thread) = thread.take() {
            let _ = thread.join(); // each turn is contained
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's own state.
struct Rounds {
    shared: Arc<Shared>,
    parker: Parker,
    visited: Vec<Visited>,
}

/// A turn that panicked may have left work that nobody rings for any more, so its shard is looked at
/// again this much later. Not at once: it may panic for ever.
const AFTER_PANIC_NS: u64 = 100_000_000;

/// An owner of wheels, and when each of its shards is next due.
struct Visited {
    attached: Attached,
    next_due: Vec<Option<u64>>,
}

impl Rounds {
    fn run(mut self) {
        while !self.shared.closed.load(Ordering::Acquire) {
            self.welcome();
            let now = self.shared.tick.round_down(self.shared.clock.now_ns());
            let again = self.shared.tick.round_up(AFTER_PANIC_NS);
            self.visited.retain_mut(|visited| visited.turn(now, again));
            self.sleep();
        }
    }

    fn welcome(&mut self) {
        let arrivals = match &mut *self.shared.arrivals.lock() {
            Some(arrivals) => std::mem::take(arrivals),
            None => return,
        };
        self.visited.extend(arrivals.into_iter().map(|attached| {
            let next_due = vec![None; attached.shards];
            Visited { attached, next_due }
        }));
    }

    /// Sleeps until the next bucket of any shard is due, or the bell rings; not at all when one is
    /// due already.
    fn sleep(&self) {
        let dues = self.visited.iter().flat_map(|visited| &visited.next_due);
        match dues.filter_map(|&due| due).min() {
            None => self.parker.park(),
            Some(next) => {
                let Shared { clock, tick, .. } = &*self.shared;
                let now_ns = clock.now_ns();
                if next <= tick.round_down(now_ns) {
                    return;
                }
                // Beyond the end of time (u64 nanoseconds) it is never.
                let wait_ns = tick.start_ns(next).checked_sub(now_ns).filter(|&wait| wait > 0);
                let wait = wait_ns.map_or(Duration::MAX, Duration::from_nanos);
                self.parker.park_timeout(wait.min(clock.sleep_max().unwrap_or(Duration::MAX)));
            }
        }
        self.shared.wake_ups.fetch_add(1, Relaxed);
    }
}

impl Visited {
    /// Turns the shards that are due or were rung for; one whose turn panics is turned again after
    /// `again` ticks. False when their owner is gone.
    fn turn(&mut self, now: u64, again: u64) -> bool {
        let mut rung = self.attached.bell.take();
        for (shard, next_due) in self.next_due.iter_mut().enumerate() {
            let called = rung & 1 == 1;
            rung >>= 1;
            if !called && next_due.is_none_or(|due| due > now) {
                continue;
            }
            let Some(wheels) = self.attached.wheels.upgrade() else { return false };
            *next_due = Some(now.saturating_add(again)); // when it panics
            let _ = contain(|| *next_due = wheels.turn(shard, now));
        }
        self.attached.wheels.strong_count() > 0
    }
}
