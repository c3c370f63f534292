//! `TimingWheel` beside an ordered set: every task fires once, when it is due and not before, in
//! order of tick; a budget is kept; what is cancelled, taken off or given another deadline is where
//! it should be.
//!
//! The reference knows nothing of buckets. It covers all of `u64`, the last ticks too, which a
//! wheel with a phase takes for "never".

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use timer_core::{TaskId, TimingWheel, WheelSize};

use crate::records;

/// Bytes of an operation; the widest takes 17.
pub const RECORD: usize = 18;

/// Stale items of a list of late tasks, beside four for each live one.
const LATE_STALE_MAX: usize = 1024;

/// Tasks kept at a time.
const KEPT_MAX: usize = 100;

/// Every link is walked after each of so many operations; from then on after one in so many, for
/// that costs more than all the rest.
const WALKED: u64 = 16;

/// What the bytes begin with.
#[derive(Arbitrary, Debug)]
struct Setup {
    slots: u8,
    start: When,
    phase: u8,
    late: bool,
}

/// A time, seen from the present.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum When {
    Past(u16),
    Ahead(u8),
    /// So many bits, shifted to the left: every level is as likely.
    Far(u8, u8),
    /// So long before the end of time.
    End(u8),
    At(u64),
}

/// One of the tasks, by its place among them.
type Pick = u8;

#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(When),
    InsertMany(When, u8),
    InsertUnscheduled,
    Cancel(Pick),
    Reschedule(Pick, When),
    Unschedule(Pick),
    /// Due at one of so many ticks more.
    InsertWithin(When, u8),
    RescheduleWithin(Pick, When, u8),
    /// Everything that names a task, with the id of one that is gone.
    TouchGone(Pick),
    CatchUp(When),
    /// Turns until nothing more is due.
    Advance {
        to: When,
        budget: u8,
    },
    /// Turns to the next bucket, once; what is due may be left in the wheel's keeping.
    Turn {
        budget: u8,
        leave: bool,
    },
    /// Each task that fires inserts another.
    ReEnter {
        times: u8,
        when: When,
    },
}

/// A task as the reference knows it.
struct Kept {
    id: TaskId,
    deadline: u64,
    /// When it is due, the past counted as the present; `None` for never.
    due: Option<u64>,
}

struct Beside {
    wheel: TimingWheel<u64>,
    kept: BTreeMap<u64, Kept>,
    /// (when it is due, task)
    due: BTreeSet<(u64, u64)>,
    gone: Vec<TaskId>,
    next_task: u64,
    cancelled: u64,
    steps: u64,
    /// What is due later is never due.
    last_tick: u64,
}

/// Decodes operations and does them until the bytes end.
///
/// # Panics
/// When the wheel and the reference disagree.
pub fn run(data: &[u8]) {
    let (setup, operations) = data.split_at(data.len().min(RECORD));
    for setup in records(setup, RECORD) {
        let mut beside = Beside::new(&setup);
        for operation in records(operations, RECORD) {
            beside.step(operation);
            beside.check();
        }
        beside.end();
    }
}

impl Beside {
    fn new(setup: &Setup) -> Self {
        let slots = WheelSize::MIN + usize::from(setup.slots);
        let size = WheelSize::new(slots).expect("above the least, far below the most");
        let phase = u64::from(setup.phase);
        let wheel = TimingWheel::with_phase(size, time(setup.start, 0), phase);
        Beside {
            wheel: if setup.late { wheel.placing_late() } else { wheel },
            kept: BTreeMap::new(),
            due: BTreeSet::new(),
            gone: Vec::new(),
            next_task: 0,
            cancelled: 0,
            steps: 0,
            last_tick: u64::MAX - phase,
        }
    }

    fn time(&self, when: When) -> u64 {
        time(when, self.wheel.now())
    }

    fn step(&mut self, operation: Operation) {
        self.steps += 1;
        match operation {
            Operation::Insert(when) => self.insert(when),
            Operation::InsertMany(when, count) => (0..count).for_each(|_| self.insert(when)),
            Operation::InsertWithin(when, more) => self.insert_within(when, more),
            Operation::RescheduleWithin(pick, when, more) => {
                self.reschedule_within(pick, when, more);
            }
            Operation::InsertUnscheduled => self.insert_unscheduled(),
            Operation::Cancel(pick) => self.cancel(pick),
            Operation::Reschedule(pick, when) => self.reschedule(pick, when),
            Operation::Unschedule(pick) => self.unschedule(pick),
            Operation::TouchGone(pick) => self.touch_gone(pick),
            Operation::CatchUp(when) => self.catch_up(when),
            Operation::Advance { to, budget } => {
                let now = self.time(to).max(self.wheel.now());
                self.advance(now, budget);
            }
            Operation::Turn { budget, leave } => {
                if let Some(due) = self.wheel.next_due() {
                    self.turn(due, budget_of(budget), leave);
                }
            }
            Operation::ReEnter { times, when } => {
                for _ in 0..times {
                    let Some(due) = self.wheel.next_due() else { return };
                    if self.turn(due, 1, false) > 0 {
                        self.insert(when);
                    }
                }
            }
        }
    }

