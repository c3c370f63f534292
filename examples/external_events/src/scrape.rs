//! The metrics: the purgatory's own, and two of this example. On a port of its own: what clients
//! may reach does not show what others wait for.

use std::{fmt::Display, net::SocketAddr};

use anyhow::Result;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use purgatory_live::{Live, Server};

use crate::orders::Orders;

const KEPT: &str = "external_events_orders_kept";
const VERSION: &str = "external_events_version_total";

/// Serves them, and the live page.
///
/// # Errors
/// When the address cannot be had, or the program has a recorder already.
pub fn serve(address: SocketAddr, orders: &Orders) -> Result<Server> {
    let live = Live::new().purgatory_with(orders.waits(), Display::fmt);
    let orders = orders.clone();
    let server = example_support::serve(address, &live, move || {
        orders.waits().publish();
        gauge!(KEPT).set(orders.count() as f64);
        counter!(VERSION).absolute(orders.position());
    })?;
    describe_gauge!(KEPT, Unit::Count, "Orders this gateway keeps");
    describe_counter!(VERSION, Unit::Count, "The last change this gateway has seen, of any order");
    Ok(server)
}
