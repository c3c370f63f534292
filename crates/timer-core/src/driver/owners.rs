//! [`Shared`]: the state that a timer's handles share with its reaper: owners of wheels, and
//! counts.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    driver::{config::Panics, executor::inside_timer, owner::WheelOwner, shards::WakeSignal},
    observe::TimerStats,
    sync::{Latch, Mutex, plain},
    wheel::timing_wheel::Advanced,
};

/// One owner of wheels, as it was attached.
#[derive(Clone)]
pub(super) struct Attached {
    pub(super) wheels: Weak<dyn WheelOwner>,
    pub(super) shard_count: usize,
    pub(super) signal: Arc<WakeSignal>,
}

impl Attached {
    pub(super) fn is_alive(&self) -> bool {
        self.wheels.strong_count() > 0
    }
}

/// All owners.
#[derive(Default)]
struct Owners {
    all: Vec<Attached>,
    /// Owners that the reaper, or the manual timer, has not seen yet.
    arrivals: Vec<Attached>,
    /// The number of owners at which dropped ones are swept out.
    sweep_at: usize,
}

/// State that the handles of a timer share with its reaper.
pub(crate) struct Shared {
    owners: Mutex<Owners>,
    /// Running totals. `cancelled` keeps the maximum ever reported: wheels being dropped are
    /// briefly counted nowhere. A lock that models do not see: nothing depends on it.
    pub(super) counts: plain::Mutex<TimerStats>,
    /// Tasks cancelled on wheels that are gone.
    pub(crate) cancelled: Arc<AtomicU64>,
    /// Polls that were pending with more to do, on a manual timer.
    pub(super) yields: AtomicU64,
    /// With a grace, the first call of the reaper since its last round; `u64::MAX` for none.
    pub(super) called_ns: Arc<AtomicU64>,
    /// Set under the lock of the owners; also read without it.
    is_closed: AtomicBool,
    /// Counts the threads that close the owners; jobs that run in place run meanwhile.
    pub(super) closing: Latch,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Shared {
            owners: Mutex::new(Owners::default()),
            counts: plain::Mutex::default(),
            cancelled: Arc::default(),
            yields: AtomicU64::new(0),
            called_ns: Arc::new(AtomicU64::new(u64::MAX)),
            is_closed: AtomicBool::new(false),
            closing: Latch::default(),
        })
    }

    /// Adds an owner; returns false after [`close`](Self::close). The reaper is not woken: it
    /// learns of the owner by the owner's first signal.
    pub(super) fn attach(&self, attached: Attached) -> bool {
        let mut owners = self.owners.lock();
        if self.is_closed() {
            return false;
        }
        // Dropped owners are swept out each time that the list has doubled: O(1) on average.
        if owners.all.len() >= owners.sweep_at {
            owners.all.retain(Attached::is_alive);
            owners.arrivals.retain(Attached::is_alive);
            owners.sweep_at = 2 * owners.all.len() + 16;
        }
        owners.arrivals.push(attached.clone());
        owners.all.push(attached);
        true
    }

    /// Attaches no more owners, and ends the rounds. Returns false if that was done before.
    pub(crate) fn close(&self) -> bool {
        let _owners = self.owners.lock();
        !self.is_closed.swap(true, Ordering::Relaxed)
    }

    /// Returns true after [`close`](Self::close). Locks nothing: a close at the same time may be
    /// missed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns all owners, in the order in which they were attached.
    pub(super) fn owners(&self) -> Vec<Arc<dyn WheelOwner>> {
        let owners = self.owners.lock();
        let all = owners.all.iter();
        all.filter_map(|owner| owner.wheels.upgrade()).collect()
    }

    /// Takes the owners that the reaper, or a manual timer, has not seen yet.
    pub(super) fn take_arrivals(&self) -> Vec<Attached> {
        std::mem::take(&mut self.owners.lock().arrivals)
    }

    /// Closes the wheels of all owners. A panic of one is reported, and does not reach the next.
    pub(super) fn close_owners(&self, panics: &Panics) {
        let _closing = self.closing.begin();
        // Jobs may run in place: a shutdown in one would wait for this very call.
        inside_timer(|| {
            for owner in self.owners() {
                panics.contain(|| owner.timer_closed());
            }
        });
    }

    /// Counts the work of one advance of a wheel.
    pub(crate) fn count(&self, advanced: Advanced) {
        let mut counts = self.counts.lock();
        counts.fired += advanced.fired as u64;
        counts.cascaded += advanced.cascaded as u64;
    }

    /// Returns all counts but those of the tasks' panics and of the executor. The count of
    /// cancelled tasks is kept, so that no later call returns less.
    pub(crate) fn stats(&self) -> TimerStats {
        // The owners are kept until the end: one dropped meanwhile would be counted twice.
        let owners = self.owners();
        let mut living = TimerStats::default();
        for owner in &owners {
            owner.add_to(&mut living);
        }
        let mut counts = self.counts.lock();
        let cancelled = living.cancelled + self.cancelled.load(Ordering::Relaxed);
        counts.cancelled = counts.cancelled.max(cancelled);
        TimerStats {
            pending: living.pending,
            ..counts.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::driver::Driver, timers::task_timer::TaskTimer};

    #[test]
    fn the_list_of_owners_is_swept_as_it_grows() {
        let driver = Arc::new(Driver::new());
        let other = || TaskTimer::on(driver.clone(), |()| (), None);
        let _lives = other();
        for _ in 0..1000 {
            drop(other());
        }
        // One owner lives; too few are gone to make a sweep worth it.
        let owners = driver.shared.owners.lock();
        assert!(owners.all.len() <= 20, "{} owners", owners.all.len());
        assert!(owners.arrivals.len() <= 20, "{}", owners.arrivals.len());
    }
}
