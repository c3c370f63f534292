//! Amounts of work: a full run, a quick one, and the smallest that shows that every row runs.

use std::time::Duration;

/// The sizes of one run. `1m` and `100k` in measures' names are `one_m` and `hundred_k`, whatever
/// their values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    /// Operations per round and thread.
    pub(crate) operations: usize,
    pub(crate) hundred_k: usize,
    pub(crate) one_m: usize,
    /// The time over which `one_m` timers fall due. It is also the lead before the first timer, in
    /// which all are scheduled, doubled while it is too short.
    pub(crate) window: Duration,
    /// Requests that wait under the hot key.
    pub(crate) hot: usize,
    /// The shortest time that is observed, with four scrapes meanwhile.
    pub(crate) observed: Duration,
}

impl Sizes {
    pub(crate) const FULL: Sizes = Sizes {
        rounds: 7,
        operations: 200_000,
        hundred_k: 100_000,
        one_m: 1_000_000,
        window: Duration::from_secs(1),
        hot: 10_000,
        observed: Duration::from_secs(1),
    };

    pub(crate) const QUICK: Sizes = Sizes {
        rounds: 1,
        operations: 20_000,
        hundred_k: 10_000,
        one_m: 100_000,
        window: Duration::from_millis(250),
        ..Sizes::FULL
    };

    pub(crate) const SMOKE: Sizes = Sizes {
        rounds: 2,
        operations: 50,
        hundred_k: 20,
        one_m: 300,
        window: Duration::from_millis(20),
        hot: 20,
        observed: Duration::from_millis(1),
    };
}
