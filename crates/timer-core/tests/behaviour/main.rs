//! What one sees from outside, under a hand-turned clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod errors;
mod kafka_regressions;
#[cfg(feature = "keyed")]
mod keyed;
mod sleep;
mod stats;
mod stream;
mod tasks;
mod worked_numbers;
