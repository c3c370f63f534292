//! Bugs of Kafka's purgatory, each as a test named after its number in Kafka's tracker, if it has
//! one. Its script leads to the harm where a check runs under the operation's lock and completed
//! operations stay in the lists of their keys, as in Kafka. No test sleeps or races: the scripts fix
//! the order of steps. Bugs of the timer are tested beside the timer.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test fails by panicking; nothing here is public"
)]

#[path = "../support/mod.rs"]
mod support;

mod endings;
mod locks;
mod script;
