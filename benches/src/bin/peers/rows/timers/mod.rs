//! The rows of timers.

pub(super) mod advance;
pub(super) mod bytes;
#[cfg(test)]
mod checks;
mod crew;
pub(super) mod expire;
pub(super) mod idle;
pub(super) mod schedule;
