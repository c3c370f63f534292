//! The wheel against a reference: an ordered set of (due time, task). proptest makes the steps, and
//! shrinks a failure to the few that matter; [`oracle`](super::oracle) does them.
//!
//! The test prints how often each rare path was taken, and fails if one was never taken.
//! `TEST_EFFORT` sets the number of steps: 5000 without it, a million in CI. `MODEL_SEED` changes
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    effort::{effort, number},
    oracle::{Bounds, Model, Paths, Pick, Setup, Step, When},
};

/// The number of steps without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// The average number of steps of a case.
const STEPS_A_CASE: usize = 200;

/// The number of the oracle's paths, cascades from nine levels among them.
const PATHS: usize = 27;

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        2 => (0u16..5000).prop_map(When::Past),
        10 => any::<u8>().prop_map(When::Ahead),
        8 => any::<(u8, u8)>().prop_map(|(bits, by)| When::Far(bits, by)),
        1 => any::<u8>().prop_map(When::End),
        1 => (0u8..32).prop_map(When::End),
    ]
}

/// Makes a budget: none, or a small one.
fn budget() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), 1u8..10]
}

fn step() -> impl Strategy<Value = Step> {
    let pick = any::<Pick>;
    let leave = || prop::bool::weighted(0.2);
    prop_oneof![
        40 => when().prop_map(Step::Insert),
        1 => (when(), 1u16..300).prop_map(|(when, count)| Step::InsertMany(when, count)),
        2 => Just(Step::InsertUnscheduled),
        18 => pick().prop_map(Step::Cancel),
        17 => (pick(), when()).prop_map(|(pick, when)| Step::Reschedule(pick, when)),
        1 => pick().prop_map(Step::Unschedule),
        3 => pick().prop_map(Step::TouchGone),
        2 => any::<u8>().prop_map(|by| Step::CatchUp(When::Ahead(by))),
        9 => (when(), budget()).prop_map(|(to, budget)| Step::Advance { to, budget }),
        8 => (budget(), leave()).prop_map(|(budget, leave)| Step::Turn { budget, leave }),
        3 => when().prop_map(|when| Step::ReEnter { times: 20, when }),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let slots = select(vec![2, 3, 5, 20, 60, 64, 200]);
    let start = select(vec![0, 1, 7777, u64::MAX - 5017, u64::MAX - 17, u64::MAX]);
    let phase = select(vec![0, 0, 1, 17]);
    (slots, start, phase, any::<bool>()).prop_map(|(slots, start, phase, early)| Setup {
        slots: slots - 2,
        start: When::At(start),
        phase,
        early,
    })
}

fn random(seed: Option<u64>) -> TestRng {
    let Some(seed) = seed else {
        return TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

#[test]
fn the_wheel_agrees_with_an_ordered_set() {
    let steps = usize::try_from(effort(STEPS)).unwrap();
    let cases = u32::try_from(steps / STEPS_A_CASE).unwrap().max(1);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let counted = std::cell::RefCell::new(Paths::new());
    let made = std::cell::Cell::new(0);
    let case = (setup(), prop::collection::vec(step(), 1..2 * STEPS_A_CASE));
    let seed = number("MODEL_SEED");
    let result = TestRunner::new_with_rng(config, random(seed)).run(&case, |(setup, steps)| {
        let mut model = Model::new(
            setup,
            Bounds {
                kept: usize::MAX,
                walked: 1,
            },
        );
        for step in &steps {
            model.step(step);
        }
        made.set(made.get() + model.steps);
        for (path, count) in model.shut_down() {
            *counted.borrow_mut().entry(path).or_default() += count;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("MODEL_SEED={seed:?}: {failure}"));
    let paths = counted.into_inner();
    println!("{} steps: {paths:#?}", made.get());
    assert_eq!(
        paths.len(),
        PATHS,
        "a path never taken, or one that nobody expects"
    );
}