    fn insert(&mut self, when: When) {
        if self.kept.len() >= KEPT_MAX {
            return;
        }
        let (task, deadline) = (self.next_task, self.time(when));
        self.next_task += 1;
        let scheduled = self.wheel.insert(deadline, task).expect("a wheel takes millions");
        self.keep(task, scheduled.id, deadline);
        assert!(
            scheduled.due <= self.kept[&task].due.unwrap_or(u64::MAX),
            "work after the deadline"
        );
    }

    fn insert_within(&mut self, when: When, more: u8) {
        if self.kept.len() >= KEPT_MAX {
            return;
        }
        let (task, earliest) = (self.next_task, self.time(when));
        self.next_task += 1;
        let latest = earliest.saturating_add(more.into());
        let scheduled = self.wheel.insert_within(earliest, latest, task);
        self.keep_chosen(task, scheduled.expect("a wheel takes millions").id, earliest, latest);
    }

    fn reschedule_within(&mut self, pick: Pick, when: When, more: u8) {
        let Some((task, id)) = self.pick(pick) else { return };
        let earliest = self.time(when);
        let latest = earliest.saturating_add(more.into());
        self.wheel.reschedule_within(id, earliest, latest).expect("it is kept");
        self.forget(task);
        self.keep_chosen(task, id, earliest, latest);
    }

    /// The reference learns of the deadline that the wheel has chosen.
    fn keep_chosen(&mut self, task: u64, id: TaskId, earliest: u64, latest: u64) {
        let chosen = self.wheel.deadline(id).expect("it is kept");
        assert!((earliest..=latest).contains(&chosen), "{chosen} in {earliest}..={latest}");
        self.keep(task, id, chosen);
    }

    fn insert_unscheduled(&mut self) {
        if self.kept.len() >= KEPT_MAX {
            return;
        }
        let task = self.next_task;
        self.next_task += 1;
        let id = self.wheel.insert_unscheduled(task).expect("a wheel takes millions");
        self.kept.insert(task, Kept { id, deadline: u64::MAX, due: None });
    }

    /// The reference learns of a deadline.
    fn keep(&mut self, task: u64, id: TaskId, deadline: u64) {
        let due = Some(deadline.max(self.wheel.now())).filter(|due| *due <= self.last_tick);
        self.due.extend(due.map(|due| (due, task)));
        self.kept.insert(task, Kept { id, deadline, due });
    }

    /// The reference forgets a task.
    fn forget(&mut self, task: u64) -> Option<Kept> {
        let kept = self.kept.remove(&task)?;
        if let Some(due) = kept.due {
            assert!(self.due.remove(&(due, task)));
        }
        Some(kept)
    }

    fn pick(&self, pick: Pick) -> Option<(u64, TaskId)> {
        let nth = usize::from(pick) % self.kept.len().max(1);
        self.kept.iter().nth(nth).map(|(task, kept)| (*task, kept.id))
    }

    fn cancel(&mut self, pick: Pick) {
        let Some((task, id)) = self.pick(pick) else { return };
        assert_eq!(self.wheel.get(id), Some(&task));
        assert_eq!(self.wheel.cancel(id), Some(task));
        let kept = self.forget(task);
        self.cancelled += u64::from(kept.is_some_and(|kept| kept.due.is_some()));
        self.gone.push(id);
    }

    fn reschedule(&mut self, pick: Pick, when: When) {
        let Some((task, id)) = self.pick(pick) else { return };
        let deadline = self.time(when);
        let work = self.wheel.reschedule(id, deadline).expect("it is kept");
        self.forget(task);
        self.keep(task, id, deadline);
        assert!(work <= self.kept[&task].due.unwrap_or(u64::MAX), "work after the deadline");
    }

    fn unschedule(&mut self, pick: Pick) {
        let Some((task, id)) = self.pick(pick) else { return };
        assert!(self.wheel.unschedule(id));
        self.forget(task);
        self.kept.insert(task, Kept { id, deadline: u64::MAX, due: None });
    }

