//! The guide, from the first wait to a million of them.
//!
//! | Chapter | About |
//! |---|---|
//! | [`start`] | a first program, terms |
//! | [`monitor`] | a state and the waits for it |
//! | [`replies`] | requests and their replies |
//! | [`watermarks`] | values that only rise, k of n |
//! | [`operations`] | operations of your own: the one rule, ways to wait |
//! | [`watches`] | waiting for keys, watermarks or both |
//! | [`lifecycle`] | an operation's states, where its callback runs |
//! | [`time`] | deadlines, ticks, what is late and why |
//! | [`local`] | one thread, operations that are not `Send` |
//! | [`testing`] | tests that do not sleep |
//! | [`tokio`] | tasks, callbacks, the paused clock |
//! | [`scale`] | keys, sizing, settings, many nodes |
//! | [`operating`] | metrics, alerts, missed events, shutdown |
//! | [`recipes`] | what servers wait for, as programs |
//! | [`by_hand`] | a loop, channels, `Notify` or an actor instead |
//! | [`questions`] | questions, limits |
//!
//! Every example is compiled and run with the tests.

pub mod by_hand;
pub mod lifecycle;
pub mod local;
pub mod monitor;
pub mod operating;
pub mod operations;
pub mod questions;
pub mod recipes;
pub mod replies;
pub mod scale;
pub mod start;
pub mod testing;
pub mod time;
pub mod tokio;
pub mod watches;
pub mod watermarks;
