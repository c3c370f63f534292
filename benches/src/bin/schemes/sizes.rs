//! How much is measured: in full, quickly, and as little as a test needs.

use std::time::Duration;

use crate::trial::Plan;

/// The sizes of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) name: &'static str,
    /// How many timers are pending.
    pub(crate) pending: &'static [usize],
    pub(crate) rounds: usize,
    operations: usize,
    sample: Duration,
    patience: Duration,
}

impl Sizes {
    pub(crate) const FULL: Sizes = Sizes {
        name: "full",
        pending: &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        rounds: 5,
        operations: 50_000,
        sample: Duration::from_millis(500),
        patience: Duration::from_secs(10),
    };

    pub(crate) const QUICK: Sizes = Sizes {
        name: "quick",
        pending: Sizes::FULL.pending,
        rounds: 3,
        operations: 5_000,
        sample: Duration::from_millis(50),
        patience: Duration::from_secs(1),
    };

    #[cfg(test)]
    pub(crate) const TINY: Sizes = Sizes {
        name: "tiny",
        pending: &[10, 40],
        rounds: 2,
        operations: 20,
        sample: Duration::from_secs(60),
        patience: Duration::from_secs(60),
    };

    /// What to do in a round.
    pub(crate) fn plan(&self, pending: usize, round: usize, expire: bool) -> Plan {
        let Sizes { operations, sample, patience, .. } = *self;
        Plan { pending, seed: round as u64, operations, sample, patience, expire }
    }
}
