//! Rows of waits: requests are parked under keys and completed by signals.

mod arena;
pub(super) mod operations;
pub(super) mod park;
pub(super) mod poll_loop;
pub(super) mod replies;
#[cfg(test)]
mod tests;
