//! Whole scenarios of four to six threads, on the shipped code, in schedules chosen at random:
//! `just shuttle`, or `RUSTFLAGS="--cfg shuttle" cargo test --release -p purgatory
//! --features __shuttle --test shuttle`.
//!
//! loom walks every interleaving of two or three calls; here many calls meet, in a sample of
//! theirs. `TEST_EFFORT` makes more schedules: each scenario has 500 without it. The schedule that
//! fails is printed, with how to see it again. Memory is sequentially consistent here: what is
//! weaker is loom's part.

#![cfg(shuttle)]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::print_stdout,
    reason = "how many schedules, and which faults were noticed"
)]

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;
mod mixed;
mod schedules;
mod world;
