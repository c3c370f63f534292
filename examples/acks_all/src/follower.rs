//! A follower: fetches from the leader at its own pace and appends to its own logs.
//!
//! As in Kafka, a fetch says two things: give me what comes after this offset, and I have
//! everything before it. So a record is acknowledged when the slowest follower in the set fetches
//! the next time.

use std::time::Duration;

use crate::args::Stall;
use crate::log::Record;
use crate::partition::Cluster;
use crate::produce::ProducePurgatory;
use crate::time::Clock;
use example_support::Stop;

/// The most records that one fetch of one partition brings.
const FETCH_MAX: usize = 16 * 1024;

/// One following thread's part.
#[derive(Debug)]
pub struct Follower<'run> {
    /// Which one it is.
    pub number: usize,
    /// The topic, with its leader's logs and this follower's own.
    pub cluster: &'run Cluster,
    /// The run's clock.
    pub clock: Clock,
    /// The pause between two rounds of fetches.
    pub lag: Duration,
    /// When one follower does not fetch at all.
    pub stall: Option<Stall>,
}

impl Follower<'_> {
    /// Fetches round after round until `stop` is raised.
    pub fn run(self, purgatory: &ProducePurgatory, stop: &Stop) {
        let stall = self.stall.filter(|stall| stall.follower == self.number);
        let mut fetched = Vec::new();
        loop {
            let pause = match stall.and_then(|stall| stall.left(self.clock.now())) {
                Some(rest) => rest,
                None => {
                    self.round(&mut fetched, purgatory);
                    self.lag
                }
            };
            if stop.pause(pause) {
                return;
            }
        }
    }

    /// Fetches every partition once. The event goes out after the high watermark has moved, with no
    /// lock held: it completes the produces that are reached, and looks at no other.
    fn round(&self, fetched: &mut Vec<Record>, purgatory: &ProducePurgatory) {
        for (key, partition) in self.cluster.iter() {
            let log = &partition.followers()[self.number];
            fetched.clear();
            let now = self.clock.now();
            if let Some(offset) = partition.fetch(self.number, log.end(), now, FETCH_MAX, fetched) {
                purgatory.complete_up_to(&key, offset);
            }
            log.append(fetched);
        }
    }
}
