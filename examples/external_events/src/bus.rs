//! How a change gets to every gateway. Within one process there is nothing to it; between several,
//! a NATS server numbers the changes and keeps the last one of each order.

use std::sync::Arc;

use anyhow::Result;

use crate::{
    nats::Nats,
    orders::{OrderId, Orders, Seen},
};

/// Where changes are published. However they travel, they arrive in [`Orders`].
#[derive(Clone)]
pub enum Bus {
    /// One gateway, alone.
    InProcess(Orders),
    /// Any number of gateways.
    Nats(Arc<Nats>),
}

impl Bus {
    /// Publishes the new state of an order; returns its epoch and version.
    ///
    /// # Errors
    /// When NATS did not acknowledge it. It may be published all the same.
    pub async fn publish(&self, id: OrderId, state: String) -> Result<Seen> {
        match self {
            Bus::InProcess(orders) => Ok(orders.change_here(id, state.into())),
            Bus::Nats(nats) => nats.publish(&id, state).await,
        }
    }
}
