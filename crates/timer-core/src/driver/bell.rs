//! `Bell`: how wheels tell their timer that one of them has work earlier than it knows of.

use std::sync::{Arc, atomic};

use crate::{
    driver::wake::Wake,
    sync::{AtomicU64, Ordering},
};

/// How wheels tell their timer that one of them has work earlier than it knows of: made by
/// [`Driver::bell`](crate::driver::Driver::bell), rung by [`Shards`](crate::driver::Shards).
#[derive(Debug)]
pub struct Bell {
    /// A bit for each shard, 64 a word.
    rung: Box<[AtomicU64]>,
    shard_count: usize,
    reaper: Option<Wake>,
    /// The timer's: what wheels that are gone had cancelled.
    cancelled_count: Arc<atomic::AtomicU64>,
}

impl Bell {
    /// A bell of so many shards that wakes `reaper`, or nobody; wheels that are dropped leave to
    /// `cancelled_count` how many tasks were cancelled on them.
    pub(crate) fn new(
        shard_count: usize,
        reaper: Option<Wake>,
        cancelled_count: Arc<atomic::AtomicU64>,
    ) -> Self {
        let words = std::iter::repeat_with(|| AtomicU64::new(0)).take(shard_count.div_ceil(64));
        Bell { rung: words.collect(), shard_count, reaper, cancelled_count }
    }

    /// How many shards it is for.
    pub fn shard_count(&self) -> usize {
        self.shard_count
    }

    pub(crate) fn ring(&self, shard: usize) {
        self.rung[shard / 64].fetch_or(1 << (shard % 64), Ordering::Release);
        if let Some(reaper) = &self.reaper {
            reaper.wake();
        }
    }

    /// Of 64 shards, those that were rung since the last call, a bit each.
    pub(crate) fn take(&self, word: usize) -> u64 {
        self.rung[word].swap(0, Ordering::Acquire)
    }

    /// Wheels are dropped on which so many tasks had been cancelled.
    pub(crate) fn leave_cancelled(&self, count: u64) {
        self.cancelled_count.fetch_add(count, atomic::Ordering::Relaxed);
    }
}
