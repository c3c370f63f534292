//! A pause of the program's own process (SIGSTOP, a debugger, a frozen container), and the grace
//! period after it.
//!
//! After a pause many deadlines have passed, while heartbeats that came in time still lie unread in
//! their sockets. The reaper would race the threads that read them. So with a grace the tasks that
//! are due wait for one more bound, the grace period. A `DelayQueue` has a grace of its own, for
//! values that its owner polls out beside a socket.

use std::time::Duration;

use crate::driver::clock::later_ns;

/// Notices rounds that come too late, or take too long: a pause lies between two reads of the
/// clock, and so between rounds or inside one. Pure: its caller reads the clock.
#[derive(Debug)]
pub(crate) struct Grace {
    /// `Duration::MAX` without a grace, as nothing is late then.
    bound: Duration,
    /// The moment at which the reaper meant to be back; during a round, the beginning of that
    /// round. `u64::MAX` while nothing is pending.
    planned_ns: u64,
    /// The end of the period under way.
    until_ns: Option<u64>,
    /// The number of periods that have begun.
    pub(super) count: u64,
}

impl Grace {
    /// Begins without a period: the reaper means to begin its first round at once. A bound of zero
    /// means no grace: every round would be late.
    pub(crate) fn new(bound: Option<Duration>, now_ns: u64) -> Self {
        let bound = bound.filter(|bound| !bound.is_zero());
        Grace {
            bound: bound.unwrap_or(Duration::MAX),
            planned_ns: now_ns,
            until_ns: None,
            count: 0,
        }
    }

    /// Returns true when there is a grace.
    pub(crate) fn is_on(&self) -> bool {
        self.bound < Duration::MAX
    }

    /// Returns the bound, which is also the length of a period.
    pub(crate) fn bound(&self) -> Duration {
        self.bound
    }

    /// Plans no round: nothing is pending.
    pub(super) fn plan_none(&mut self) {
        self.planned_ns = u64::MAX;
    }

    /// Ends a period that is under way or over: nothing waits for it any more. Returns false if
    /// there is none.
    pub(crate) fn end_period(&mut self) -> bool {
        self.until_ns.take().is_some()
    }

    /// Ends a round that leaves work pending, and plans the next, at most `bound` from now so that
    /// a pause of any task is noticed. Returns how long to sleep. A period begins if the round took
    /// longer than the bound: the process was paused inside it.
    pub(super) fn plan(&mut self, now_ns: u64, wait: Duration) -> Duration {
        self.begin_if_late(now_ns, self.planned_ns);
        let wait = wait.min(self.bound);
        self.planned_ns = later_ns(now_ns, wait);
        wait
    }

    /// Puts the next round off by `wait` after a panic of the clock, which is no pause. The round
    /// that panicked may have followed a call at `called_ns` (`u64::MAX` for none).
    pub(super) fn put_off(&mut self, called_ns: u64, wait: Duration) {
        self.planned_ns = later_ns(self.planned_ns.min(called_ns), wait);
    }

    /// Begins a round. Returns the rest of the grace period, which may begin with this round, if
    /// the wheels are not to be advanced yet. A call at `called_ns` (`u64::MAX` for none) meant the
    /// reaper to come at once.
    pub(super) fn begin_round(&mut self, now_ns: u64, called_ns: u64) -> Option<Duration> {
        // From here on the round's length counts, even if it panics before it plans the next.
        let planned_ns = std::mem::replace(&mut self.planned_ns, now_ns);
        self.rest(now_ns, planned_ns.min(called_ns))
    }

    /// Returns the rest of a period that is under way, or that begins now because the caller comes
    /// too long after `planned_ns`.
    pub(crate) fn rest(&mut self, now_ns: u64, planned_ns: u64) -> Option<Duration> {
        // 1. A period is under way, or over.
        if let Some(until_ns) = self.until_ns {
            if now_ns < until_ns {
                return Some(Duration::from_nanos(until_ns - now_ns));
            }
            // The period is over. Another one does not follow at once, however late the caller is:
            // each period is followed by a round that expires, so no load can put expiry off for
            // ever.
            self.until_ns = None;
            return None;
        }
        // 2. There is none: the caller is in time, or so late that one begins.
        self.begin_if_late(now_ns, planned_ns)
    }

    /// Begins a period, and returns its length, if the caller comes more than `bound` later than it
    /// meant to.
    fn begin_if_late(&mut self, now_ns: u64, planned_ns: u64) -> Option<Duration> {
        if now_ns <= later_ns(planned_ns, self.bound) {
            return None;
        }
        self.until_ns = Some(later_ns(now_ns, self.bound));
        self.count += 1;
        Some(self.bound)
    }
}
