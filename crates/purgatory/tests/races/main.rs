//! Threads race for operations, and outcomes are counted. `TEST_EFFORT` makes the races longer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
#[path = "../support/mod.rs"]
mod support;

mod permits;
mod replication;
mod stress;
