//! Fetches over several partitions that wait for enough bytes, but not for ever.

use std::{
    iter::zip,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{BoxedOperation, Purgatory, WaitError, Watches};

pub struct Logs {
    pub ends: Arc<Vec<AtomicU64>>, // in bytes, by partition
    pub fetches: Purgatory<usize, BoxedOperation>,
}

impl Logs {
    /// How many bytes there are beyond these positions: `min_bytes` or more, or what there is after
    /// `max_wait`.
    pub fn fetch(
        &self,
        positions: &[u64],
        min_bytes: u64,
        max_wait: Duration,
    ) -> impl Future<Output = Result<u64, WaitError>> + use<> {
        let next_bytes = positions.iter().map(|position| position + 1).enumerate();
        let next_bytes: Vec<(usize, u64)> = next_bytes.collect();
        let (ends, positions) = (self.ends.clone(), positions.to_vec());
        let bytes = move || -> u64 {
            let beyond = zip(&*ends, &positions);
            beyond
                .map(|(end, position)| end.load(SeqCst).saturating_sub(*position))
                .sum()
        };
        let now = bytes.clone();
        let enough = move || Some(bytes()).filter(|&bytes| bytes >= min_bytes);
        let wait = self
            .fetches
            .wait(Watches::up_to(&next_bytes).checked(), max_wait, enough);
        async move {
            match wait.await {
                Err(WaitError::Expired) => Ok(now()),
                ended => ended,
            }
        }
    }

    pub fn append(&self, partition: usize, bytes: u64) -> usize {
        let end = self.ends[partition].fetch_add(bytes, SeqCst) + bytes;
        self.fetches.complete_up_to(&partition, end)
    }
}
