//! The interface of a timer algorithm: [`Scheme`].

use std::fmt::Debug;

/// The value that a timer yields when it fires.
pub(crate) type Task = u64;

/// A timer algorithm. Time is in ticks, and begins at 0.
///
/// `Default` creates the algorithm as it is measured: for ticks of a second and delays below a day.
pub(crate) trait Scheme: Default {
    /// The name in the output.
    const NAME: &'static str;
    /// The cost with `n` pending timers, according to the literature.
    const CLAIM: Claim;
    /// The largest number of pending timers that can be started in 10 s.
    const STARTS_MAX: usize = usize::MAX;
    /// The largest number of pending timers that can fire in 10 s.
    const EXPIRES_MAX: usize = usize::MAX;
    /// Names a timer; never reused.
    type Handle: Copy + Debug;

    /// Starts a timer that fires on the `delay`-th tick from now. The present tick is over, so a
    /// delay of 0 counts as 1. A deadline beyond `u64::MAX` counts as `u64::MAX`.
    ///
    /// # Errors
    /// When the delay is too long for the scheme.
    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<Self::Handle>;

    /// Stops a timer; false if it has fired or was stopped before.
    fn stop(&mut self, handle: Self::Handle) -> bool;

    /// Advances by one tick and adds due tasks to `fired`. A scheme implements this method or
    /// [`advance`](Self::advance).
    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.advance(1, fired);
    }

    /// Advances by `ticks` and adds due tasks to `fired` in order of deadline. A scheme that knows
    /// its next deadline skips the ticks before it.
    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        for _ in 0..ticks {
            self.tick(fired);
        }
    }

    /// Returns the number of pending timers.
    fn pending(&self) -> usize;
}

/// The claimed cost of each measure: a start, a stop, a tick in which nothing is due or handed
/// down, and the expiry of one timer, start included and empty ticks excluded.
pub(crate) type Claim = [&'static str; 4];
