//! A follower: fetches from the leader at its own pace and appends to its own logs.
//!
//! As in Kafka, a fetch says two things: give me what comes after this offset, and I have
//! everything before it. So a record is acknowledged when the slowest follower in the set fetches
//! the next time.

use std::time::Duration;

use crate::in_sync::{HighWatermark, Replica};
use crate::partition::{Cluster, PartitionKey};
use crate::plan::Stall;
use crate::produce::{ProducePurgatory, high_watermark_advanced};
use crate::record::Record;
use crate::stop::Stop;
use crate::time::Clock;

/// The most records that one fetch of one partition brings.
const FETCH_MAX: usize = 16 * 1024;

/// One following thread's part.
#[derive(Debug)]
pub struct Follower<'run> {
    /// Which one it is.
    pub replica: Replica,
    /// The topic, with its leader's logs and this follower's own.
    pub cluster: &'run Cluster,
    /// The run's clock.
    pub clock: Clock,
    /// The pause between two rounds of fetches.
    pub lag: Duration,
    /// When it does not fetch at all.
    pub stall: Option<Stall>,
}

impl Follower<'_> {
    /// Fetches round after round until `stop` is raised.
    pub fn run(self, purgatory: &ProducePurgatory, stop: &Stop) {
        let mut fetched = Vec::new();
        loop {
            let pause = match self.stalled_for(self.clock.now()) {
                Some(rest) => rest,
                None => {
                    self.round(&mut fetched, |key| {
                        high_watermark_advanced(purgatory, self.cluster, key);
                    });
                    self.lag
                }
            };
            if stop.pause(pause) {
                return;
            }
        }
    }

    /// Fetches every partition once. The event goes out after the high watermark has moved, with no
    /// lock held.
    fn round(&self, fetched: &mut Vec<Record>, event: impl Fn(PartitionKey)) {
        for (key, partition) in self.cluster.iter() {
            let Some(log) = partition.follower_log(self.replica) else {
                return;
            };
            fetched.clear();
            let moved =
                partition.fetch(self.replica, log.end(), self.clock.now(), FETCH_MAX, fetched);
            if moved == HighWatermark::Advanced {
                event(key);
            }
            log.append(fetched);
        }
    }

    fn stalled_for(&self, now: Duration) -> Option<Duration> {
        self.stall.filter(|stall| stall.follower == self.replica)?.left(now)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::record::RecordId;

    fn follower(number: usize, cluster: &Cluster, stall: Option<Stall>) -> Follower<'_> {
        let (replica, clock) = (Replica::follower(number), Clock::start());
        Follower { replica, cluster, clock, lag: Duration::ZERO, stall }
    }

    #[test]
    fn the_round_after_the_one_that_fetched_raises_the_event_once() {
        let cluster = Cluster::new(2, None, Duration::ZERO);
        let _ =
            cluster.partition(PartitionKey(1)).append(Record { id: RecordId::new(0, 0), line: 0 });
        let events = RefCell::new(Vec::new());
        let mut fetched = Vec::new();
        for round in 1..=3 {
            for number in [1, 2] {
                follower(number, &cluster, None)
                    .round(&mut fetched, |key| events.borrow_mut().push((round, number, key.0)));
            }
        }
        assert_eq!(*events.borrow(), [(2, 2, 1)]);
    }

    #[test]
    fn a_stall_covers_one_follower_for_a_part_of_the_run() {
        let ms = Duration::from_millis;
        let cluster = Cluster::new(1, None, Duration::ZERO);
        let stall = Some(Stall { follower: Replica::follower(2), from: ms(10), until: ms(30) });
        let two = follower(2, &cluster, stall);
        let rests = [9, 10, 25, 30].map(|at| two.stalled_for(ms(at)));
        assert_eq!(rests, [None, Some(ms(20)), Some(ms(5)), None]);
        assert_eq!(follower(1, &cluster, stall).stalled_for(ms(20)), None);
    }
}
