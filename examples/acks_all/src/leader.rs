//! The leader's own thread: takes lagging followers out of the in-sync sets, and has the logs
//! audited.

use std::time::Duration;

use crate::audit::Audit;
use crate::partition::Cluster;
use crate::produce::ProducePurgatory;
use crate::time::Clock;
use example_support::Stop;

/// The longest time between two rounds: it bounds how much of the logs waits for the audit.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// Makes its rounds until `stop` is raised.
pub fn run(
    cluster: &Cluster,
    clock: Clock,
    isr_shrink_after: Option<Duration>,
    purgatory: &ProducePurgatory,
    audit: &mut Audit,
    stop: &Stop,
) {
    // Like Kafka: looking every half of the bound finds a laggard after one and a half of it at the
    // latest.
    let pause = isr_shrink_after.map_or(ROUND_MAX, |after| ROUND_MAX.min(after / 2));
    while !stop.pause(pause) {
        for (key, partition) in cluster.iter() {
            if let Some(offset) = partition.shrink(clock.now()) {
                purgatory.complete_up_to(&key, offset);
            }
        }
        audit.pass(cluster);
    }
}
