//! The metrics: the purgatory's own, and a few of this example.

use std::fmt::Display;
use std::net::SocketAddr;

use anyhow::Result;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use purgatory_live::{Live, Server};

use crate::books::Counts;
use crate::run::Stage;
use crate::snapshot::State;

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";
const IN_SYNC: &str = "acks_all_in_sync_replicas";
const LAG: &str = "acks_all_follower_lag_records";

/// Serves them, and the live page.
///
/// # Errors
/// When the address cannot be had, or the program has a recorder already.
pub fn serve(address: SocketAddr, stage: &Stage) -> Result<Server> {
    let live = Live::new().purgatory_with(&stage.purgatory, Display::fmt);
    let stage = stage.clone();
    let server = example_support::serve(address, &live, move || {
        stage.purgatory.publish();
        publish(&State::take(&stage.cluster, &stage.books));
    })?;
    describe();
    Ok(server)
}

fn describe() {
    describe_counter!(PRODUCED, Unit::Count, "Records that the producers have sent");
    describe_counter!(ENDED, Unit::Count, "Records whose produce has ended, by outcome");
    describe_gauge!(IN_SYNC, Unit::Count, "Replicas in sync, in the partition that has the fewest");
    let lag = "Records that a follower is behind the leader, over all partitions";
    describe_gauge!(LAG, Unit::Count, lag);
}

/// Publishes this example's own metrics.
fn publish(state: &State) {
    counter!(PRODUCED).absolute(state.produced);
    let Counts { completed, expired, cancelled, .. } = state.ended;
    let outcomes = [("completed", completed), ("expired", expired), ("cancelled", cancelled)];
    for (outcome, count) in outcomes {
        counter!(ENDED, "outcome" => outcome).absolute(count);
    }
    gauge!(IN_SYNC).set(state.in_sync_min as f64);
    for (follower, lag) in state.lag.into_iter().enumerate() {
        gauge!(LAG, "follower" => (follower + 1).to_string()).set(lag as f64);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::in_sync::REPLICAS;

    #[test]
    fn every_metric_is_described_and_has_its_value() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let ended = Counts { expired: 3, ..Counts::default() };
        let state = State { produced: 7, ended, in_sync_min: REPLICAS, lag: [0, 4] };
        metrics::with_local_recorder(&recorder, || {
            describe();
            publish(&state);
        });
        let page = recorder.handle().render();
        for line in [
            "acks_all_records_produced_total 7",
            "acks_all_records_ended_total{outcome=\"expired\"} 3",
            "acks_all_in_sync_replicas 3",
            "acks_all_follower_lag_records{follower=\"2\"} 4",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        for name in [PRODUCED, ENDED, IN_SYNC, LAG] {
            let help = format!("# HELP {name} ");
            assert!(page.contains(&help), "{name} is not described in\n{page}");
        }
    }
}
