//! `TimingWheel`: the hierarchical timing wheel, pure. No clock, no lock, no thread.
//!
//! The wheel is a set of lists of tasks, bucketed by when they are due. Level 0 has a bucket for
//! each of the next `size` ticks, level 1 a bucket for each of the next `size` spans of `size`
//! ticks, and so on; a level is made when the first deadline needs it. When a coarse bucket falls
//! due its tasks are placed again, one or more levels down (a *cascade*); when a bucket of level 0
//! falls due its tasks are due. Time jumps from one non-empty bucket to the next.
//!
//! Invariants, each cited where it is kept:
//!
//! - **Never early**: a task reaches the sink only when `deadline <= now`.
//! - **Reached**: the present never passes a bucket that holds anything; so a bucket holds one unit
//!   of time, and a bucket that is due stays in place, each of its tasks still to be cancelled or
//!   rescheduled like any other, until the last one was handed over.

use std::iter::Sum;

use crate::wheel::{
    arena::{Arena, Full, Node, Position, TaskId},
    delay_queue::DelayQueue,
    geometry::{DueBucket, Geometry, WheelSize},
    late::{LATE_TICKS, Late},
    pages::Records,
    task_list::{Chunk, Front},
};

/// A hierarchical timing wheel of tasks `T`, driven by the ticks it is told.
///
/// All times are in ticks, absolute, any `u64`. The owner does the rest: it reads a clock, takes
/// whatever lock it needs, calls [`advance`](Self::advance), and runs what came out. The whole
/// contract is this loop:
///
/// ```
/// use timer_core::{TimingWheel, WheelSize};
///
/// let mut wheel = TimingWheel::new(WheelSize::KAFKA, 0);
/// wheel.insert(350, "later").unwrap();
/// wheel.insert(8, "soon").unwrap();
///
/// let mut fired = Vec::new();
/// let mut now = 0; // a simulation: time jumps to the next bucket
/// while let Some(due) = wheel.next_due() {
///     now = due;
///     wheel.advance(now, usize::MAX, |task| fired.push((now, task.take())));
/// }
/// assert_eq!(fired, [(8, "soon"), (350, "later")]);
/// ```
///
/// Insert and reschedule cost O(levels), at most 11 for the default size and 3 for a delay under
/// four minutes at 1 ms; cancel is O(1). A pending task costs about 22 bytes beside itself,
/// and up to 150 when it is alone in its bucket.
///
/// Source: G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*, SOSP 1987; the
/// sliding rule by which a deadline picks its level is Kafka's.
#[derive(Debug)]
#[repr(C)] // what starting and stopping a late task writes lies together
pub struct TimingWheel<T> {
    /// Where tasks go that are due soon.
    pub(super) buckets: Box<DelayQueue>,
    pub(super) nodes: Arena<T>,
    pub(super) now: u64,
    /// At or below the tick at which the first bucket is due; exact after `advance`.
    due_bound: u64,
    cancelled_count: u64,
    scheduled_count: u32,
    sequence: u32,
    /// Tasks that are due in a long while, if they are kept apart.
    pub(super) late: Option<Late>,
}

/// Counts of a wheel, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelCounts {
    /// As [`TimerStats::pending`](crate::TimerStats::pending).
    pub pending: u64,
    /// As [`TimerStats::cancelled`](crate::TimerStats::cancelled).
    pub cancelled: u64,
}

impl Sum for WheelCounts {
    fn sum<I: Iterator<Item = WheelCounts>>(all: I) -> WheelCounts {
        all.fold(WheelCounts::default(), |sum, one| WheelCounts {
            pending: sum.pending + one.pending,
            cancelled: sum.cancelled + one.cancelled,
        })
    }
}

/// What a peak has left behind: large blocks, which an allocator may take a long time to free.
pub(crate) type Leftover<T> = ((Option<Records<Node<T>>>, Vec<u32>), Option<Records<Chunk>>);

/// Where an insertion put a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// Names the task from now on.
    pub id: TaskId,
    /// The tick at which the wheel next has work for this task: its deadline, or before it the
    /// moment its coarse bucket is handed down. `u64::MAX` and off the wheel for "never".
    pub due: u64,
}

/// What a call of [`TimingWheel::advance`] did, and when to call again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advanced {
    /// Tasks handed to the sink.
    pub fired: usize,
    /// Tasks handed down to a lower level.
    pub cascaded: usize,
    /// The tick of the next bucket; not after the time just given when the budget ran out.
    /// `None` when nothing is scheduled.
    pub next_due: Option<u64>,
}

/// A task whose time has come, offered to the sink of [`TimingWheel::advance`].
///
/// [`take`](Self::take) removes it. Left alone it stays in the wheel's keeping, off every bucket,
/// until it is cancelled or rescheduled by its id.
#[derive(Debug)]
pub struct DueTask<'a, T> {
    nodes: &'a mut Arena<T>,
    index: u32,
}

