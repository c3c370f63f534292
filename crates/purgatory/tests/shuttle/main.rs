//! Whole scenarios of three to six threads, on the shipped code, in schedules chosen at random:
//! `just shuttle`, or `RUSTFLAGS="--cfg shuttle" cargo test --release -p purgatory
//! --features __shuttle --test shuttle`.
//!
//! loom walks every interleaving of two or three calls; here many calls meet, in a sample of
//! theirs. `TEST_EFFORT` says how many a scenario: 200 without it. The schedule that fails is
//! printed, with how to see it again. Memory is sequentially consistent here: what is weaker is
//! loom's part.

#![cfg(shuttle)]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "how many schedules, and which faults were noticed")]

mod anything;
mod book;
#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
mod operations;
mod reaper;
mod schedules;
mod world;
