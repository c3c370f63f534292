//! Serves Prometheus metrics: the purgatory's own, and a few of this example.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder};

use crate::in_sync::Replica;
use crate::snapshot::Snapshot;

/// How often a port that was free a moment ago may turn out to be taken.
const ATTEMPTS: usize = 16;

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";
const IN_SYNC: &str = "acks_all_in_sync_replicas";
const LAG: &str = "acks_all_follower_lag_records";

/// Installs the recorder and serves it at `address`; returns where. Port 0 stands for a free one: the exporter does not
/// tell which port it was given, so one is found first, and another if it is gone by then.
pub fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let any_port = address.port() == 0;
    for _ in 0..ATTEMPTS {
        let address = if any_port { free_port(address)? } else { address };
        match PrometheusBuilder::new().with_http_listener(address).install() {
            Ok(()) => {
                describe();
                return Ok(address);
            }
            Err(BuildError::FailedToCreateHTTPListener(_)) if any_port => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot serve metrics at {address}"));
            }
        }
    }
    bail!(
        "cannot serve metrics at {address}: {ATTEMPTS} free ports were taken before they could be used"
    )
}

fn free_port(address: SocketAddr) -> Result<SocketAddr> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))?;
    Ok(listener.local_addr()?)
}

fn describe() {
    describe_counter!(PRODUCED, Unit::Count, "Records that the producers have sent");
    describe_counter!(ENDED, Unit::Count, "Records whose produce has ended, by outcome");
    describe_gauge!(IN_SYNC, Unit::Count, "Replicas in sync, in the partition that has the fewest");
    describe_gauge!(
        LAG,
        Unit::Count,
        "Records that a follower is behind the leader, over all partitions"
    );
}

/// Publishes this example's own metrics.
pub fn publish(snapshot: &Snapshot) {
    counter!(PRODUCED).absolute(snapshot.produced);
    let outcomes = [
        ("completed", snapshot.completed),
        ("expired", snapshot.expired),
        ("cancelled", snapshot.cancelled),
    ];
    for (outcome, count) in outcomes {
        counter!(ENDED, "outcome" => outcome).absolute(count);
    }
    gauge!(IN_SYNC).set(snapshot.in_sync_min as f64);
    for (follower, lag) in Replica::followers().zip(snapshot.lag) {
        gauge!(LAG, "follower" => follower.number().to_string()).set(lag as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::books::Books;
    use crate::partition::Cluster;
    use crate::snapshot::Phase;

    #[test]
    fn every_metric_is_described_and_has_its_value() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (cluster, books) = (Cluster::new(1, None, Duration::ZERO), Books::new(1, 1));
        let mut snapshot =
            Snapshot::take(Phase::Producing, Duration::ZERO, Duration::ZERO, &cluster, &books);
        (snapshot.produced, snapshot.expired, snapshot.lag) = (7, 3, [0, 4]);
        metrics::with_local_recorder(&recorder, || {
            describe();
            publish(&snapshot);
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
            assert!(
                page.contains(&format!("# HELP {name} ")),
                "{name} is not described in\n{page}"
            );
        }
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let said = format!("{:#}", serve(address).unwrap_err());
        assert!(said.contains(&format!("cannot serve metrics at {address}: ")), "{said}");
    }
}