impl<T> DueTask<'_, T> {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.nodes.id(self.index)
    }

    /// The deadline it was given, in ticks.
    pub fn deadline(&self) -> u64 {
        self.nodes.at(self.index).deadline
    }

    /// Its place in the order of insertion, a count that wraps at `u32::MAX`; 0 unless the wheel
    /// [keeps it](TimingWheel::keeping_order).
    pub fn sequence(&self) -> u32 {
        self.nodes.sequence(self.index)
    }

    /// The task.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.nodes.at_mut(self.index).task_mut()
    }

    /// Takes the task out. O(1).
    pub fn take(self) -> T {
        self.nodes.remove(self.index)
    }
}

impl<T> TimingWheel<T> {
    /// An empty wheel whose present is `start`.
    pub fn new(size: WheelSize, start: u64) -> Self {
        TimingWheel::with_phase(size, start, 0)
    }

    /// A wheel whose coarse buckets begin `phase` ticks earlier than those of an unshifted one.
    ///
    /// Give each of several wheels another phase, and their cascades do not fall on one tick. The
    /// last `phase` ticks of `u64` mean "never" to such a wheel.
    pub fn with_phase(size: WheelSize, start: u64, phase: u64) -> Self {
        TimingWheel {
            buckets: Box::new(DelayQueue::new(Geometry::new(size, phase))),
            nodes: Arena::new(),
            now: start,
            due_bound: u64::MAX,
            scheduled_count: 0,
            cancelled_count: 0,
            sequence: 0,
            late: None,
        }
    }

    /// With tasks that are due in 4096 ticks or more kept apart until their time comes near:
    /// starting and stopping them then costs less, and those that survive are looked at every 2048
    /// ticks. Level 0 then has two turns of slots, and a crowded bucket of level 1 is handed down
    /// early: what is due meanwhile comes first. To be called before anything is inserted.
    #[must_use]
    pub fn placing_late(mut self) -> Self {
        self.buckets.take_two_turns();
        self.late.get_or_insert_with(Late::new);
        self
    }

    /// With the place of each task in the order of insertion kept: its
    /// [sequence](DueTask::sequence). It takes 4 to 8 bytes for each task of the peak, until none
    /// is left. To be called before anything is inserted.
    #[must_use]
    pub fn keeping_order(mut self) -> Self {
        self.nodes.keep_order();
        self
    }

    /// The wheel's present: the latest tick it has been told of and has caught up with.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Tasks in the wheel's keeping, on a bucket or not. O(1).
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True when the wheel keeps no task.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Tasks that will fall due: those in a bucket. O(1).
    pub fn scheduled_count(&self) -> usize {
        self.scheduled_count as usize
    }

    /// Tasks that were cancelled while they were in a bucket.
    pub fn cancelled_count(&self) -> u64 {
        self.cancelled_count
    }

    /// What will fall due, and what was cancelled. O(1).
    #[doc(hidden)]
    pub fn counts(&self) -> WheelCounts {
        WheelCounts { pending: self.scheduled_count.into(), cancelled: self.cancelled_count }
    }

    /// How many tasks were inserted, a count that wraps: the [sequence](DueTask::sequence) of the
    /// last one, if [order is kept](Self::keeping_order).
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Has the next task's sequence follow this one: so several wheels can count together.
    pub fn follow(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// How many levels have been made.
    pub fn level_count(&self) -> usize {
        self.buckets.level_count()
    }

    /// Adds a task due at `deadline`. One in the past is due at the next
    /// [`advance`](Self::advance). O(levels).
    ///
    /// # Errors
    /// [`Full`] hands the task back when the wheel holds [`MAX_TASKS`](crate::MAX_TASKS).
    #[inline]
    pub fn insert(&mut self, deadline: u64, task: T) -> Result<Scheduled, Full<T>> {
        let id = self.keep(deadline, task)?;
        Ok(Scheduled { id, due: self.place(id.index) })
    }

    /// Adds a task that never falls due, until it is rescheduled. O(1).
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_unscheduled(&mut self, task: T) -> Result<TaskId, Full<T>> {
        self.keep(u64::MAX, task)
    }

    #[inline]
    fn keep(&mut self, deadline: u64, task: T) -> Result<TaskId, Full<T>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.nodes.insert(deadline, self.sequence, task).map_err(Full)
    }

    /// Puts a node that is on no list into its bucket; returns when the bucket is due.
    #[inline]
    fn place(&mut self, index: u32) -> u64 {
        let deadline = self.nodes.at(index).deadline.max(self.now);
        if deadline > self.buckets.geometry().last_tick() {
            return u64::MAX;
        }
        self.scheduled_count += 1;
        if let Some(late) = self.late.as_mut().filter(|_| deadline - self.now >= LATE_TICKS) {
            let due = late.add(&mut self.nodes, index);
            self.due_bound = self.due_bound.min(due);
            return due;
        }
        let due = self.buckets.place(&mut self.nodes, index, deadline, self.now);
        self.due_bound = self.due_bound.min(due);
        due
    }

