//! The behaviour that users see, under a clock that the test advances.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod any;
mod delay_queue;
mod errors;
mod in_flight;
mod kafka_regressions;
mod sleep;
mod stats;
mod tasks;
mod unlocked;
mod worked_numbers;
