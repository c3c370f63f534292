//! The behaviour that users see, under a clock that the test advances.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/owner.rs"]
mod owner;
#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "tokio")]
#[path = "../support/stepped.rs"]
mod on_stepped_clock;

mod clocks;
mod delay_queue;
mod errors;
mod interval;
mod kafka_regressions;
mod manual_asks;
mod sleep;
mod stats;
#[cfg(feature = "tokio")]
mod stepped;
mod tasks;
mod unlocked;
mod worked_numbers;
