//! The guide: how to use this crate well, in ten short chapters that build on each other.
//!
//! 1. [`lifecycle`]: what happens to an operation from the call that parks it to its callback,
//!    drawn.
//! 2. [`waiting`]: callbacks, closures, futures, blocked threads, and conditions that are
//!    asynchronous.
//! 3. [`watches`]: the one rule, and whether to wait for keys, watermarks or both.
//! 4. [`monitor`]: a state and its waits in one, where the rule keeps itself.
//! 5. [`replies`]: request and reply.
//! 6. [`watermarks`]: a value for each key that only rises, and k of n of them.
//! 7. [`local`]: a purgatory without a lock, for a thread whose event loop you turn.
//! 8. [`recipes`]: acks=all, a long-poll fetch, a quorum write, leases, a cache that loads once,
//!    sessions.
//! 9. [`by_hand`]: the same with a loop, a map of channels, a `Notify` or an actor, and when that
//!    is the better choice.
//! 10. [`questions`]: trade-offs, limits, and what one asks.
//!
//! Every example is compiled and run with the tests.

pub mod by_hand;
pub mod lifecycle;
pub mod local;
pub mod monitor;
pub mod questions;
pub mod recipes;
pub mod replies;
pub mod waiting;
pub mod watches;
pub mod watermarks;
