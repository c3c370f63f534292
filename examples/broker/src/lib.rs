//! A small broker that speaks the Kafka wire protocol: a leader and two follower replicas inside
//! one process, and the purgatory where an `acks=all` produce waits for them.
//!
//! The path of a produce: `connection` reads a frame (`frame`), `layout` checks its lengths, `api`
//! decodes and dispatches it, `produce` appends the batches (`batch`, `partition`) and parks a
//! `delayed_produce` under the partitions it wrote. The followers (`follower`) fetch, the high
//! watermark advances (`replica_manager`), and what is parked under that partition is checked. The
//! connection's own thread writes the response: no callback of the purgatory touches a socket.

mod api;
mod args;
mod batch;
mod connection;
mod counters;
mod delayed_produce;
mod follower;
mod frame;
mod layout;
mod log;
mod metadata;
mod not_served;
mod partition;
mod produce;
mod replica_manager;
mod scrape;
mod server;
mod signal;
#[cfg(test)]
mod tests;
mod topics;

pub use args::Args;
pub use counters::Summary;
pub use server::Broker;
