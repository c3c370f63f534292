//! How much is measured: in full, quickly, and as little as a test needs.

use std::time::Duration;

/// The sizes of one run. `1m` and `100k` in the measures' names are these two, whatever their size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Rounds of the rows that take CPU time, and of those that take real time.
    pub(crate) rounds: usize,
    pub(crate) real_time_rounds: usize,
    /// Of the rows whose threads contend in a fast mode or a slow one, and each round in one.
    pub(crate) short_rounds: usize,
    /// Operations a round and thread, and calls of a primitive for a floor.
    pub(crate) operations: usize,
    pub(crate) hundred_k: usize,
    pub(crate) one_m: usize,
    /// Over which `one_m` timers fall due in `lateness-1m-per-s`; and how long a row waits for the
    /// first timer while it schedules the rest, doubled if too short.
    pub(crate) window: Duration,
    /// Events on one key.
    pub(crate) hot_events: u64,
    /// How long an idle process is watched.
    pub(crate) idle: Duration,
    /// Wake-ups for a floor.
    pub(crate) wake_ups: usize,
}

impl Sizes {
    pub(crate) const FULL: Sizes = Sizes {
        rounds: 7,
        real_time_rounds: 5,
        short_rounds: 15,
        operations: 200_000,
        hundred_k: 100_000,
        one_m: 1_000_000,
        window: Duration::from_secs(1),
        hot_events: 100,
        idle: Duration::from_secs(1),
        wake_ups: 400,
    };

    pub(crate) const QUICK: Sizes = Sizes {
        rounds: 3,
        real_time_rounds: 1,
        short_rounds: 9,
        operations: 30_000,
        hundred_k: 20_000,
        one_m: 100_000,
        window: Duration::from_millis(250),
        hot_events: 20,
        idle: Duration::from_millis(500),
        wake_ups: 100,
    };

    #[cfg(test)]
    pub(crate) const TINY: Sizes = Sizes {
        rounds: 2,
        operations: 50,
        hundred_k: 20,
        one_m: 300,
        window: Duration::from_millis(20),
        idle: Duration::from_millis(5),
        wake_ups: 2,
        ..Sizes::QUICK
    };
}
