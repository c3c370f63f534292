//! Serves Prometheus metrics, the purgatory's own and two of this example, and beside them the live
//! page. On a port of its own: what clients may reach does not show what others wait for.

use std::{fmt::Display, net::SocketAddr};

use anyhow::{Context, Result};
use axum::{http::header::CONTENT_TYPE, routing::get};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use purgatory_live::{Live, Server};
use timer_core::TimeHistogram;

use crate::orders::Orders;

/// The exposition format, as Prometheus wants it named.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

const KEPT: &str = "external_events_orders_kept";
const VERSION: &str = "external_events_version_total";

/// Installs a recorder and serves it at `/metrics` of the address, with the live page at `/`.
///
/// # Errors
/// When the address cannot be had, or the program has a recorder already.
pub fn serve(address: SocketAddr, orders: &Orders) -> Result<Server> {
    let live = Live::new().purgatory_with(orders.waits(), Display::fmt);
    let recorder =
        PrometheusBuilder::new().set_buckets(TimeHistogram::BOUNDS_S)?.install_recorder()?;
    describe_gauge!(KEPT, Unit::Count, "Orders this gateway keeps");
    describe_counter!(VERSION, Unit::Count, "The last change this gateway has seen, of any order");
    orders.waits().publish(); // from now on it times the waits
    let orders = orders.clone();
    // The server's one thread runs this: two at once would publish while the other drains the
    // histograms.
    let scrape = async move || {
        orders.waits().publish();
        gauge!(KEPT).set(orders.count() as f64);
        counter!(VERSION).absolute(orders.position());
        ([(CONTENT_TYPE, TEXT_FORMAT)], recorder.render())
    };
    Server::start(address, live.router().route("/metrics", get(scrape)))
        .with_context(|| format!("cannot serve metrics at {address}"))
}
