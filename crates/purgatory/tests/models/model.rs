//! Compares a whole purgatory on a manual timer with a reference of plain lists that is written
//! from the documentation. proptest generates bytes, and shrinks those of a failure; they are
//! decoded into steps as in the fuzz target `purgatory`.
//!
//! Both sides do each step, the purgatory first. Then their records are compared: every check and
//! callback in order, nested calls included, the result of each call, every operation handed back
//! or dropped, and every count. (The number of keys and the visit of all operations, which lock
//! every shard, are compared at each 16th step.)
//!
//! Operations that expire together leave the lists of their keys job by job. Until its job is
//! handed over, an ended operation still takes its place in the steps of a walk. The reference does
//! the same.
//!
//! Two orders are not promised. The reference takes the order of a shutdown from the record; it
//! cancels by key in the order of parking, as the purgatory does. It also takes from the record
//! whether keys of different hashes share a version.
//!
//! At its end the test prints how often each rare path was taken; with half a million steps or
//! more, a path that was never taken fails it. The test makes 5000 steps times `TEST_EFFORT`, in CI
//! a million. `MODEL_SEED` changes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::{Cell, RefCell},
    panic,
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    bytes::{Bytes, RECORD},
    effort::{effort, number},
    oracle::{Model, Paths, steps::Act},
};

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;

/// The average number of steps of a case.
const STEPS_A_CASE: usize = 200;

/// With this many steps every path has to be taken; there are at least `PATHS` paths.
const ALL_PATHS: usize = 500_000;
const PATHS: usize = 53;

fn random(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Generates lists of values, each decoded from a record of bytes.
fn decoded<T: std::fmt::Debug>(
    most: usize,
    decode: fn(&mut Bytes<'_>) -> T,
) -> impl Strategy<Value = Vec<T>> {
    let record = prop::collection::vec(any::<u8>(), RECORD);
    let decode = move |record: Vec<u8>| decode(&mut Bytes::new(&record));
    prop::collection::vec(record.prop_map(decode), 1..most)
}

#[test]
fn the_purgatory_agrees_with_plain_lists() {
    let steps = usize::try_from(effort(STEPS)).unwrap();
    let seed = number("MODEL_SEED").unwrap_or(0);
    let cases = u32::try_from(steps / STEPS_A_CASE).unwrap().max(1);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let counted = RefCell::new(Paths::new());
    let made = Cell::new(0);
    let steps_of = |most| decoded(most, |bytes| bytes.step());
    let case = (
        decoded(2, |bytes| bytes.setup()),
        steps_of(2 * STEPS_A_CASE),
        steps_of(8),
    );
    let mut runner = TestRunner::new_with_rng(config, random(seed));
    let run = |(setup, steps, after): (Vec<_>, Vec<Act>, Vec<Act>)| {
        let mut model = Model::new(&setup[0]);
        for act in &steps {
            model.step(act);
        }
        made.set(made.get() + model.steps);
        for (path, count) in model.end(&after) {
            *counted.borrow_mut().entry(path).or_default() += count;
        }
        Ok(())
    };
    // Print nothing for the failures on the way to the smallest. No other test runs here.
    panic::set_hook(Box::new(|_| ()));
    let result = runner
        .run(&case, run)
        .map_err(|failure| failure.to_string());
    drop(panic::take_hook());
    result.unwrap_or_else(|failure| panic!("MODEL_SEED={seed}: {failure}"));
    let paths = counted.into_inner();
    println!("{} steps: {paths:#?}", made.get());
    if steps >= ALL_PATHS {
        let never = paths.iter().find(|&(_, &count)| count == 0);
        assert_eq!(never, None, "a path never taken");
        assert!(
            paths.len() >= PATHS,
            "{} paths, and there are {PATHS}",
            paths.len()
        );
    }
}
