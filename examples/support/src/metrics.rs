//! Serves Prometheus metrics and the live page.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::{http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use purgatory_live::{Live, Server};
use timer_core::TimeHistogram;

/// The content type of Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Installs a recorder and serves it at `/metrics` of the address, with the live page at `/`, until
/// the returned server is dropped. Each scrape publishes first, so it reads current values, and
/// records a point of the page's history, which a page that is opened later shows.
///
/// # Errors
/// When the address cannot be bound, or the program has a recorder already.
pub fn serve(
    address: SocketAddr,
    live: &Live,
    publish: impl Fn() + Clone + Send + Sync + 'static,
) -> Result<Server> {
    let mut exporter = PrometheusBuilder::new();
    for prefix in ["purgatory_", "timer_"] {
        let ours = Matcher::Prefix(prefix.into());
        exporter = exporter.set_buckets_for_metric(ours, TimeHistogram::COARSE_BOUNDS_S)?;
    }
    let recorder = exporter.install_recorder()?;
    // The first call makes the purgatories measure times.
    publish();
    // Only the server's one thread runs this. On several threads, publish and render under a lock:
    // two scrapes at once would drain the same histograms.
    let page = live.clone();
    let scrape = async move || {
        publish();
        page.record();
        ([(CONTENT_TYPE, TEXT_FORMAT)], recorder.render())
    };
    let routes = live.router().route("/metrics", get(scrape));
    Server::start(address, routes).with_context(|| format!("cannot serve metrics at {address}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let said = format!("{:#}", serve(address, &Live::new(), || ()).unwrap_err());
        assert!(
            said.contains(&format!("cannot serve metrics at {address}: ")),
            "{said}"
        );
    }
}
