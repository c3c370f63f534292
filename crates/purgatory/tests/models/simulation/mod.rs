//! A cluster in virtual time: a leader with its purgatory, two followers and producers, over a
//! network that delays, reorders and loses messages, with pauses, crashes, restarts, clock jumps
//! and executor stalls, all from a seed.
//!
//! A seed makes a *story*: a list of steps (a produce, a fault), each at its moment. What the
//! network does to the messages in between comes from the seed, too. After each event every
//! invariant is checked (see `World::check`). A story that breaks one is made smaller, step by
//! step, for as long as it still does, and printed with the line that tells it again. `TEST_EFFORT`
//! says how many seeds: 50 without it, 10 000 in CI, a million by `just simulation`.
//! `SIMULATION_SEED=7` runs one.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod story;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::quiet::quietly;
use crate::effort::{effort, number};
use story::{Step, story};
use world::{Ends, World};

/// Runs a story; what broke, if anything did.
fn run(seed: u64, steps: &[Step], fault: Fault) -> Result<Ends, String> {
    let result =
        quietly(|| catch_unwind(AssertUnwindSafe(|| World::new(seed, steps, fault).run())));
    result.map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        said.unwrap_or_else(|| panic.downcast_ref::<&str>().copied().unwrap_or("?").to_owned())
    })
}

/// Without `TEST_EFFORT`; so many see everything that there is.
const SEEDS: u64 = 50;

/// A mistake of the server's, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The high watermark follows the fastest replica, not the slowest.
    AckedByOne,
    /// The event comes before the high watermark that it is about.
    EventFirst,
    /// A client that leaves does not cancel what it waits for.
    ForgetsClients,
    /// A leader that restarts does not end what waits.
    ForgetsToEnd,
}

/// Leaves steps out for as long as the rest still breaks something.
fn smaller(seed: u64, mut steps: Vec<Step>, fault: Fault) -> Vec<Step> {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            if run(seed, &fewer, fault).is_err() {
                steps = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    steps
}

/// Runs a seed; if something breaks, the smallest story that still does, told so that it can be
/// told again.
fn tell(seed: u64, fault: Fault) -> Result<Ends, String> {
    let steps = story(seed);
    run(seed, &steps, fault).map_err(|_| {
        let steps = smaller(seed, steps, fault);
        let broke = run(seed, &steps, fault).unwrap_err();
        let told: Vec<_> = steps.iter().map(|step| format!("  {step:?}")).collect();
        format!(
            "seed {seed}: {broke}\n{}\nagain: SIMULATION_SEED={seed} cargo test -p purgatory --test models simulation",
            told.join("\n")
        )
    })
}

#[test]
fn each_operation_ends_once_and_right() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..effort(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut all = Ends::default();
    for seed in seeds {
        match tell(seed, Fault::None) {
            Ok(ends) => all.add(&ends),
            Err(story) => panic!("{story}"),
        }
    }
    println!("{count} seeds: {all:?}");
    let seen = [all.completed, all.expired, all.cancelled, all.at_once, all.lost, all.stalled];
    assert!(count < SEEDS || seen.iter().all(|&n| n > 0), "something was never seen: {all:?}");
}

#[test]
fn mistakes_are_noticed_and_their_story_made_small() {
    for fault in [Fault::AckedByOne, Fault::EventFirst, Fault::ForgetsClients, Fault::ForgetsToEnd]
    {
        let story = (0..100).find_map(|seed| tell(seed, fault).err());
        let story = story.unwrap_or_else(|| panic!("{fault:?} was not noticed"));
        let steps = story.lines().filter(|line| line.starts_with("  ")).count();
        println!("{fault:?}: {story}");
        assert!((1..=6).contains(&steps), "{fault:?}: a story of {steps} steps is not small");
    }
}
