//! Bugs of Kafka's purgatory, each as a test named after its number in Kafka's tracker, if it has
//! one. Each test runs one script twice: over a model of Kafka's mechanism (`naive`), where it
//! shows the harm, and over this purgatory, where it does not. No test sleeps or races: the scripts
//! fix the order of steps. Bugs of the timer are tested beside the timer.
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
