//! The guide: how to use this crate well, in six short chapters that build on each other.
//!
//! 1. [`lifecycle`]: what happens to an operation from the call that parks it to its callback, drawn.
//! 2. [`waiting`]: callbacks, closures, futures, blocked threads, and conditions that are asynchronous.
//! 3. [`watches`]: the one rule, and whether to wait for keys, watermarks or both.
//! 4. [`recipes`]: acks=all, a long-poll fetch, a quorum write, leases, a cache that loads once, sessions.
//! 5. [`by_hand`]: the same with a map of channels, a `Notify` or an actor, and when that is the better
//!    choice.
//! 6. [`questions`]: trade-offs, limits, and what one asks.
//!
//! Every example is compiled and run with the tests.

pub mod by_hand;
pub mod lifecycle;
pub mod questions;
pub mod recipes;
pub mod waiting;
pub mod watches;