    /// Takes a node off the bucket it is in; false if it is in none.
    #[inline]
    fn unlink(&mut self, index: u32) -> bool {
        let position = self.nodes.at(index).position;
        match &mut self.late {
            _ if position == Position::NONE => return false,
            Some(late) if position.entry_at().is_none() => late.remove(&mut self.nodes, index),
            _ => self.buckets.remove(&mut self.nodes, index),
        }
        self.scheduled_count -= 1;
        true
    }

    /// The task of `id`, if the wheel still keeps it. O(1).
    pub fn get(&self, id: TaskId) -> Option<&T> {
        self.nodes.get(id).map(Node::task)
    }

    /// The task of `id`, if the wheel still keeps it. O(1).
    #[inline]
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut T> {
        self.nodes.get_mut(id).map(Node::task_mut)
    }

    /// The task at the index of a task that the wheel keeps. O(1).
    ///
    /// # Panics
    /// When it keeps none there.
    #[doc(hidden)]
    #[inline]
    pub fn at(&self, index: u32) -> &T {
        self.nodes.at(index).task()
    }

    /// See [`at`](Self::at).
    #[doc(hidden)]
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut T {
        self.nodes.at_mut(index).task_mut()
    }

    /// The id of the task at an index, as in [`at`](Self::at).
    #[doc(hidden)]
    #[inline]
    pub fn id_at(&self, index: u32) -> TaskId {
        self.nodes.id(index)
    }

    /// The deadline of `id` in ticks, as it was given. O(1).
    pub fn deadline(&self, id: TaskId) -> Option<u64> {
        self.nodes.get(id).map(|node| node.deadline)
    }

    /// Takes a task out: at once, off the bucket and out of memory. `None` if it is gone already.
    /// O(1).
    #[inline]
    pub fn cancel(&mut self, id: TaskId) -> Option<T> {
        self.nodes.get(id)?;
        self.cancelled_count += u64::from(self.unlink(id.index));
        let task = self.nodes.remove(id.index);
        if self.nodes.is_untidy() {
            drop(self.take_leftover());
        }
        Some(task)
    }

    /// Takes off what a peak has left behind, unless what was in it is still there.
    pub(crate) fn take_leftover(&mut self) -> Option<Leftover<T>> {
        let untidy = self.nodes.is_untidy() || self.buckets.is_untidy();
        untidy.then(|| (self.nodes.take_leftover(), self.buckets.take_leftover()))
    }

    /// Gives a task another deadline, earlier or later; it keeps its id. Returns when the wheel
    /// next has work for it, or `None` if it is gone. O(levels), without an allocation of a node.
    pub fn reschedule(&mut self, id: TaskId, deadline: u64) -> Option<u64> {
        self.nodes.get(id)?;
        self.unlink(id.index);
        self.nodes.at_mut(id.index).deadline = deadline;
        Some(self.place(id.index))
    }

    /// Lets the present move up to `now` without handing anything over: as far as the earliest
    /// bucket allows (Reached). After an idle time this is what makes a short delay go straight
    /// into its own bucket, instead of a coarse one that must be handed down. O(1), or O(levels)
    /// when a bucket has emptied since it was last asked.
    #[inline]
    pub fn catch_up(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        if now >= self.due_bound {
            self.due_bound = self.next_due().unwrap_or(u64::MAX);
        }
        // With nothing scheduled there is no bound: not `u64::MAX` either, which is a tick like any
        // other.
        if now < self.due_bound || self.scheduled_count == 0 {
            self.now = now;
        }
    }

    /// The tick of the earliest bucket, exactly: when to call [`advance`](Self::advance) next.
    /// `None` when nothing is scheduled. O(levels).
    pub fn next_due(&self) -> Option<u64> {
        let bucket = self.buckets.next_due(self.now);
        let late = self.late.as_ref().and_then(Late::due);
        bucket.into_iter().chain(late).min().map(|due| due.max(self.now))
    }

    /// The earliest deadline of a scheduled task, exactly. O(levels + the tasks of the earliest
    /// bucket of each level).
    pub fn next_deadline(&self) -> Option<u64> {
        let placed = self.buckets.earliest_deadline(&self.nodes, self.now);
        let late = self.late.iter().flat_map(|late| late.live(&self.nodes));
        placed.into_iter().chain(late.map(|index| self.nodes.at(index).deadline)).min()
    }

