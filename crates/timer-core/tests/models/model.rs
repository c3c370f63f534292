//! The wheel against a reference: an ordered set of (deadline, task). proptest makes the steps, and
//! shrinks a failure to the few that matter.
//!
//! Counts are compared after each step; the links are walked after each one with up to 200 tasks,
//! and after every 1000th above; `next_due` is compared with every bucket worked out by hand. How
//! often each rare path was taken is printed at the end, and a path never taken fails the test.
//! `TEST_EFFORT` says how many steps to make: 5000 without it, a million in CI.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use timer_core::{Scheduled, TaskId, TimingWheel, WheelSize, driver::DeadlineSearch};

use crate::effort::effort;

/// The last tick used: the wheels' phases lie above.
const END: u64 = u64::MAX - 17;

/// Without `TEST_EFFORT`.
const STEPS: u64 = 5_000;

/// On average.
const STEPS_A_CASE: usize = 200;

#[derive(Clone, Debug)]
struct Setup {
    slots: usize,
    start: u64,
    phase: u64,
    late: bool,
    order: bool,
}

/// A time seen from the present.
#[derive(Clone, Copy, Debug)]
enum When {
    Past(u64),
    Ahead(u64),
    End(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Insert(When),
    /// With so many ticks of tolerance.
    InsertWithin(When, u64),
    InsertMany(When, u16),
    InsertUnscheduled,
    Cancel(prop::sample::Index),
    Reschedule(prop::sample::Index, When),
    RescheduleWithin(prop::sample::Index, When, u64),
    TouchGone(prop::sample::Index),
    CatchUp(u8),
    /// Turn to a time, `budget` tasks a call, until nothing more is due.
    Advance(When, usize),
    /// Turn to the next bucket, once, within a budget; leave what is due with the wheel if told.
    Turn {
        budget: usize,
        leave: bool,
    },
    /// Turn one task at a time, each inserting another as it fires: a callback that re-enters.
    ReEnter(When),
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        1 => (0u64..5000).prop_map(When::Past),
        5 => (0u64..300).prop_map(When::Ahead),
        4 => (any::<u64>(), 0u32..64).prop_map(|(bits, by)| When::Ahead(bits >> by)),
        1 => (0u64..8).prop_map(When::End),
    ]
}

fn budget() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), 1usize..10]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        36 => when().prop_map(Step::Insert),
        4 => (when(), 0u64..500).prop_map(|(when, more)| Step::InsertWithin(when, more)),
        1 => (when(), 1u16..300).prop_map(|(when, count)| Step::InsertMany(when, count)),
        2 => Just(Step::InsertUnscheduled),
        18 => index().prop_map(Step::Cancel),
        14 => (index(), when()).prop_map(|(index, when)| Step::Reschedule(index, when)),
        3 => (index(), when(), 0u64..500)
            .prop_map(|(index, when, more)| Step::RescheduleWithin(index, when, more)),
        3 => index().prop_map(Step::TouchGone),
        2 => any::<u8>().prop_map(Step::CatchUp),
        9 => (when(), budget()).prop_map(|(when, budget)| Step::Advance(when, budget)),
        8 => (budget(), prop::bool::weighted(0.2))
            .prop_map(|(budget, leave)| Step::Turn { budget, leave }),
        3 => when().prop_map(Step::ReEnter),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let slots = prop::sample::select(vec![2, 3, 5, 20, 60, 64, 200]);
    let start = prop::sample::select(vec![0, 1, 7777, END - 5000, END]);
    let phase = prop::sample::select(vec![0, 0, 1, 17]);
    let (late, order) = (prop::bool::ANY, prop::bool::ANY);
    (slots, start, phase, late, order).prop_map(|(slots, start, phase, late, order)| Setup {
        slots,
        start,
        phase,
        late,
        order,
    })
}

/// How often each path was taken.
type Paths = BTreeMap<String, u64>;

