//! Whole scenarios of four to six threads, on the shipped code, in schedules chosen at random:
//! `just shuttle`, or `RUSTFLAGS="--cfg shuttle" cargo test --release -p purgatory
//! --features __shuttle --test shuttle`.
//!
//! loom explores every interleaving of two or three calls; here many calls meet in a sample of
//! interleavings. `TEST_EFFORT` makes more schedules: each scenario has 500 without it. A failing
//! schedule is printed, with the way to replay it. Memory is sequentially consistent here: loom
//! covers weaker orderings.

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
