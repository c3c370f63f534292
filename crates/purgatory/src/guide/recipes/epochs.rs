// Log ends of topics that may be deleted and made again, and whose leader may cut the log back.

use std::time::Duration;

use purgatory::{WaitError, WaitFuture, Watermarks};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Topics {
    pub ends: Watermarks<String>,
}

impl Topics {
    /// Makes a topic, under an epoch above all earlier ones. Fetches of an older topic of this name
    /// are cancelled; returns how many.
    pub fn create(&self, name: &str, epoch: u64) -> Result<usize, WaitError> {
        self.ends.begin_epoch(name, epoch, 0)
    }

    /// Begins the epoch of a new leader, whose log ends here. Fetches for more wait on: they take
    /// whatever record is appended there. (A produce does not: see `acks_all`.)
    pub fn lead(&self, name: &str, epoch: u64, end: u64) -> Result<usize, WaitError> {
        self.ends.begin_epoch_and_keep(name, epoch, end)
    }

    /// Cancels the fetches of the topic; returns how many.
    pub fn delete(&self, name: &str) -> usize {
        self.ends.remove(name)
    }

    pub fn fetch(&self, name: &str, offset: u64) -> WaitFuture<u64> {
        self.ends.wait_for(name, offset, TIMEOUT)
    }

    /// Returns false if the epoch is over: the append is an old leader's, or of a topic that was
    /// deleted.
    pub fn append(&self, name: &str, epoch: u64, end: u64) -> Result<bool, WaitError> {
        match self.ends.in_epoch(name, epoch).advance(end) {
            Ok(_) => Ok(true),
            Err(WaitError::OtherEpoch { .. }) => Ok(false),
            Err(refused) => Err(refused),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topics = Topics {
        ends: Watermarks::new("ends")?,
    };
    topics.create("orders", 1)?;
    topics.append("orders", 1, 100)?;
    topics.lead("orders", 2, 80)?; // the new leader has no more
    let fetch = topics.fetch("orders", 90);
    assert!(!topics.append("orders", 1, 101)?); // late
    assert!(topics.append("orders", 2, 90)?);
    assert_eq!(fetch.wait_blocking(), Ok(90));
    Ok(())
}
