//! The rows of waits: requests parked under keys, and completed by events.

pub(super) mod acks_all;
pub(super) mod bytes;
pub(super) mod events;
pub(super) mod exchange;
pub(super) mod expire;
pub(super) mod local;
pub(super) mod park;
pub(super) mod poll_loop;
mod room;
#[cfg(test)]
mod tests;
