//! What one sees from outside, most of it one thing at a time under a hand-turned clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
#[path = "../support/mod.rs"]
mod support;

mod blocking;
mod conditions;
mod counts;
mod doors;
mod endings;
mod errors;
mod extremes;
mod fair_ends;
mod for_one;
mod labels;
mod lookups;
mod metrics;
mod missed_events;
mod monitor;
mod recheck;
#[cfg(not(loom))]
mod recipes;
mod replies;
mod runtime;
mod scenarios;
mod snapshot;
mod waiting;
mod watermarks;
#[cfg(feature = "keyed")]
mod watermarks_by_key;
mod weight;
