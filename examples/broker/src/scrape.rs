//! Serves Prometheus metrics, and beside them the live page.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use axum::{http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use purgatory_live::Server;
use timer_core::{SystemTimer, TimeHistogram};

use crate::replica_manager::ReplicaManager;

/// The exposition format, as Prometheus wants it named.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Installs a recorder and serves it at `/metrics` of the address, with the live page at `/`.
pub(crate) fn serve(
    address: SocketAddr,
    manager: &Arc<ReplicaManager>,
    timer: &SystemTimer,
) -> anyhow::Result<Server> {
    let live = manager.live().timer(timer);
    let recorder =
        PrometheusBuilder::new().set_buckets(TimeHistogram::BOUNDS_S)?.install_recorder()?;
    manager.publish(); // from now on it times the waits
    let (manager, timer) = (Arc::clone(manager), timer.clone());
    // The server's one thread runs this: two at once would publish while the other drains the
    // histograms.
    let scrape = async move || {
        manager.publish();
        timer.publish();
        ([(CONTENT_TYPE, TEXT_FORMAT)], recorder.render())
    };
    Server::start(address, live.router().route("/metrics", get(scrape)))
        .with_context(|| format!("cannot serve metrics at {address}"))
}
