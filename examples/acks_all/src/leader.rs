//! The leader's own thread: takes lagging followers out of the in-sync sets, and has the logs
//! audited.

use std::time::Duration;

use crate::audit::Audit;
use crate::books::Books;
use crate::in_sync::HighWatermark;
use crate::partition::{Cluster, PartitionKey};
use crate::produce::{ProducePurgatory, high_watermark_advanced};
use crate::stop::Stop;
use crate::time::Clock;

/// The longest time between two rounds: it bounds how much of the logs waits for the audit.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// The leading thread's part.
#[derive(Debug)]
pub struct Leader<'run> {
    /// The topic.
    pub cluster: &'run Cluster,
    /// The run's books.
    pub books: &'run Books,
    /// The run's clock.
    pub clock: Clock,
    /// When a follower counts as lagging; never, without it.
    pub isr_shrink_after: Option<Duration>,
}

impl Leader<'_> {
    /// Makes its rounds until `stop` is raised; returns the audit for its last pass.
    pub fn run(self, purgatory: &ProducePurgatory, stop: &Stop) -> Audit {
        let mut audit = Audit::new(self.cluster);
        // Like Kafka: looking every half of the bound finds a laggard after one and a half of it at
        // the latest.
        let pause = self.isr_shrink_after.map_or(ROUND_MAX, |after| ROUND_MAX.min(after / 2));
        while !stop.pause(pause) {
            if self.isr_shrink_after.is_some() {
                self.shrink(self.clock.now(), |key| {
                    high_watermark_advanced(purgatory, self.cluster, key);
                });
            }
            audit.pass(self.cluster, self.books);
        }
        audit
    }

    fn shrink(&self, now: Duration, event: impl Fn(PartitionKey)) {
        for (key, partition) in self.cluster.iter() {
            if partition.shrink(now) == HighWatermark::Advanced {
                event(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::record::{Record, RecordId};

    #[test]
    fn a_smaller_set_that_moves_the_high_watermark_raises_the_event() {
        let after = Some(Duration::from_millis(10));
        let (cluster, books) = (Cluster::new(2, after, Duration::ZERO), Books::new(1, 2));
        let _ =
            cluster.partition(PartitionKey(0)).append(Record { id: RecordId::new(0, 0), line: 0 });
        let leader = Leader {
            cluster: &cluster,
            books: &books,
            clock: Clock::start(),
            isr_shrink_after: after,
        };
        let events = RefCell::new(Vec::new());
        for at in [10, 11, 12] {
            leader.shrink(Duration::from_millis(at), |key| events.borrow_mut().push((at, key)));
        }
        assert_eq!(*events.borrow(), [(11, PartitionKey(0))]);
    }
}
