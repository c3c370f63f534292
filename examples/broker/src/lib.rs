//! A small broker that speaks the Kafka wire protocol: a leader and two follower replicas, inside
//! one process or as three (`cluster`), and the purgatories where requests wait for them: an
//! `acks=all` produce, a fetch with a long poll, a deletion of records, and what a consumer group
//! waits for (`group`).
//!
//! The path of a produce: `connection` reads a frame (`frame`) and takes a place for its answer
//! (`pipeline`), `schemas` checks its lengths, `api` decodes and dispatches it,
//! `produce` appends the batches (`batch`, `partition`) and parks a `DelayedProduce` under the
//! high watermarks it needs. The followers (`replica_fetcher`) fetch, the high watermark advances
//! (`replica_manager`), and what waits for it is checked. The answer fills its place, and the
//! connection's writer writes it in its turn: no callback of a purgatory touches a socket.

/// Returns an error that a client is told, if the condition holds.
macro_rules! refuse {
    ($when:expr, $error:ident) => {
        if $when {
            return Err(kafka_protocol::ResponseError::$error);
        }
    };
}

mod api;
mod args;
mod batch;
mod cluster;
mod connection;
mod fetch;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
#[path = "tests/thrown.rs"]
pub mod fuzz;
mod group;
mod log;
mod memory;
mod metadata;
mod partition;
mod pipeline;
mod produce;
mod producer_state;
mod replica_fetcher;
mod replica_manager;
mod schemas;
mod server;
#[cfg(test)]
mod tests;
mod topics;

pub use args::Args;
pub use cluster::{run_cluster, run_follower, stop_with_cluster};
pub use server::{Broker, Summary};
