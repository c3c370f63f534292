//! The rows of waits: requests parked under keys, and completed by events.

pub(super) mod acks_all;
pub(super) mod bytes;
mod crew;
pub(super) mod empty;
pub(super) mod expire;
pub(super) mod hot_key;
pub(super) mod local;
pub(super) mod park;
pub(super) mod poll_loop;
pub(super) mod queue;
pub(super) mod replies;
mod room;
pub(super) mod tail;
#[cfg(test)]
mod tests;
