//! The wheel beside a reference, an ordered set of (due time, task). Every task fires once, when it
//! is due and not before, in order of tick; a budget is kept; a task that is cancelled, taken off
//! the wheel or given another deadline is where it should be. Two callers make steps with this
//! module: the test `model`, and `fuzz`, which decodes them from bytes.
//!
//! All of `u64` is covered, including the last ticks, which a wheel with a phase takes for "never".
//! Counts are compared after each step. Links are walked, and `next_due` is compared with the due
//! times of all buckets, calculated independently: after every 1000th step with more than 200
//! tasks, otherwise as often as [`Bounds`] say.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test of several files"
)]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use timer_core::{Scheduled, TaskId, TimingWheel, WheelSize};

/// Links are walked after each step before this one.
const WALKED_FIRST: u64 = 16;

#[derive(Arbitrary, Clone, Debug)]
pub struct Setup {
    /// The number of slots above the minimum.
    pub slots: u8,
    pub start: When,
    pub phase: u8,
    pub early: bool,
}

/// The bounds of a case.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The maximum number of tasks at a time.
    pub kept: usize,
    /// Links are walked once in this many steps.
    pub walked: u64,
}

/// A time, seen from the present.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum When {
    Past(u16),
    Ahead(u8),
    /// The first number, shifted to the left by the second, so that every level is equally likely.
    Far(u8, u8),
    /// This many ticks before the end of time.
    End(u8),
    At(u64),
}

/// Selects a task by its position among all.
pub type Pick = u8;

#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    Insert(When),
    InsertMany(When, u16),
    InsertUnscheduled,
    Cancel(Pick),
    Reschedule(Pick, When),
    Unschedule(Pick),
    /// Makes every call that takes an id, with the id of a task that is gone.
    TouchGone(Pick),
    CatchUp(When),
    /// Turns until nothing more is due, with a budget for each call.
    Advance {
        to: When,
        budget: u8,
    },
    /// Turns once, to the next bucket. Due tasks may be left on the wheel.
    Turn {
        budget: u8,
        leave: bool,
    },
    /// Turns one task at a time, each inserting another as it fires: a callback that re-enters.
    ReEnter {
        times: u8,
        when: When,
    },
}

/// The number of times that each path was taken.
pub type Paths = BTreeMap<String, u64>;

/// A task in the reference.
struct Kept {
    id: TaskId,
    deadline: u64,
    /// The time at which it is due. A past deadline counts as the present; `None` is never.
    due: Option<u64>,
}

pub struct Model {
    setup: Setup,
    bounds: Bounds,
    slots: u128,
    /// The last deadline that is ever due.
    last_tick: u64,
    wheel: TimingWheel<u64>,
    kept: BTreeMap<u64, Kept>,
    /// (due time, task)
    due: BTreeSet<(u64, u64)>,
    gone: Vec<TaskId>,
    next_task: u64,
    cancelled: u64,
    pub steps: u64,
    paths: Paths,
}

impl Model {
    pub fn new(setup: Setup, bounds: Bounds) -> Self {
        let slots = WheelSize::MIN + usize::from(setup.slots);
        let (size, start) = (WheelSize::new(slots).unwrap(), setup.start.from(0));
        let setup = Setup {
            phase: if setup.early { setup.phase } else { 0 },
            ..setup
        };
        let phase = u64::from(setup.phase);
        let last_tick = u64::MAX - phase.max(u64::from(setup.early));
        let wheel = match setup.early {
            true => TimingWheel::with_phase(size, start, phase),
            false => TimingWheel::new(size, start),
        };
        Model {
            setup,
            bounds,
            slots: slots as u128,
            last_tick,
            wheel,
            kept: BTreeMap::new(),
            due: BTreeSet::new(),
            gone: Vec::new(),
            next_task: 0,
            cancelled: 0,
            steps: 0,
            paths: Paths::new(),
        }
    }

    fn count(&mut self, path: &str) {
        match self.paths.get_mut(path) {
            Some(count) => *count += 1,
            None => _ = self.paths.insert(path.to_owned(), 1),
        }
    }

