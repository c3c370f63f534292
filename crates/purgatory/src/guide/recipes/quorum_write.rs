//! Writes that are committed when a majority of `N` replicas has them.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use purgatory::{RefusedReason, WaitFuture, Watermarks};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Replicas<const N: usize> {
    pub indices: [AtomicU64; N], // how far each replica has come
    pub committed: Watermarks<()>,
}

impl<const N: usize> Replicas<N> {
    /// A future of the committed index, once that is at least `index`.
    pub fn committed(&self, index: u64) -> WaitFuture<u64> {
        self.committed.wait_for(&(), index, TIMEOUT)
    }

    pub fn acknowledge(&self, replica: usize, index: u64) -> Result<usize, RefusedReason> {
        self.indices[replica].fetch_max(index, SeqCst);
        let mut indices = self.indices.each_ref().map(|index| index.load(SeqCst));
        indices.sort_unstable();
        // A majority has come at least as far as the median, the lower one of an even number.
        self.committed.advance(&(), indices[(N - 1) / 2])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let committed = Watermarks::new("committed")?;
    let replicas = Replicas {
        indices: [5, 0, 0].map(AtomicU64::new),
        committed,
    };
    let write = replicas.committed(5); // the leader has written it
    assert_eq!(replicas.acknowledge(1, 3)?, 0); // 3 is committed
    assert_eq!(replicas.acknowledge(2, 6)?, 1); // 5 is
    assert_eq!(replicas.acknowledge(1, 2)?, 0); // late
    assert_eq!(write.wait_blocking(), Ok(5));
    Ok(())
}
