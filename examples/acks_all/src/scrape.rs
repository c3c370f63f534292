//! Serves Prometheus metrics, the purgatory's own and a few of this example, and beside them the
//! live page.

use std::fmt::Display;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use purgatory_live::{Live, Server};
use timer_core::TimeHistogram;

use crate::books::Counts;
use crate::run::Stage;
use crate::snapshot::State;

/// The exposition format, as Prometheus wants it named.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";
const IN_SYNC: &str = "acks_all_in_sync_replicas";
const LAG: &str = "acks_all_follower_lag_records";

/// Installs a recorder and serves it at `/metrics` of the address, with the live page at `/`. Each
/// scrape publishes first, so what it reads is as it is then.
///
/// # Errors
/// When the address cannot be had, or the program has a recorder already.
pub fn serve(address: SocketAddr, stage: &Stage) -> Result<Server> {
    let live = Live::new().purgatory_with(&stage.purgatory, Display::fmt);
    let recorder =
        PrometheusBuilder::new().set_buckets(TimeHistogram::BOUNDS_S)?.install_recorder()?;
    describe();
    stage.purgatory.publish(); // from now on it times the waits
    let stage = stage.clone();
    // The server's one thread runs this: two at once would publish while the other drains the
    // histograms.
    let scrape = async move || {
        stage.purgatory.publish();
        publish(&State::take(&stage.cluster, &stage.books));
        ([(CONTENT_TYPE, TEXT_FORMAT)], recorder.render())
    };
    Server::start(address, live.router().route("/metrics", get(scrape)))
        .with_context(|| format!("cannot serve metrics at {address}"))
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
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;
    use crate::args::Args;
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

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let stage = Stage::new(&Args::parse_from(["acks_all"])).unwrap();
        let said = format!("{:#}", serve(address, &stage).unwrap_err());
        assert!(said.contains(&format!("cannot serve metrics at {address}: ")), "{said}");
    }
}
