//! The whole purgatory under a hand-turned clock against a reference of plain lists, written from
//! the documentation. proptest makes the steps, and shrinks a failure to the few that matter.
//!
//! Both do each step, the purgatory first. Then what was seen is compared: every check and callback
//! in order, those of nested calls too, what each call returned, what was handed back or dropped;
//! and every count. (The keys, for which 4096 locks are taken, are counted each 16th time.)
//!
//! Two orders are not promised. That of a shutdown is taken from what was seen. That of a cancel by
//! key the reference has as it is: plain watches, then watermarks by threshold, then those met. Two
//! things more are taken from what was seen: whether keys of other hashes have the same version,
//! and how far a timer goes for work of a wheel's own.
//!
//! The fuzz target `purgatory` makes steps of bytes, and has them done by the same
//! [`oracle`](super::oracle).
//!
//! How often each rare path was taken is printed at the end, and with half a million steps or more
//! a path never taken fails the test. `TEST_EFFORT` says how many steps to make: 5000 without it, a
//! million in CI; `MODEL_SEED` makes others.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod strategies;

use std::{
    cell::{Cell, RefCell},
    panic,
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    effort::{effort, number},
    oracle::{
        Model, Paths,
        steps::{Act, Setup},
    },
};

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// On average.
const STEPS_A_CASE: usize = 200;

/// So many steps take every path.
const ALL_PATHS: usize = 500_000;

/// Paths that the oracle counts.
const PATHS: usize = 67;

fn random(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

#[test]
fn the_purgatory_agrees_with_plain_lists() {
    let steps = usize::try_from(effort(STEPS)).unwrap();
    let seed = number("MODEL_SEED").unwrap_or(0);
    let cases = u32::try_from(steps / STEPS_A_CASE).unwrap().max(1);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let counted = RefCell::new(Paths::new());
    let made = Cell::new(0);
    let steps_of = |most| prop::collection::vec(strategies::step(), 1..most);
    let case = (strategies::setup(), steps_of(2 * STEPS_A_CASE), steps_of(8));
    let mut runner = TestRunner::new_with_rng(config, random(seed));
    let run = |(setup, steps, after): (Setup, Vec<Act>, Vec<Act>)| {
        let mut model = Model::new(&setup);
        steps.iter().for_each(|act| model.step(act));
        made.set(made.get() + model.steps);
        for (path, count) in model.end(&after) {
            *counted.borrow_mut().entry(path).or_default() += count;
        }
        Ok(())
    };
    // Without a word of each failure on the way to the smallest. No other test runs here.
    panic::set_hook(Box::new(|_| ()));
    let result = runner.run(&case, run).map_err(|failure| failure.to_string());
    drop(panic::take_hook());
    result.unwrap_or_else(|failure| panic!("MODEL_SEED={seed}: {failure}"));
    let paths = counted.into_inner();
    println!("{} steps: {paths:#?}", made.get());
    assert!(paths.len() <= PATHS, "a path that nobody expects");
    if steps >= ALL_PATHS {
        let never = paths.iter().find(|&(_, &count)| count == 0);
        assert_eq!((never, paths.len()), (None, PATHS), "a path never taken");
    }
}
