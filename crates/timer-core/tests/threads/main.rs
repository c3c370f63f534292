//! The timer on real threads, and inside runtimes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/owner.rs"]
mod owner;
#[path = "../support/mod.rs"]
mod support;

mod on_tokio;
mod runtimes;
#[cfg(unix)]
mod stopped;
mod system;
