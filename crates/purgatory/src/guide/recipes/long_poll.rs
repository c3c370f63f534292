// Fetches over several partitions that wait for enough bytes, but not for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{Purgatory, WaitError};

pub struct Logs {
    pub ends: Arc<Vec<AtomicU64>>, // in bytes, by partition
    pub fetches: Purgatory<usize>,
}

impl Logs {
    /// Returns the number of bytes beyond these positions: at least `min_bytes`, or the number
    /// after `max_wait`.
    pub fn fetch(
        &self,
        positions: &[u64],
        min_bytes: u64,
        max_wait: Duration,
    ) -> impl Future<Output = Result<u64, WaitError>> + use<> {
        // Each partition is watched: any of them may bring the last byte needed.
        let partitions: Vec<usize> = (0..positions.len()).collect();

        let ends = self.ends.clone();
        let positions = positions.to_vec();
        let bytes = move || bytes_beyond(&ends, &positions);
        let bytes_now = bytes.clone();
        let enough = move || Some(bytes()).filter(|&bytes| bytes >= min_bytes);

        let wait = self.fetches.wait(&partitions, max_wait, enough);
        async move {
            match wait.await {
                Err(WaitError::Expired) => Ok(bytes_now()),
                ended => ended,
            }
        }
    }

    pub fn append(&self, partition: usize, bytes: u64) -> usize {
        self.ends[partition].fetch_add(bytes, SeqCst); // the condition first ...
        self.fetches.check_and_complete(&partition) // ... then its event
    }
}

fn bytes_beyond(ends: &[AtomicU64], positions: &[u64]) -> u64 {
    let mut bytes = 0;
    for (end, position) in ends.iter().zip(positions) {
        bytes += end.load(SeqCst).saturating_sub(*position);
    }
    bytes
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ends = Arc::new([100, 40].map(AtomicU64::new).into());
    let logs = Logs {
        ends,
        fetches: Purgatory::new("fetch")?,
    };
    let bytes = logs.fetch(&[100, 40], 64, Duration::from_secs(30));
    assert_eq!(logs.append(0, 50), 0); // 50 of 64
    assert_eq!(logs.append(1, 14), 1);
    assert_eq!(bytes.await, Ok(64));
    Ok(())
}