    /// Advances the wheel to `now`: every task due by then is offered to `sink`, in order of tick,
    /// but for at most `budget` tasks (offered or handed down) a call; call again while
    /// [`Advanced::next_due`] is not after `now`. A `now` in the past counts as the present.
    ///
    /// The sink runs between two steps of the wheel and sees only the task. O(buckets due +
    /// budget).
    pub fn advance(
        &mut self,
        now: u64,
        budget: usize,
        sink: impl FnMut(DueTask<'_, T>),
    ) -> Advanced {
        let advanced = self.turn(now, budget, sink);
        drop(self.take_leftover());
        advanced
    }

    /// As [`advance`](Self::advance), for an owner who drops the [leftover](Self::take_leftover).
    pub(crate) fn turn(
        &mut self,
        now: u64,
        budget: usize,
        mut sink: impl FnMut(DueTask<'_, T>),
    ) -> Advanced {
        let target = now.max(self.now);
        let mut advanced = Advanced { fired: 0, cascaded: 0, next_due: None };
        let mut looked = 0;
        while advanced.fired + advanced.cascaded + looked < budget && target >= self.due_bound {
            let bucket = self.buckets.first_due(target, self.now);
            let late =
                self.late.as_ref().filter(|late| late.due().is_some_and(|due| due <= target));
            match (late, bucket) {
                // What is due comes first, as long as nothing on the late list may be.
                (Some(late), bucket)
                    if bucket.is_none_or(|bucket| late.deadline_bound() <= bucket.expiration) =>
                {
                    self.now = self.now.max(late.due().unwrap_or(0)); // Reached
                    let left = budget - advanced.fired - advanced.cascaded - looked;
                    looked += self.look_at_late(left, &mut advanced);
                }
                (_, Some(bucket)) => {
                    self.now = self.now.max(bucket.expiration.min(target)); // Reached
                    self.empty(bucket, budget, &mut advanced, &mut sink);
                }
                _ => break,
            }
        }
        advanced.next_due = self.next_due();
        self.due_bound = advanced.next_due.unwrap_or(u64::MAX);
        self.catch_up(target);
        advanced
    }

    /// Puts into buckets what is not late any more; returns how many steps it took besides.
    fn look_at_late(&mut self, budget: usize, advanced: &mut Advanced) -> usize {
        let Some(late) = &mut self.late else { return 0 };
        let mut near = Vec::new();
        let looked = late.look(&mut self.nodes, self.now, budget, &mut near);
        self.scheduled_count -= near.len() as u32;
        advanced.cascaded += near.len();
        let looked = looked - near.len();
        near.into_iter().for_each(|index| _ = self.place(index));
        looked
    }

    /// Hands over or hands down what is in a due bucket, within the budget.
    fn empty(
        &mut self,
        bucket: DueBucket,
        budget: usize,
        advanced: &mut Advanced,
        sink: &mut impl FnMut(DueTask<'_, T>),
    ) {
        let mut front = Front::default();
        while advanced.fired + advanced.cascaded < budget {
            let Some(index) = front.next() else {
                front = self.buckets.front(&self.nodes, bucket);
                if front.is_empty() {
                    return;
                }
                continue;
            };
            self.buckets.pop_front(&mut self.nodes, bucket, index);
            self.scheduled_count -= 1;
            if self.nodes.at(index).deadline <= self.now {
                advanced.fired += 1; // Never early
                sink(DueTask { nodes: &mut self.nodes, index });
            } else {
                advanced.cascaded += 1;
                self.place(index);
            }
        }
    }

    /// Takes a task off its bucket: it never falls due, until it is rescheduled. False if it is
    /// gone. O(1).
    pub fn unschedule(&mut self, id: TaskId) -> bool {
        if self.nodes.get(id).is_none() {
            return false;
        }
        self.unlink(id.index);
        self.nodes.at_mut(id.index).deadline = u64::MAX;
        true
    }

    /// The first task in the wheel's keeping whose index is `index` or above: with `0`, then one
    /// above each id found, every task is visited, in no order that means anything.
    pub fn first_from(&self, index: u32) -> Option<TaskId> {
        self.nodes.first_from(index)
    }

    /// Walks every link and checks every invariant, for tests. O(n + buckets).
    ///
    /// # Panics
    /// When one does not hold.
    #[doc(hidden)]
    pub fn assert_valid(&self) {
        let late = self.late.as_ref().map_or(0, |late| late.assert_valid(&self.nodes));
        assert_eq!(self.buckets.assert_valid(&self.nodes, self.now) + late, self.scheduled_count());
        assert!(self.next_due().is_none_or(|due| due >= self.now && due >= self.due_bound));
    }

    /// Level and slot of a task in a bucket, for tests.
    #[doc(hidden)]
    pub fn bucket_of(&self, id: TaskId) -> Option<(usize, usize)> {
        self.nodes.get(id)?;
        self.buckets.level_and_slot(&self.nodes, id.index)
    }
}
