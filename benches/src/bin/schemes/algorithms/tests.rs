//! Every scheme against one reference: a list of what was started, and when it is due. proptest
//! makes the steps, and shrinks a failure to the few that matter.

use std::cell::RefCell;

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use timer_core::WheelSize;

use super::{
    BoundedWheel, DelayHeap, HashedWheel, HierarchicalWheel, SortedList, UnsortedList,
    scheme::{Refused, Scheme, Task},
};

#[derive(Clone, Debug)]
enum Step {
    /// So many timers of one delay.
    Start(u64, u8),
    /// One that is pending, or has gone.
    Stop(Index),
    /// Tick by tick: each fires exactly at its own.
    Tick(u8),
    /// In one call: each fires, in order.
    Advance(u16),
}

fn step() -> impl Strategy<Value = Step> {
    // Around a turn of the small wheels, a turn exactly, up to a day, and anything.
    let delay = prop_oneof![
        4 => 0u64..30,
        2 => (0u64..30).prop_map(|turns| 8 * turns),
        2 => 0u64..1500,
        1 => 0u64..100_000,
        1 => (any::<u64>(), 0u32..64).prop_map(|(bits, by)| bits >> by),
    ];
    let count = prop_oneof![9 => Just(1u8), 1 => 2u8..10];
    prop_oneof![
        10 => (delay, count).prop_map(|(delay, count)| Step::Start(delay, count)),
        5 => any::<Index>().prop_map(Step::Stop),
        4 => (0u8..40).prop_map(Step::Tick),
        2 => (0u16..2000).prop_map(Step::Advance),
    ]
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fired: usize,
    stopped: usize,
    gone: usize,
    refused: usize,
}

struct Model<'a, S: Scheme> {
    scheme: S,
    delay_max: u64,
    now: u64,
    /// By task: its handle, when it is due, and whether it pends.
    timers: Vec<(S::Handle, u64, bool)>,
    seen: &'a mut Seen,
}

impl<S: Scheme> Model<'_, S> {
    fn start(&mut self, delay: u64) {
        let (task, delay_max) = (self.timers.len() as Task, self.delay_max);
        match self.scheme.start(delay, task) {
            Ok(handle) => {
                assert!(delay <= delay_max);
                self.timers.push((handle, self.now.saturating_add(delay.max(1)), true));
            }
            Err(refused) => {
                assert!(delay > delay_max);
                assert_eq!(refused, Refused { delay, delay_max, task });
                self.seen.refused += 1;
            }
        }
    }

    fn stop(&mut self, at: usize) {
        let (handle, _, pends) = &mut self.timers[at];
        assert_eq!(self.scheme.stop(*handle), *pends);
        *(if *pends { &mut self.seen.stopped } else { &mut self.seen.gone }) += 1;
        *pends = false;
    }

    fn advance(&mut self, ticks: u64, advance: impl FnOnce(&mut S, &mut Vec<Task>)) {
        self.now += ticks;
        let mut fired = Vec::new();
        advance(&mut self.scheme, &mut fired);
        let mut last = 0;
        for task in fired {
            let (_, deadline, pends) = &mut self.timers[task as usize];
            assert!(std::mem::take(pends), "fires once");
            assert!(*deadline <= self.now, "early: {deadline} at {}", self.now);
            assert!(last <= *deadline, "out of order");
            last = *deadline;
            self.seen.fired += 1;
        }
        let late = self.timers.iter().any(|&(_, deadline, pends)| pends && deadline <= self.now);
        assert!(!late, "not fired by {}", self.now);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Start(delay, count) => (0..count).for_each(|_| self.start(delay)),
            Step::Stop(_) if self.timers.is_empty() => {}
            Step::Stop(index) => self.stop(index.index(self.timers.len())),
            Step::Tick(ticks) => (0..ticks).for_each(|_| self.advance(1, S::tick)),
            Step::Advance(ticks) => {
                let ticks = ticks.into();
                self.advance(ticks, |scheme, fired| scheme.advance(ticks, fired));
            }
        }
        let pending = self.timers.iter().filter(|&&(.., pends)| pends).count();
        assert_eq!(self.scheme.pending(), pending);
    }
}

/// A scheme takes steps, and stops what is left, many times over.
fn agrees<S: Scheme>(delay_max: u64, make: fn() -> S) {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let total = RefCell::new(Seen::default());
    let steps = prop::collection::vec(step(), 1..80);
    let result = TestRunner::new_with_rng(config, random).run(&steps, |steps| {
        let (seen, mut at_last) = (&mut total.borrow_mut(), Seen::default());
        let mut model = Model { scheme: make(), delay_max, now: 0, timers: Vec::new(), seen };
        steps.iter().for_each(|step| model.step(step));
        model.seen = &mut at_last;
        (0..model.timers.len()).for_each(|at| model.stop(at));
        assert_eq!(model.scheme.pending(), 0);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{}: {failure}", S::NAME));
    let (name, seen) = (S::NAME, total.into_inner());
    println!("{name}: {seen:?}");
    assert!(seen.fired > 300 && seen.stopped > 100 && seen.gone > 100, "{name}: {seen:?}");
    assert_eq!(seen.refused > 100, delay_max < u64::MAX, "{name}: {seen:?}");
}

/// With few slots where it has any, so that all turns come by.
#[test]
fn every_scheme_agrees_with_the_reference() {
    agrees(u64::MAX, UnsortedList::default);
    agrees(u64::MAX, SortedList::default);
    agrees(7, BoundedWheel::<8>::default);
    agrees(719, BoundedWheel::<720>::default);
    agrees(u64::MAX, HashedWheel::<8>::default);
    agrees(u64::MAX, DelayHeap::default);
    agrees(u64::MAX, HierarchicalWheel::default);
    agrees(u64::MAX, || HierarchicalWheel::of(WheelSize::new(WheelSize::MIN).unwrap()));
}
