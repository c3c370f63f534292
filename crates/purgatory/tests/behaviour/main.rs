//! The behaviour that users see, one example for each statement, on a manual timer. Read
//! [`promises`] first. `models/oracle` covers each path of the code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod blocking;
mod bounds;
mod costs;
mod counts;
mod depth;
mod drops_that_panic;
mod endings;
mod errors;
mod fair_ends;
mod held_up;
mod keys_that_panic;
mod leftovers;
mod metrics;
mod monitor;
mod permits;
mod promises;
mod reach;
mod reasons;
mod recheck;
#[cfg(not(loom))]
mod recipes;
mod replica_sets;
mod replies;
mod reply_scopes;
mod reply_streams;
mod runtime;
mod shutdowns;
mod simulations;
mod snapshot;
mod unlocked;
mod waiting;
mod watermark_values;
mod watermarks_by_key;