    fn touch_gone(&mut self, pick: Pick) {
        let nth = usize::from(pick) % self.gone.len().max(1);
        let Some(&id) = self.gone.get(nth) else { return };
        assert_eq!((self.wheel.get(id).copied(), self.wheel.cancel(id)), (None, None));
        assert_eq!((self.wheel.reschedule(id, 0), self.wheel.deadline(id)), (None, None));
        assert!(!self.wheel.unschedule(id) && self.wheel.get_mut(id).is_none());
    }

    fn catch_up(&mut self, when: When) {
        let (before, to) = (self.wheel.now(), self.time(when));
        let free = self.wheel.next_due().is_none_or(|due| to < due);
        self.wheel.catch_up(to);
        assert_eq!(self.wheel.now(), if free { to.max(before) } else { before });
    }

    fn advance(&mut self, now: u64, budget: u8) {
        // Each call fires a task or hands one down, which each level does once; or looks at one of
        // the late and stale, all of which it does once for each late task at most.
        let (kept, stale) = (self.kept.len(), LATE_STALE_MAX);
        let calls_max = (kept + 1) * (self.wheel.level_count() + 1 + 4 * kept + stale);
        for _ in 0..calls_max {
            self.turn(now, budget_of(budget), false);
            if self.wheel.next_due().is_none_or(|due| due > now) {
                assert_eq!(self.wheel.now(), now);
                return;
            }
        }
        panic!("more than {calls_max} turns to {now}");
    }

    /// One call of `advance`; returns how many fired.
    fn turn(&mut self, now: u64, budget: usize, leave: bool) -> usize {
        let mut fired = Vec::new();
        let turn = self.wheel.advance(now, budget, |mut task| {
            fired.push((task.id(), task.deadline(), *task.get_mut()));
            if !leave {
                task.take();
            }
        });
        assert_eq!(turn.fired, fired.len());
        assert!(turn.fired + turn.cascaded <= budget, "over its budget");
        let mut last = 0;
        for &(id, deadline, task) in &fired {
            let kept = self.forget(task).expect("what fires was kept, and fires once");
            assert_eq!((kept.id, kept.deadline), (id, deadline));
            let due = kept.due.expect("only what is scheduled fires");
            assert!(due <= now, "fired early: {due} at {now}");
            assert!(due >= last, "out of order of tick");
            last = due;
            if leave {
                self.kept.insert(task, Kept { due: None, ..kept });
            } else {
                self.gone.push(id);
            }
        }
        assert_eq!(turn.next_due, self.wheel.next_due());
        if turn.next_due.is_none_or(|due| due > now) {
            let overdue = self.due.first().filter(|(due, _)| *due <= now);
            assert_eq!(overdue, None, "not fired by {now}");
        }
        fired.len()
    }

    fn check(&self) {
        if self.steps < WALKED || self.steps.is_multiple_of(WALKED) {
            self.wheel.assert_valid();
        }
        assert_eq!(self.wheel.len(), self.kept.len());
        assert_eq!(self.wheel.scheduled_count(), self.due.len());
        assert_eq!(self.wheel.cancelled_count(), self.cancelled);
        let first = self.due.first().map(|(due, _)| *due);
        let next = self.wheel.next_due();
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first, "work at {next:?}, after the first deadline {first:?}");
        let scheduled = self.kept.values().filter(|kept| kept.due.is_some());
        assert_eq!(self.wheel.next_deadline(), scheduled.map(|kept| kept.deadline).min());
    }

    /// What has a deadline fires when time comes to its end; the rest is taken out, as a shutdown
    /// does.
    fn end(mut self) {
        self.advance(u64::MAX, 0);
        assert!(self.due.is_empty());
        let mut from = 0;
        while let Some(id) = self.wheel.first_from(from) {
            let task = self.wheel.cancel(id).expect("it was found");
            assert_eq!(self.forget(task).map(|kept| kept.id), Some(id));
            from = id.index();
        }
        assert!(self.kept.is_empty());
        self.check();
        self.wheel.assert_valid();
    }
}

fn time(when: When, now: u64) -> u64 {
    match when {
        When::Past(by) => now.saturating_sub(by.into()),
        When::Ahead(by) => now.saturating_add(by.into()),
        When::Far(bits, by) => now.saturating_add(u64::from(bits) << (by % 57)),
        When::End(by) => u64::MAX - u64::from(by),
        When::At(tick) => tick,
    }
}

/// Zero is no budget: nothing would ever happen.
fn budget_of(byte: u8) -> usize {
    if byte == 0 { usize::MAX } else { byte.into() }
}
