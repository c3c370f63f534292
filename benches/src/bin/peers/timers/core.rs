//! A data structure of timers that can be turned without a clock: a [`Core`].

/// Ordered timers without clock, lock or thread: time is told in ticks.
pub(crate) trait Core: Default {
    const NAME: &'static str;

    fn insert(&mut self, deadline: u64, id: u64);

    /// Hands over every timer due at `now`.
    fn advance(&mut self, now: u64, sink: impl FnMut(u64));
}