    fn time(&self, when: When) -> u64 {
        when.from(self.wheel.now())
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(when) => self.insert(when),
            Step::InsertMany(when, count) => {
                for _ in 0..count % 300 {
                    self.insert(when);
                }
            }
            Step::InsertUnscheduled => self.insert_unscheduled(),
            Step::Cancel(pick) => self.cancel(pick),
            Step::Reschedule(pick, when) => self.reschedule(pick, when),
            Step::Unschedule(pick) => self.unschedule(pick),
            Step::TouchGone(pick) => self.touch_gone(pick),
            Step::CatchUp(when) => self.catch_up(when),
            Step::Advance { to, budget } => {
                self.advance(self.time(to).max(self.wheel.now()), budget_of(budget));
            }
            Step::Turn { budget, leave } => {
                if let Some(due) = self.wheel.next_due() {
                    self.turn(due, budget_of(budget), leave);
                }
            }
            Step::ReEnter { times, when } => self.re_enter(times, when),
        }
        self.check();
    }

    fn insert(&mut self, when: When) {
        if self.kept.len() >= self.bounds.kept {
            return;
        }
        let (task, deadline) = (self.next_task, self.time(when));
        self.next_task += 1;
        let Scheduled { id, due, .. } = self.wheel.insert(deadline, task).unwrap();
        self.keep(task, id, deadline, due);
        self.count(if deadline < self.wheel.now() {
            "insert in the past"
        } else {
            "insert"
        });
    }

    fn insert_unscheduled(&mut self) {
        if self.kept.len() >= self.bounds.kept {
            return;
        }
        let id = self.wheel.insert_unscheduled(self.next_task).unwrap();
        self.kept.insert(
            self.next_task,
            Kept {
                id,
                deadline: u64::MAX,
                due: None,
            },
        );
        self.next_task += 1;
        self.count("insert unscheduled");
    }

    /// Records a deadline in the reference. The wheel has work for it at `work`.
    fn keep(&mut self, task: u64, id: TaskId, deadline: u64, work: u64) {
        let due = Some(deadline.max(self.wheel.now())).filter(|due| *due <= self.last_tick);
        assert!(work <= due.unwrap_or(u64::MAX), "work after the deadline");
        self.due.extend(due.map(|due| (due, task)));
        self.kept.insert(task, Kept { id, deadline, due });
    }

    /// Removes a task from the reference.
    fn forget(&mut self, task: u64) -> Kept {
        let kept = self.kept.remove(&task).expect("it is kept, and fires once");
        if let Some(due) = kept.due {
            assert!(self.due.remove(&(due, task)));
        }
        kept
    }

    /// Selects one of all tasks; if a pick cannot number them all, one of every second, third, ...
    fn pick(&self, pick: Pick) -> Option<(u64, TaskId)> {
        let count = self.kept.len();
        let nth = usize::from(pick) * count.div_ceil(256) % count.max(1);
        self.kept
            .iter()
            .nth(nth)
            .map(|(task, kept)| (*task, kept.id))
    }

    fn cancel(&mut self, pick: Pick) {
        let Some((task, id)) = self.pick(pick) else {
            return;
        };
        let bucket = self.wheel.bucket_of(id);
        assert_eq!(self.wheel.get(id), Some(&task));
        assert_eq!(self.wheel.cancel(id), Some(task));
        self.cancelled += u64::from(self.forget(task).due.is_some());
        self.gone.push(id);
        self.count(match bucket {
            None => "cancel off the wheel",
            Some((0, _)) => "cancel on level 0",
            Some(_) => "cancel above level 0",
        });
        let shared = |other: &Kept| self.wheel.bucket_of(other.id) == bucket;
        if bucket.is_some() && self.kept.len() <= 200 && !self.kept.values().any(shared) {
            self.count("cancel of the last in its bucket");
        }
    }

    fn reschedule(&mut self, pick: Pick, when: When) {
        let Some((task, id)) = self.pick(pick) else {
            return;
        };
        let deadline = self.time(when);
        let work = self.wheel.reschedule(id, deadline);
        let before = self.forget(task).due;
        self.keep(task, id, deadline, work.expect("it is kept"));
        self.count(match (before, self.kept[&task].due) {
            (None, _) => "reschedule from off the wheel",
            (Some(before), Some(due)) if due < before => "reschedule earlier",
            _ => "reschedule later",
        });
    }

    fn unschedule(&mut self, pick: Pick) {
        let Some((task, id)) = self.pick(pick) else {
            return;
        };
        assert!(self.wheel.unschedule(id));
        self.forget(task);
        self.kept.insert(
            task,
            Kept {
                id,
                deadline: u64::MAX,
                due: None,
            },
        );
        self.count("unschedule");
    }

    fn touch_gone(&mut self, pick: Pick) {
        let nth = usize::from(pick) % self.gone.len().max(1);
        let Some(&id) = self.gone.get(nth) else {
            return;
        };
        assert_eq!(self.wheel.get(id).copied(), None);
        assert_eq!(self.wheel.cancel(id), None);
        assert_eq!(self.wheel.reschedule(id, 5), None);
        assert_eq!(self.wheel.deadline(id), None);
        assert!(!self.wheel.unschedule(id) && self.wheel.get_mut(id).is_none());
        self.count("touch what is gone");
    }

    fn catch_up(&mut self, when: When) {
        let (before, to) = (self.wheel.now(), self.time(when));
        let free = self.wheel.next_due().is_none_or(|due| to < due);
        self.wheel.catch_up(to);
        assert_eq!(self.wheel.now(), if free { to.max(before) } else { before });
        self.count("catch up");
    }

    fn advance(&mut self, now: u64, budget: usize) {
        // Each call fires a task or hands one down, which each level does once for a task.
        let calls_max = (self.kept.len() + 1) * (self.wheel.level_count() + 1);
        for _ in 0..calls_max {
            self.turn(now, budget, false);
            if self.wheel.next_due().is_none_or(|due| due > now) {
                assert_eq!(self.wheel.now(), now);
                return;
            }
        }
        panic!("more than {calls_max} turns to {now}");
    }

    /// Calls `advance` once; returns how many tasks fired.
    fn turn(&mut self, now: u64, budget: usize, leave: bool) -> usize {
        let levels = self.levels();
        let mut fired = Vec::new();
        let turn = self.wheel.advance(now, budget, |mut task| {
            let number = *task.get_mut();
            assert_eq!(task.id().sequence(), number + 1);
            fired.push((task.id(), task.deadline(), number));
            if !leave {
                task.take();
            }
        });
        assert!(turn.fired + turn.cascaded <= budget && turn.fired == fired.len());
        let mut last = 0;
        for &(id, deadline, task) in &fired {
            let kept = self.forget(task);
            assert_eq!((kept.id, kept.deadline), (id, deadline));
            let due = kept.due.expect("only what is scheduled fires");
            assert!(due <= now, "fired early: {due} at {now}");
            assert!(due >= last, "out of order of tick");
            last = due;
            if leave {
                self.kept.insert(task, Kept { due: None, ..kept });
                self.count("left with the wheel");
            } else {
                self.gone.push(id);
                self.count("fire");
            }
        }
        for (task, before) in levels {
            let after = self
                .kept
                .get(&task)
                .and_then(|kept| self.wheel.bucket_of(kept.id));
            if after.is_some_and(|(level, _)| level < before) {
                self.count(&format!("cascade from level {}", before.min(9)));
            }
        }
        assert_eq!(turn.next_due, self.wheel.next_due());
        if turn.next_due.is_some_and(|due| due <= now) {
            self.count("budget exhausted");
        } else {
            let overdue = self.due.first().filter(|&&(due, _)| due <= now);
            assert_eq!(overdue, None, "not fired by {now}");
        }
        fired.len()
    }

    /// Returns the level of each scheduled task, unless there are many.
    fn levels(&self) -> Vec<(u64, usize)> {
        if self.kept.len() > 200 {
            return Vec::new();
        }
        let level = |(&task, kept): (&u64, &Kept)| Some((task, self.wheel.bucket_of(kept.id)?.0));
        self.kept.iter().filter_map(level).collect()
    }

    fn re_enter(&mut self, times: u8, when: When) {
        for _ in 0..times {
            let Some(due) = self.wheel.next_due() else {
                return;
            };
            if self.turn(due, 1, false) > 0 {
                self.insert(when);
                self.count("re-entry");
            }
        }
    }

    fn check(&mut self) {
        self.steps += 1;
        assert_eq!(self.wheel.len(), self.kept.len());
        assert_eq!(self.wheel.scheduled_count(), self.due.len());
        assert_eq!(self.wheel.cancelled_count(), self.cancelled);
        let first = self.due.first().map(|(due, _)| *due);
        let next = self.wheel.next_due();
        assert_eq!(next.is_some(), first.is_some());
        assert!(
            next <= first,
            "work at {next:?}, after the first deadline {first:?}"
        );
        let one_in = if self.kept.len() > 200 {
            1000
        } else {
            self.bounds.walked
        };
        if self.steps % one_in == 0 || one_in < 1000 && self.steps < WALKED_FIRST {
            self.walk();
        }
    }

    fn walk(&mut self) {
        self.wheel.assert_valid();
        let scheduled = self
            .kept
            .values()
            .filter_map(|kept| Some((kept.id, kept.due?)));
        let mut buckets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, at) in scheduled {
            buckets
                .entry(self.wheel.bucket_of(id).unwrap())
                .or_default()
                .push(at);
        }
        let first = buckets
            .iter()
            .map(|(&bucket, tasks)| self.bucket_due(bucket, tasks))
            .min();
        assert_eq!(
            self.wheel.next_due(),
            first,
            "next_due against every bucket"
        );
    }

    /// Returns when the bucket of some tasks is due, in wide arithmetic. That is the bucket's first
    /// tick, to which each due time rounds down, or a quarter of the bucket's ticks before that if
    /// buckets are handed down early.
    fn bucket_due(&self, (level, slot): (usize, usize), tasks: &[u64]) -> u64 {
        let (unit, early) = (self.slots.pow(level as u32), self.setup.early);
        let phase = u128::from(self.setup.phase);
        let number = (u128::from(tasks[0]) + phase) / unit;
        assert!(
            tasks
                .iter()
                .all(|&at| (u128::from(at) + phase) / unit == number)
        );
        let turns = if early { 2 } else { 1 };
        let expected = number % (turns * self.slots);
        assert_eq!(slot as u128, expected, "the slot of {tasks:?}");
        let lead = if early { unit / 4 } else { 0 };
        let due = (number * unit).saturating_sub(phase) - lead;
        u64::try_from(due).unwrap().max(self.wheel.now())
    }

    /// Advances to the end of time, at which every task with a deadline has fired.
    #[allow(dead_code, reason = "the fuzz target's")]
    pub fn advance_to_the_end(&mut self) {
        self.advance(u64::MAX, usize::MAX);
        assert!(self.due.is_empty());
    }

    /// Takes out all remaining tasks, as a shutdown does.
    pub fn shut_down(mut self) -> Paths {
        if !self.kept.is_empty() {
            self.count("shutdown with entries");
        }
        let mut from = 0;
        while let Some(id) = self.wheel.first_from(from) {
            let task = self.wheel.cancel(id).unwrap();
            assert_eq!(self.kept.remove(&task).map(|kept| kept.id), Some(id));
            from = id.index();
        }
        assert!(self.kept.is_empty() && self.wheel.is_empty() && self.wheel.scheduled_count() == 0);
        assert_eq!(self.wheel.next_due(), None);
        self.wheel.assert_valid();
        self.paths
    }
}

impl When {
    fn from(self, now: u64) -> u64 {
        match self {
            When::Past(by) => now.saturating_sub(by.into()),
            When::Ahead(by) => now.saturating_add(by.into()),
            When::Far(bits, by) => now.saturating_add(u64::from(bits) << (by % 57)),
            When::End(by) => u64::MAX - u64::from(by),
            When::At(tick) => tick,
        }
    }
}

/// Zero means no limit: with a budget of zero nothing would ever happen.
fn budget_of(byte: u8) -> usize {
    if byte == 0 { usize::MAX } else { byte.into() }
}