struct Model {
    setup: Setup,
    wheel: TimingWheel<u64>,
    /// Scheduled: (when it is due, task), the past counted as the present.
    due: BTreeSet<(u64, u64)>,
    /// Every task the wheel keeps: its id, and where it is in `due`.
    kept: BTreeMap<u64, (TaskId, Option<u64>)>,
    gone: Vec<TaskId>,
    next_task: u64,
    steps: u64,
    paths: Paths,
}

impl Model {
    fn new(setup: Setup) -> Self {
        let size = WheelSize::new(setup.slots).unwrap();
        let wheel = TimingWheel::with_phase(size, setup.start, setup.phase);
        let wheel = if setup.late { wheel.placing_late() } else { wheel };
        let wheel = if setup.order { wheel.keeping_order() } else { wheel };
        Model {
            setup,
            wheel,
            due: BTreeSet::new(),
            kept: BTreeMap::new(),
            gone: Vec::new(),
            next_task: 0,
            steps: 0,
            paths: Paths::new(),
        }
    }

    fn count(&mut self, path: &str) {
        *self.paths.entry(path.to_owned()).or_default() += 1;
    }

    fn time(&self, when: When) -> u64 {
        let now = self.wheel.now();
        match when {
            When::Past(by) => now.saturating_sub(by),
            When::Ahead(by) => now.saturating_add(by).min(END),
            When::End(by) => END - by,
        }
    }

    fn insert(&mut self, when: When) {
        let deadline = self.time(when);
        let scheduled = self.wheel.insert(deadline, self.next_task).unwrap();
        self.inserted(scheduled, deadline);
    }

    fn insert_within(&mut self, when: When, more: u64) {
        let earliest = self.time(when);
        let latest = earliest.saturating_add(more).min(END);
        let scheduled = self.wheel.insert_within(earliest, latest, self.next_task).unwrap();
        let chosen = self.chosen(scheduled.id, earliest, latest);
        self.inserted(scheduled, chosen);
    }

    /// The tick of a tolerance that the wheel has chosen: the best.
    fn chosen(&mut self, id: TaskId, earliest: u64, latest: u64) -> u64 {
        let chosen = self.wheel.deadline(id).unwrap();
        assert!((earliest..=latest).contains(&chosen), "{chosen} in {earliest}..={latest}");
        let best = (earliest..=latest).map(|tick| self.level_begun(tick)).max().unwrap();
        let first = (earliest..=latest).find(|&tick| self.level_begun(tick) == best);
        assert_eq!(Some(chosen), first, "in {earliest}..={latest}");
        self.count(if chosen > earliest { "tolerance used" } else { "tolerance not used" });
        chosen
    }

    /// The coarsest level of which a bucket begins at a tick, in wide arithmetic.
    fn level_begun(&self, tick: u64) -> u32 {
        let shifted = u128::from(tick) + u128::from(self.setup.phase);
        let begins = |level: &u32| {
            let unit = (self.setup.slots as u128).checked_pow(*level);
            unit.is_some_and(|unit| unit <= u128::from(u64::MAX) && shifted % unit == 0)
        };
        (0..64).take_while(begins).last().unwrap()
    }

    fn inserted(&mut self, scheduled: Scheduled, deadline: u64) {
        let task = self.next_task;
        self.next_task += 1;
        let at = deadline.max(self.wheel.now());
        assert!(scheduled.due <= at, "work after the deadline");
        self.due.insert((at, task));
        self.kept.insert(task, (scheduled.id, Some(at)));
        self.count(if deadline < self.wheel.now() { "insert in the past" } else { "insert" });
    }

    /// The kept task at an index.
    fn pick(&self, index: prop::sample::Index) -> Option<(u64, TaskId, Option<u64>)> {
        let nth = index.index(self.kept.len().max(1));
        self.kept.iter().nth(nth).map(|(&task, &(id, at))| (task, id, at))
    }

