//! A small broker that speaks the Kafka wire protocol: a leader and two follower replicas, inside
//! one process or as three (`cluster`), and the purgatories where requests wait for them: an
//! `acks=all` produce, a fetch with a long poll, and a deletion of records.
//!
//! A produce takes this path: `connection` reads a frame (`frame`), `schemas` checks its lengths,
//! `api` decodes and dispatches it, `produce` appends the batches (`batch`, `partition`) and parks
//! a `DelayedProduce` under the high watermarks it needs. The followers (`replica_fetcher`) fetch,
//! the high watermark advances (`replica_manager`), and the produce completes. Its answer (`reply`)
//! goes to the connection's thread, which writes it: no callback of a purgatory touches a socket.

/// Returns an error for the client, if the condition holds.
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
mod log;
mod metadata;
mod partition;
mod produce;
mod replica_fetcher;
mod replica_manager;
mod reply;
mod schemas;
mod server;
#[cfg(test)]
mod tests;
mod topics;

pub use args::{Args, Role};
pub use cluster::{run_cluster, run_follower, stop_with_cluster};
pub use server::{Broker, Summary};
