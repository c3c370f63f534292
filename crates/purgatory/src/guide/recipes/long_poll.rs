//! Fetches over several partitions that wait for enough bytes, but not for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{Purgatory, WaitError, Watches};

pub struct Logs {
    pub ends: Arc<Vec<AtomicU64>>, // in bytes, by partition
    pub fetches: Purgatory<usize>,
}

impl Logs {
    /// The number of bytes beyond these positions: at least `min_bytes`, or what there is after
    /// `max_wait`.
    pub fn fetch(
        &self,
        positions: &[u64],
        min_bytes: u64,
        max_wait: Duration,
    ) -> impl Future<Output = Result<u64, WaitError>> + use<> {
        // A partition is watched from its first new byte on: any of them may be the last needed.
        let next_bytes: Vec<(usize, u64)> = positions
            .iter()
            .map(|position| position.saturating_add(1))
            .enumerate()
            .collect();
        let watches = Watches::up_to(&next_bytes).checked();

        let ends = self.ends.clone();
        let positions = positions.to_vec();
        let bytes = move || bytes_beyond(&ends, &positions);
        let bytes_now = bytes.clone();
        let enough = move || Some(bytes()).filter(|&bytes| bytes >= min_bytes);

        let wait = self.fetches.wait(watches, max_wait, enough);
        async move {
            match wait.await {
                Err(WaitError::Expired) => Ok(bytes_now()),
                ended => ended,
            }
        }
    }

    pub fn append(&self, partition: usize, bytes: u64) -> usize {
        let end = self.ends[partition].fetch_add(bytes, SeqCst) + bytes; // the condition first ...
        self.fetches.complete_up_to(&partition, end) // ... then its event
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
    assert_eq!(logs.append(0, 50), 0); // checked: 50 of 64
    assert_eq!(logs.append(1, 14), 1);
    assert_eq!(bytes.await, Ok(64));
    Ok(())
}
