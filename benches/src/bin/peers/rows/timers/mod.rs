//! The rows of timers.

pub(super) mod advance;
pub(super) mod bytes;
mod crew;
pub(super) mod expire;
pub(super) mod idle;
pub(super) mod schedule;
#[cfg(test)]
mod tests;