    fn cancel(&mut self, index: prop::sample::Index) {
        let Some((task, id, at)) = self.pick(index) else { return };
        let bucket = self.wheel.bucket_of(id);
        assert_eq!(self.wheel.cancel(id), Some(task));
        self.kept.remove(&task);
        self.due.remove(&(at.unwrap_or(0), task));
        self.gone.push(id);
        self.count(match bucket {
            None => "cancel off the wheel",
            Some((0, _)) => "cancel on level 0",
            Some(_) => "cancel above level 0",
        });
        let shared = |&(other, _): &(TaskId, _)| self.wheel.bucket_of(other) == bucket;
        if bucket.is_some() && self.kept.len() <= 200 && !self.kept.values().any(shared) {
            self.count("cancel of the last in its bucket");
        }
    }

    fn reschedule(&mut self, index: prop::sample::Index, when: When) {
        let Some((task, id, at)) = self.pick(index) else { return };
        let deadline = self.time(when);
        assert!(self.wheel.reschedule(id, deadline).is_some());
        self.rescheduled(task, id, at, deadline);
    }

    fn reschedule_within(&mut self, index: prop::sample::Index, when: When, more: u64) {
        let Some((task, id, at)) = self.pick(index) else { return };
        let earliest = self.time(when);
        let latest = earliest.saturating_add(more).min(END);
        assert!(self.wheel.reschedule_within(id, earliest, latest).is_some());
        let chosen = self.chosen(id, earliest, latest);
        self.rescheduled(task, id, at, chosen);
    }

    fn rescheduled(&mut self, task: u64, id: TaskId, at: Option<u64>, deadline: u64) {
        self.due.remove(&(at.unwrap_or(0), task));
        let to = deadline.max(self.wheel.now());
        self.due.insert((to, task));
        self.kept.insert(task, (id, Some(to)));
        self.count(match at {
            None => "reschedule from off the wheel",
            Some(at) if to < at => "reschedule earlier",
            Some(_) => "reschedule later",
        });
    }

    fn touch_gone(&mut self, index: prop::sample::Index) {
        let Some(&id) = self.gone.get(index.index(self.gone.len().max(1))) else { return };
        assert_eq!((self.wheel.get(id).copied(), self.wheel.cancel(id)), (None, None));
        assert_eq!((self.wheel.reschedule(id, 5), self.wheel.deadline(id)), (None, None));
        assert_eq!(self.wheel.reschedule_within(id, 5, 9), None);
        self.count("touch what is gone");
    }

    /// One call of `advance`; returns how many fired. What is due must come in order of tick.
    fn turn(&mut self, now: u64, budget: usize, leave: bool) -> usize {
        let levels = self.levels();
        let mut fired = Vec::new();
        let in_order = self.setup.order;
        let turn = self.wheel.advance(now, budget, |mut task| {
            let number = *task.get_mut();
            assert_eq!(u64::from(task.sequence()), if in_order { number + 1 } else { 0 });
            fired.push((task.deadline(), number));
            if !leave {
                task.take();
            }
        });
        assert!(turn.fired + turn.cascaded <= budget && turn.fired == fired.len());
        let mut last = 0;
        for &(deadline, task) in &fired {
            assert!(deadline <= now, "fired early: {deadline} at {now}");
            let (id, at) = self.kept.remove(&task).unwrap();
            let at = at.expect("only what is scheduled fires");
            assert!(self.due.remove(&(at, task)) && at >= last, "out of order of tick");
            last = at;
            if leave {
                self.kept.insert(task, (id, None));
                self.count("left with the wheel");
            } else {
                self.gone.push(id);
                self.count("fire");
            }
        }
        for (task, before) in levels {
            let after = self.kept.get(&task).and_then(|(id, _)| self.wheel.bucket_of(*id));
            if after.is_some_and(|(level, _)| level < before) {
                self.count(&format!("cascade from level {}", before.min(9)));
            }
        }
        if turn.next_due.is_some_and(|due| due <= now) {
            self.count("budget exhausted");
        } else {
            let overdue = self.due.first().filter(|&&(at, _)| at <= now);
            assert_eq!(overdue, None, "not fired by {now}");
        }
        fired.len()
    }

