//! Every scheme against one reference: a map of what is pending, and when it is due. proptest makes
//! the steps, and shrinks a failure to the few that matter.

use std::{cell::RefCell, collections::BTreeMap};

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use timer_core::WheelSize;

use super::{
    BoundedWheel, DelayHeap, HashedWheel, HierarchicalWheel, SortedList, UnsortedList,
    scheme::{Scheme, Task},
};

#[derive(Clone, Debug)]
enum Step {
    /// So many timers of one delay.
    Start(u64, u8),
    Stop(Index),
    StopGone(Index),
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
        4 => any::<Index>().prop_map(Step::Stop),
        1 => any::<Index>().prop_map(Step::StopGone),
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
    now: u64,
    /// By task: its handle, and when it is due.
    pending: BTreeMap<Task, (S::Handle, u64)>,
    gone: Vec<S::Handle>,
    next_task: Task,
    seen: &'a mut Seen,
}

impl<S: Scheme> Model<'_, S> {
    fn start(&mut self, delay: u64) {
        let task = self.next_task;
        self.next_task += 1;
        match self.scheme.start(delay, task) {
            Ok(handle) => {
                let deadline = self.now.saturating_add(delay.max(1));
                self.pending.insert(task, (handle, deadline));
            }
            Err(refused) => {
                assert!(refused.delay > refused.delay_max);
                assert_eq!((refused.delay, refused.task), (delay, task));
                self.seen.refused += 1;
            }
        }
    }

    fn stop(&mut self, index: Index) {
        let nth = index.index(self.pending.len().max(1));
        let Some((&task, &(handle, _))) = self.pending.iter().nth(nth) else { return };
        assert!(self.scheme.stop(handle));
        self.pending.remove(&task);
        self.gone.push(handle);
        self.seen.stopped += 1;
    }

    fn stop_gone(&mut self, index: Index) {
        let Some(&handle) = self.gone.get(index.index(self.gone.len().max(1))) else { return };
        assert!(!self.scheme.stop(handle));
        self.seen.gone += 1;
    }

    fn advance(&mut self, ticks: u64, advance: impl FnOnce(&mut S, &mut Vec<Task>)) {
        self.now += ticks;
        let mut fired = Vec::new();
        advance(&mut self.scheme, &mut fired);
        let mut last = 0;
        for task in fired {
            let (handle, deadline) = self.pending.remove(&task).expect("fires once");
            assert!(deadline <= self.now, "early: {deadline} at {}", self.now);
            assert!(last <= deadline, "out of order");
            last = deadline;
            self.gone.push(handle);
            self.seen.fired += 1;
        }
        let late = self.pending.values().filter(|&&(_, deadline)| deadline <= self.now);
        assert_eq!(late.count(), 0, "not fired by {}", self.now);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Start(delay, count) => (0..count).for_each(|_| self.start(delay)),
            Step::Stop(index) => self.stop(index),
            Step::StopGone(index) => self.stop_gone(index),
            Step::Tick(ticks) => (0..ticks).for_each(|_| self.advance(1, S::tick)),
            Step::Advance(ticks) => {
                let ticks = ticks.into();
                self.advance(ticks, |scheme, fired| scheme.advance(ticks, fired));
            }
        }
        assert_eq!(self.scheme.pending(), self.pending.len());
    }
}

/// Takes the steps, and stops what is left.
fn agrees<S: Scheme>(scheme: S, steps: &[Step], seen: &mut Seen) {
    let (pending, gone) = (BTreeMap::new(), Vec::new());
    let mut model = Model { scheme, now: 0, pending, gone, next_task: 0, seen };
    steps.iter().for_each(|step| model.step(step));
    assert!(model.pending.values().all(|&(handle, _)| model.scheme.stop(handle)));
    assert!(model.gone.iter().all(|&handle| !model.scheme.stop(handle)));
    assert_eq!(model.scheme.pending(), 0);
}

/// A scheme to be tested, and whether it refuses long delays.
type Case = (&'static str, bool, fn(&[Step], &mut Seen));

/// Every scheme, with few slots where it has any, so that all turns come by.
const CASES: [Case; 8] = [
    ("unsorted list", false, |steps, seen| agrees(UnsortedList::default(), steps, seen)),
    ("sorted list", false, |steps, seen| agrees(SortedList::default(), steps, seen)),
    ("bounded, 8", true, |steps, seen| agrees(BoundedWheel::<8>::default(), steps, seen)),
    ("bounded, 720", true, |steps, seen| agrees(BoundedWheel::<720>::default(), steps, seen)),
    ("hashed, 8", false, |steps, seen| agrees(HashedWheel::<8>::default(), steps, seen)),
    ("delay heap", false, |steps, seen| agrees(DelayHeap::default(), steps, seen)),
    ("timing, 64", false, |steps, seen| agrees(HierarchicalWheel::default(), steps, seen)),
    ("timing, 2", false, |steps, seen| {
        agrees(HierarchicalWheel::of(WheelSize::new(WheelSize::MIN).unwrap()), steps, seen);
    }),
];

#[test]
fn every_scheme_agrees_with_the_reference() {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let total = RefCell::new([Seen::default(); CASES.len()]);
    let steps = prop::collection::vec(step(), 1..80);
    let result = TestRunner::new_with_rng(config, random).run(&steps, |steps| {
        for ((.., agrees), seen) in CASES.iter().zip(total.borrow_mut().iter_mut()) {
            agrees(&steps, seen);
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    for ((name, bounded, _), seen) in CASES.iter().zip(total.into_inner()) {
        println!("{name}: {seen:?}");
        assert!(seen.fired > 300 && seen.stopped > 100 && seen.gone > 100, "{name}: {seen:?}");
        assert_eq!(seen.refused > 100, *bounded, "{name}: {seen:?}");
    }
}
