//! Rows of waits: requests are parked under keys and completed by signals.

pub(super) mod acks_all;
mod arena;
pub(super) mod observed;
pub(super) mod operations;
pub(super) mod park;
pub(super) mod permits;
pub(super) mod poll_loop;
pub(super) mod replica_set;
pub(super) mod replies;
pub(super) mod scale;
mod slots;
mod tasks;
#[cfg(test)]
mod tests;
