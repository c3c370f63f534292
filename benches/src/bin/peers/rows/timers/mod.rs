//! The rows of timers.

pub(super) mod advance;
pub(super) mod bytes;
pub(super) mod expire;
pub(super) mod idle;
pub(super) mod schedule;
#[cfg(test)]
mod tests;
