//! Threads that race for operations; what came of each is counted. As many as `TEST_EFFORT` says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
#[path = "../support/mod.rs"]
mod support;

mod permits;
mod replication;
mod stress;