    /// The level of each scheduled task, unless they are many.
    fn levels(&self) -> Vec<(u64, usize)> {
        if self.kept.len() > 200 {
            return Vec::new();
        }
        let level = |(&task, (id, _)): (&u64, &(TaskId, _))| {
            self.wheel.bucket_of(*id).map(|(level, _)| (task, level))
        };
        self.kept.iter().filter_map(level).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(when) => self.insert(when),
            Step::InsertWithin(when, more) => self.insert_within(when, more),
            Step::InsertMany(when, count) => (0..count).for_each(|_| self.insert(when)),
            Step::InsertUnscheduled => {
                let id = self.wheel.insert_unscheduled(self.next_task).unwrap();
                self.kept.insert(self.next_task, (id, None));
                self.next_task += 1;
                self.count("insert unscheduled");
            }
            Step::Cancel(index) => self.cancel(index),
            Step::Reschedule(index, when) => self.reschedule(index, when),
            Step::RescheduleWithin(index, when, more) => self.reschedule_within(index, when, more),
            Step::TouchGone(index) => self.touch_gone(index),
            Step::CatchUp(by) => {
                let before = self.wheel.now();
                let to = before.saturating_add(by.into()).min(END);
                let free = self.wheel.next_due().is_none_or(|due| to < due);
                self.wheel.catch_up(to);
                assert_eq!(self.wheel.now(), if free { to } else { before });
                self.count("catch up");
            }
            Step::Advance(when, budget) => {
                let now = self.time(when).max(self.wheel.now());
                self.turn(now, budget, false);
                while self.wheel.next_due().is_some_and(|due| due <= now) {
                    self.turn(now, budget, false);
                }
                assert_eq!(self.wheel.now(), now);
            }
            Step::Turn { budget, leave } => {
                let Some(due) = self.wheel.next_due() else { return };
                self.turn(due, budget, leave);
            }
            Step::ReEnter(when) => {
                let mut left = 20;
                while let Some(due) = self.wheel.next_due().filter(|_| left > 0) {
                    left -= 1;
                    if self.turn(due, 1, false) > 0 {
                        self.insert(when);
                        self.count("re-entry");
                    }
                }
            }
        }
        self.check();
    }

    fn check(&mut self) {
        self.steps += 1;
        assert_eq!(
            (self.wheel.len(), self.wheel.scheduled_count()),
            (self.kept.len(), self.due.len())
        );
        assert_eq!(self.wheel.next_due().is_some(), !self.due.is_empty());
        if self.kept.len() > 200 && !self.steps.is_multiple_of(1000) {
            return;
        }
        self.wheel.assert_valid();
        let scheduled = self.kept.values().filter_map(|&(id, at)| Some((id, at?)));
        let (late, placed): (Vec<_>, Vec<_>) =
            scheduled.partition(|&(id, _)| self.wheel.bucket_of(id).is_none());
        assert!(late.is_empty() || self.setup.late, "in no bucket");
        let mut buckets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, at) in placed {
            buckets.entry(self.wheel.bucket_of(id).unwrap()).or_default().push(at);
        }
        let first = buckets.iter().map(|(&bucket, tasks)| self.bucket_due(bucket, tasks)).min();
        if let Some(near) = late.iter().map(|&(_, at)| at - 2048).min() {
            self.count("in no bucket yet");
            let first = first.map_or(near, |first| first.min(near));
            // What was cancelled may have been the first of them: then it is a look for nothing.
            let due = self.wheel.next_due().filter(|&due| due >= self.wheel.now());
            assert!(due.is_some_and(|due| due <= first), "{due:?} against {first}");
        } else {
            assert_eq!(self.wheel.next_due(), first, "next_due against every bucket");
        }
        let deadlines = self.kept.values().filter(|(_, at)| at.is_some());
        let deadlines = deadlines.filter_map(|&(id, _)| self.wheel.deadline(id));
        assert_eq!(self.wheel.next_deadline(), deadlines.min());
        let mut search = DeadlineSearch::default();
        while !self.wheel.search_deadline(&mut search, 3) {}
        assert_eq!(search.earliest, self.wheel.next_deadline());
    }

    /// When the bucket of some tasks is due, in wide arithmetic: as it begins, which is when each
    /// is due rounded down to the level's tick; or a quarter of a turn before that, when there are
    /// many and level 0 has two turns.
    fn bucket_due(&self, (level, slot): (usize, usize), tasks: &[u64]) -> u64 {
        let slots = self.setup.slots as u128;
        let (unit, early) = (slots.pow(level as u32), self.setup.late);
        let phase = u128::from(self.setup.phase);
        let number = (u128::from(tasks[0]) + phase) / unit;
        assert!(tasks.iter().all(|&at| (u128::from(at) + phase) / unit == number));
        let turns = if early && level == 0 { 2 } else { 1 };
        assert_eq!(slot as u128, number % (turns * slots), "the slot of {tasks:?}");
        let lead = if early && level == 1 && tasks.len() > 64 { slots / 4 } else { 0 };
        let due = (number * unit).saturating_sub(phase) - lead;
        u64::try_from(due).unwrap().max(self.wheel.now())
    }

    /// Takes out all that is left, as a shutdown does.
    fn shut_down(mut self) -> Paths {
        if !self.kept.is_empty() {
            self.count("shutdown with entries");
        }
        let mut from = 0;
        while let Some(id) = self.wheel.first_from(from) {
            let task = self.wheel.cancel(id).unwrap();
            assert_eq!(self.kept.remove(&task).map(|(kept, _)| kept), Some(id));
            from = id.index();
        }
        assert!(self.kept.is_empty() && self.wheel.is_empty() && self.wheel.scheduled_count() == 0);
        assert_eq!(self.wheel.next_due(), None);
        self.wheel.assert_valid();
        self.paths
    }
}

