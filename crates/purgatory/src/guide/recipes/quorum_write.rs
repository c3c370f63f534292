// Writes that are committed when a majority of the replicas has them.

use std::time::Duration;

use purgatory::{WaitError, ReplicaSets, Rule, WaitFuture};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Replicas {
    pub indices: ReplicaSets<(), usize>, // how far each replica has come
}

impl Replicas {
    /// A leader begins its term with these replicas. Its log ends at `log_end`; the others report
    /// how much of it they have. Entries of earlier terms are committed with the first entry of its
    /// own.
    pub fn lead(&self, term: u64, replicas: &[usize], log_end: u64) -> Result<usize, WaitError> {
        let replicas = replicas.iter().map(|&replica| (replica, 0));
        let rule = Rule::majority();
        self.indices.set(&(), term, replicas, log_end, rule)
    }

    /// A future of the committed index, once that is at least `index`, an entry of this term.
    pub fn committed(&self, term: u64, index: u64) -> WaitFuture<u64> {
        self.indices.in_epoch(&(), term).wait_for(index, TIMEOUT)
    }

    pub fn acknowledge(
        &self,
        term: u64,
        replica: usize,
        index: u64,
    ) -> Result<usize, WaitError> {
        self.indices.in_epoch(&(), term).report(&replica, index)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let replicas = Replicas {
        indices: ReplicaSets::new("committed")?,
    };
    replicas.lead(1, &[0, 1, 2], 0)?;
    let write = replicas.committed(1, 5);
    assert_eq!(replicas.acknowledge(1, 0, 5)?, 0); // the leader has written it
    assert_eq!(replicas.acknowledge(1, 1, 3)?, 0); // 3 is committed
    assert_eq!(replicas.acknowledge(1, 2, 6)?, 1); // 5 is committed
    assert_eq!(write.wait_blocking(), Ok(5));
    replicas.lead(2, &[0, 1, 2], 6)?; // the third one is elected
    assert!(replicas.acknowledge(1, 0, 7).is_err()); // late
    assert_eq!(replicas.indices.watermark(&()), Some(5)); // 5 stays committed
    Ok(())
}
