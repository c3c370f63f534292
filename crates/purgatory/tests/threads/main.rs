//! Threads that misbehave, and users' code that misbehaves on them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
#[path = "../support/mod.rs"]
mod support;

mod attack;
mod contention;
mod hostile;
#[cfg(target_os = "linux")]
mod shared;