#[test]
fn the_wheel_agrees_with_an_ordered_set() {
    let steps = usize::try_from(effort(STEPS)).unwrap();
    let cases = u32::try_from(steps / STEPS_A_CASE).unwrap().max(1);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let counted = std::cell::RefCell::new(Paths::new());
    let made = std::cell::Cell::new(0);
    let case = (setup(), prop::collection::vec(step(), 1..2 * STEPS_A_CASE));
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let result = TestRunner::new_with_rng(config, random).run(&case, |(setup, steps)| {
        let mut model = Model::new(setup);
        steps.into_iter().for_each(|step| model.step(step));
        made.set(made.get() + model.steps);
        for (path, count) in model.shut_down() {
            *counted.borrow_mut().entry(path).or_default() += count;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let paths = counted.into_inner();
    println!("{} steps: {paths:#?}", made.get());
    let mut expected: Vec<String> = (1..10).map(|n| format!("cascade from level {n}")).collect();
    let others = [
        "budget exhausted",
        "cancel above level 0",
        "cancel of the last in its bucket",
        "cancel off the wheel",
        "cancel on level 0",
        "catch up",
        "fire",
        "in no bucket yet",
        "insert",
        "insert in the past",
        "insert unscheduled",
        "left with the wheel",
        "re-entry",
        "reschedule earlier",
        "reschedule from off the wheel",
        "reschedule later",
        "shutdown with entries",
        "tolerance not used",
        "tolerance used",
        "touch what is gone",
    ];
    expected.extend(others.map(String::from));
    for path in &expected {
        assert!(paths.get(path).is_some_and(|&count| count > 0), "never taken: {path}");
    }
    assert_eq!(paths.len(), expected.len(), "a path that nobody expects: {paths:?}");
}
