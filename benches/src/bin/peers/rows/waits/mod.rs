//! The rows of waits: requests parked under keys, and completed by events.

pub(super) mod operations;
pub(super) mod park;
pub(super) mod poll_loop;
pub(super) mod replies;
mod room;
#[cfg(test)]
mod tests;
