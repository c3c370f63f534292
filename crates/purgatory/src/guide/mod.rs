//! The guide, from the first wait to a million of them.
//!
//! | Chapter | About |
//! |---|---|
//! | [`start`] | a first program, terms |
//! | [`watermarks`], [`replies`], [`monitor`] | the ready-made forms |
//! | [`operations`], [`watches`] | operations of your own, and their watches |
//! | [`lifecycle`], [`time`] | an operation's states; deadlines, and why an expiry is late |
//! | [`local`], [`tokio`], [`testing`] | one thread, a runtime, tests that do not sleep |
//! | [`scale`], [`operating`] | keys, sizing, settings, many nodes; metrics, missed events, shutdown |
//! | [`recipes`] | requests that servers hold, as programs |
//! | [`hand_written`] | a loop, channels, `Notify` or an actor instead |
//! | [`questions`] | questions, limits |
//!
//! Every example is compiled and run with the tests.

pub mod hand_written;
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
