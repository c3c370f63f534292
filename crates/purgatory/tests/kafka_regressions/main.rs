//! What hurt Kafka's purgatory, each as a test named after its number in Kafka's tracker, where it
//! has one. Each runs one script twice: over Kafka's mechanism in small (`naive`), where it shows
//! the harm, and over this purgatory, where it does not. No test sleeps or races: the scripts say
//! who does what when. Those of the timer are beside the timer.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test fails by panicking; nothing here is public"
)]

#[path = "../support/mod.rs"]
mod support;

mod endings;
mod locks;
mod naive;
mod script;
