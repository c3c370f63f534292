//! Writes that are committed when a majority of `N` replicas has them.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use purgatory::{RefusedReason, WaitFuture, Watermarks};

pub struct Replicas<const N: usize> {
    pub indices: [AtomicU64; N], // how far each has come
    pub committed: Watermarks<()>,
}

impl<const N: usize> Replicas<N> {
    /// A future of the committed index, once that is at least `index`.
    pub fn committed(&self, index: u64) -> WaitFuture<u64> {
        self.committed.wait_for(&(), index, Duration::from_secs(30))
    }

    pub fn acknowledge(&self, replica: usize, index: u64) -> Result<usize, RefusedReason> {
        self.indices[replica].fetch_max(index, SeqCst);
        let mut indices = self.indices.each_ref().map(|index| index.load(SeqCst));
        indices.sort_unstable();
        self.committed.advance(&(), indices[(N - 1) / 2]) // a majority has come so far
    }
}
