//! What users see, one thing at a time under a hand-turned clock: [`promises`] first. Each path of
//! the code is walked by `models/oracle`; this folder has one example of each thing that is said.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod blocking;
mod costs;
mod counts;
mod endings;
mod errors;
mod fair_ends;
mod held_up;
mod metrics;
mod monitor;
mod others_bugs;
mod promises;
mod recheck;
#[cfg(not(loom))]
mod recipes;
mod replies;
mod runtime;
mod shutdowns;
mod snapshot;
mod waiting;
mod watermarks;
#[cfg(feature = "keyed")]
mod watermarks_by_key;
mod weight;
