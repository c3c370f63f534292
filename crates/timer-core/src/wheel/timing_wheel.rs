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
//! - **Reached**: the present never passes a bucket that holds anything. So a bucket holds one unit
//!   of time. A bucket that is due stays in place until its last task was handed over, and each of
//!   its tasks can be cancelled or rescheduled until then.
//! - **Due first**: a bucket that is handed down ahead of its expiration gets the part of the
//!   budget that due tasks leave.

use crate::wheel::{
    buckets::{Buckets, Entry, Placed},
    geometry::{DueBucket, Geometry, WheelSize},
    node::{LIVE, NO_PLACE, Node, Nodes, TaskId},
    step,
};

/// A hierarchical timing wheel of tasks `T`, advanced to the ticks it is given.
///
/// All times are in ticks, absolute, any `u64`. The owner does the rest: it reads a clock, takes
/// whatever lock it needs, calls [`advance`](Self::advance), and runs the tasks that come out. The
/// whole contract is this loop:
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
/// four minutes at 1 ms; cancel is O(1). A pending task costs about 26 bytes beside an `Option`
/// of it.
///
/// Source: G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*, SOSP 1987; the
/// sliding rule by which a deadline picks its level is Kafka's.
#[derive(Debug)]
pub struct TimingWheel<T> {
    /// Boxed, so that a structure with many wheels in it is small.
    buckets: Box<Buckets>,
    pub(super) nodes: Nodes<T>,
    now: u64,
    /// A lower bound of the tick at which the first bucket is due; exact after `advance`.
    due_bound: u64,
    /// The sequence of the task inserted last.
    sequence: u64,
    cancelled_count: u64,
    scheduled_count: u32,
}

/// The place where an insertion put a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// Names the task from now on.
    pub id: TaskId,
    /// The tick at which the wheel next has work for this task: its deadline, or an earlier tick at
    /// which its coarse bucket is handed down. `u64::MAX`, with the task in no bucket, for "never".
    pub due: u64,
}

/// The work of one call of [`TimingWheel::advance`], and when to call again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advanced {
    /// Tasks handed to the sink.
    pub fired: usize,
    /// Tasks handed down to a lower level.
    pub cascaded: usize,
    /// The tick of the next bucket; `None` when nothing is scheduled. If the budget ran out, this
    /// tick is not after the `now` just given.
    pub next_due: Option<u64>,
}

/// A task whose time has come, offered to the sink of [`TimingWheel::advance`].
///
/// [`take`](Self::take) removes it. A task that is left alone stays in the wheel's keeping, in no
/// bucket, until it is cancelled or rescheduled by its id.
#[derive(Debug)]
pub struct DueTask<'a, T> {
    nodes: &'a mut Nodes<T>,
    entry: Entry,
}

impl<T> DueTask<'_, T> {
    /// Returns the task's id.
    pub fn id(&self) -> TaskId {
        TaskId {
            index: self.entry.index,
            sequence: self.nodes.at(self.entry.index).sequence,
        }
    }

    /// Returns the deadline it was given, in ticks.
    pub fn deadline(&self) -> u64 {
        self.nodes.at(self.entry.index).deadline(self.entry.low)
    }

    /// Returns the task.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.nodes.at_mut(self.entry.index).task_mut()
    }

    /// Takes the task out. O(1).
    pub fn take(self) -> T {
        release_task(self.nodes, self.entry.index)
    }
}

/// Takes a task out of its node, which is in no bucket, and frees the node. O(1), but for the
/// freeing of an emptied page.
#[inline]
fn release_task<T>(nodes: &mut Nodes<T>, index: u32) -> T {
    let mut task = None;
    nodes.release_if(index, |node| {
        node.sequence = 0;
        task = node.task.take();
        true
    });
    task.expect(LIVE)
}

impl<T> TimingWheel<T> {
    /// Makes an empty wheel whose present is the tick `start`.
    pub fn new(size: WheelSize, start: u64) -> Self {
        TimingWheel::on(Geometry::new(size, 1, 0), start)
    }

    /// Makes an empty wheel like those of a timer's shards; its present is the tick `start`. It
    /// differs from a [`new`](Self::new) wheel in four ways, all but the third also with a phase of
    /// 0:
    ///
    /// - Each level has twice as many slots as `size` says, so that it overlaps the level above.
    /// - A coarse bucket is handed down early: from a quarter of its span before it expires, within
    ///   the part of the budget that due tasks leave. [`next_due`](Self::next_due) and
    ///   [`Scheduled::due`] return the tick at which that begins.
    /// - Its coarse buckets begin `phase` ticks earlier. If several wheels have different phases,
    ///   their cascades do not fall on one tick.
    /// - The last `phase` ticks of `u64`, and at least the last one, mean "never".
    pub fn with_phase(size: WheelSize, start: u64, phase: u64) -> Self {
        TimingWheel::on(Geometry::new(size, 2, phase), start)
    }

    fn on(geometry: Geometry, start: u64) -> Self {
        TimingWheel {
            buckets: Box::new(Buckets::new(geometry)),
            nodes: Nodes::default(),
            now: start,
            due_bound: u64::MAX,
            sequence: 0,
            cancelled_count: 0,
            scheduled_count: 0,
        }
    }

    /// Returns the wheel's present: the latest tick that it was given and has caught up with.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of tasks in the wheel's keeping, in a bucket or not. O(1).
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true when the wheel keeps no task.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns a number that grows with each task that is inserted or cancelled. O(1).
    pub(crate) fn changes(&self) -> u64 {
        self.sequence.wrapping_add(self.cancelled_count)
    }

    /// Returns the number of tasks that will fall due: those in a bucket. O(1).
    pub fn scheduled_count(&self) -> usize {
        self.scheduled_count as usize
    }

    /// Returns the number of tasks that were cancelled while they were in a bucket.
    pub fn cancelled_count(&self) -> u64 {
        self.cancelled_count
    }

    /// Sets the sequence that the next task's sequence follows, so that several wheels can count
    /// together.
    ///
    /// Never let a sequence come twice in one wheel, which does not check it: the id of a task that
    /// is gone would then name a later task with the same index.
    ///
    /// # Panics
    /// After `u64::MAX` the next insertion panics, if overflows are checked. Otherwise sequences
    /// begin again, at 0.
    pub fn follow(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Returns the number of levels up to the coarsest that was needed so far.
    pub fn level_count(&self) -> usize {
        self.buckets.level_count()
    }

    /// Adds a task due at `deadline`. A deadline in the past is due at the next
    /// [`advance`](Self::advance). O(levels).
    ///
    /// # Errors
    /// Returns the task when the wheel holds [`MAX_TASKS`](crate::MAX_TASKS).
    #[inline(always)] // as `cancel`
    pub fn insert(&mut self, deadline: u64, task: T) -> Result<Scheduled, T> {
        self.add(Some(deadline), task)
    }

    /// Adds a task that never falls due, until it is rescheduled. O(1).
    ///
    /// # Errors
    /// Returns the task as [`insert`](Self::insert) does.
    pub fn insert_unscheduled(&mut self, task: T) -> Result<TaskId, T> {
        Ok(self.add(None, task)?.id)
    }

    #[inline(always)] // as `cancel`
    fn add(&mut self, deadline: Option<u64>, task: T) -> Result<Scheduled, T> {
        let Some((scheduled, place)) = self.place(deadline) else {
            return Err(task);
        };
        *place = Some(task);
        Ok(scheduled)
    }

    /// Adds a task, due at `deadline` or never, and returns the place into which the caller puts
    /// the task before doing anything that may panic. So a task is moved once: a task that is
    /// passed in is moved for each step that may drop it.
    ///
    /// # Panics
    /// When the wheel holds [`MAX_TASKS`](crate::MAX_TASKS).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn insert_place(&mut self, deadline: Option<u64>) -> (Scheduled, &mut Option<T>) {
        self.place(deadline).expect("the wheel is not full")
    }

    /// Adds a place for a task, as [`insert_place`](Self::insert_place) does; `None` if the wheel is
    /// full.
    #[inline(always)] // as `cancel`
    fn place(&mut self, deadline: Option<u64>) -> Option<(Scheduled, &mut Option<T>)> {
        // 1. A node for it, looked up once.
        let (index, node) = self.nodes.claim_slot()?;
        // 2. Its bucket.
        let placed = match deadline {
            Some(deadline) => self.buckets.put(index, deadline, self.now),
            None => Placed::NEVER,
        };
        self.due_bound = placed.due.min(self.due_bound);
        self.scheduled_count += u32::from(placed.place != NO_PLACE);
        // 3. The node itself.
        self.sequence += 1;
        let sequence = self.sequence;
        node.sequence = sequence;
        node.place = placed.place;
        node.high = (deadline.unwrap_or(u64::MAX) >> 32) as u32;
        let scheduled = Scheduled {
            id: TaskId { index, sequence },
            due: placed.due,
        };
        Some((scheduled, &mut node.task))
    }

    /// Takes a node off the bucket in which it had this place. Returns false if it was in none.
    #[inline]
    fn unlink(&mut self, index: u32, place: u32) -> bool {
        let unlinked = self.buckets.remove(&mut self.nodes, index, place);
        self.scheduled_count -= u32::from(unlinked);
        unlinked
    }

    /// Takes a node off its bucket, as [`unlink`](Self::unlink) does, and counts it as cancelled.
    pub(super) fn unlink_cancelled(&mut self, index: u32, place: u32) {
        self.cancelled_count += u64::from(self.unlink(index, place));
    }

    /// Returns the node of a task, if the wheel still keeps it.
    fn node(&self, id: TaskId) -> Option<&Node<T>> {
        step();
        self.nodes.get(id.index).filter(|node| node.keeps(id))
    }

    /// Returns the node of a task, if the wheel still keeps it.
    fn node_mut(&mut self, id: TaskId) -> Option<&mut Node<T>> {
        step();
        self.nodes.get_mut(id.index).filter(|node| node.keeps(id))
    }

    /// Returns the task of `id`, if the wheel still keeps it. O(1).
    pub fn get(&self, id: TaskId) -> Option<&T> {
        self.node(id).map(Node::task)
    }

    /// Returns the task of `id`, if the wheel still keeps it. O(1).
    #[inline]
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut T> {
        Some(self.node_mut(id)?.task_mut())
    }

    /// Returns the deadline of `id` in ticks, as it was given, if it is to fall due. O(1).
    pub fn deadline(&self, id: TaskId) -> Option<u64> {
        self.buckets.deadline_of(self.node(id)?)
    }

    /// Takes a task out, off its bucket and out of memory at once. `None` if it is gone already.
    /// O(1).
    #[inline(always)] // a task that goes through memory on its way costs 50 instructions
    pub fn cancel(&mut self, id: TaskId) -> Option<T> {
        self.end_with(id, Option::take)
    }

    /// Reschedules a task, earlier or later; it keeps its id. Returns the tick at which the wheel
    /// next has work for it, or `None` if it is gone. O(levels), without an allocation of a node.
    pub fn reschedule(&mut self, id: TaskId, deadline: u64) -> Option<u64> {
        let place = self.node_mut(id)?.take_place();
        // Off the old bucket, into the new one; the node and its id stay.
        self.unlink(id.index, place);
        let placed = self.buckets.put(id.index, deadline, self.now);
        self.due_bound = placed.due.min(self.due_bound);
        self.scheduled_count += u32::from(placed.place != NO_PLACE);
        let node = self.nodes.at_mut(id.index);
        node.place = placed.place;
        node.high = (deadline >> 32) as u32;
        Some(placed.due)
    }

    /// Moves the present up to `now` without handing anything over, unless a bucket is due by then
    /// (Reached). O(1), or O(levels) when a bucket has emptied since it was last asked.
    ///
    /// After an idle time this sends a short delay straight into its own bucket, instead of a
    /// coarse one that must be handed down.
    #[inline]
    pub fn catch_up(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        // The bound may be too low, after a cancel.
        if now >= self.due_bound {
            self.due_bound = self.next_due().unwrap_or(u64::MAX);
        }
        // With nothing scheduled there is no bound, not even `u64::MAX`, which is a tick like any
        // other.
        if now < self.due_bound || self.scheduled_count == 0 {
            self.now = now;
        }
    }

    /// Returns the tick of the earliest bucket, exactly: when to call [`advance`](Self::advance)
    /// next. `None` when nothing is scheduled. O(levels), and O(1) once for each bucket that has
    /// emptied.
    pub fn next_due(&mut self) -> Option<u64> {
        self.buckets.next_due(self.now).map(|due| due.max(self.now))
    }

    /// Advances the wheel to `now` and offers every task due by then to `sink`, in order of tick.
    /// A `now` in the past counts as the present.
    ///
    /// One call offers or hands down at most `budget` tasks. Call again while
    /// [`Advanced::next_due`] is not after `now`. The sink runs between two steps of the wheel and
    /// sees only the task. O(buckets due + budget).
    pub fn advance(
        &mut self,
        now: u64,
        budget: usize,
        mut sink: impl FnMut(DueTask<'_, T>),
    ) -> Advanced {
        // A bucket at a time, as long as the budget lasts.
        let target = now.max(self.now);
        let mut advanced = Advanced::default();
        let mut rest = None;
        while advanced.fired + advanced.cascaded < budget {
            let bucket = match self.buckets.first_due(target, self.now) {
                Ok(bucket) => bucket,
                Err(next_due) => {
                    rest = Some(next_due);
                    break;
                }
            };
            // Reached. A bucket handed down early expires after `target`, where the present stops.
            self.now = self.now.max(bucket.expiration.min(target));
            self.empty(bucket, budget, &mut advanced, &mut sink);
        }
        // When all of it is done, the present moves on to `target`, as far as the next bucket
        // allows.
        advanced.next_due = rest.unwrap_or_else(|| self.next_due());
        self.due_bound = advanced.next_due.unwrap_or(u64::MAX);
        self.catch_up(target);
        advanced
    }

    /// Hands the tasks in a due bucket over or down, within the budget.
    fn empty(
        &mut self,
        bucket: DueBucket,
        budget: usize,
        advanced: &mut Advanced,
        sink: &mut impl FnMut(DueTask<'_, T>),
    ) {
        let max = budget - (advanced.fired + advanced.cascaded);
        // From above level 0 the tasks go down one level or more.
        if bucket.level > 0 {
            advanced.cascaded += self
                .buckets
                .hand_down(&mut self.nodes, bucket, self.now, max);
            return;
        }
        debug_assert!(bucket.expiration <= self.now, "Never early");
        let scheduled = &mut self.scheduled_count;
        let hand_over = |nodes: &mut Nodes<T>, entry| {
            *scheduled -= 1;
            sink(DueTask { nodes, entry });
        };
        advanced.fired += self
            .buckets
            .hand_over(&mut self.nodes, bucket, max, hand_over);
    }

    /// Takes a task off its bucket, so that it does not fall due until it is rescheduled. Returns
    /// false if it is gone. It does not count as cancelled. O(1).
    ///
    /// ```
    /// use timer_core::{TimingWheel, WheelSize};
    ///
    /// let mut wheel = TimingWheel::new(WheelSize::default(), 0);
    /// let id = wheel.insert(5, "paused").unwrap().id;
    /// assert!(wheel.unschedule(id));
    /// assert_eq!((wheel.next_due(), wheel.get(id)), (None, Some(&"paused")));
    /// wheel.reschedule(id, 9);
    /// assert_eq!(wheel.next_due(), Some(9));
    /// ```
    pub fn unschedule(&mut self, id: TaskId) -> bool {
        let Some(node) = self.node_mut(id) else {
            return false;
        };
        let place = node.take_place();
        self.unlink(id.index, place);
        true
    }

    /// Takes out a task that is in no bucket, such as one that was found due and left alone. `None`
    /// if it is gone, or in a bucket. O(1).
    pub(crate) fn take_unscheduled(&mut self, id: TaskId) -> Option<T> {
        let node = self.node_mut(id)?;
        if node.place != NO_PLACE {
            return None;
        }
        Some(release_task(&mut self.nodes, id.index))
    }

    /// Returns the first task in the wheel's keeping whose index is `index` or above. With `0`,
    /// then one above each id found, every task is visited, in no meaningful order. O(p) for the p
    /// pages of 64 tasks that it passes over: O(1) while most hold a task.
    ///
    /// ```
    /// use timer_core::{TimingWheel, WheelSize};
    ///
    /// let mut wheel = TimingWheel::new(WheelSize::default(), 0);
    /// for task in [1, 2, 3] {
    ///     wheel.insert(100 * task, task).unwrap();
    /// }
    /// let mut sum = 0;
    /// let mut from = 0;
    /// while let Some(id) = wheel.first_from(from) {
    ///     sum += wheel.get(id).unwrap();
    ///     from = id.index() + 1;
    /// }
    /// assert_eq!(sum, 1 + 2 + 3);
    /// ```
    pub fn first_from(&self, index: u32) -> Option<TaskId> {
        let index = self.nodes.first_from(index)?;
        Some(self.id_at(index))
    }

    /// Walks every link and checks every invariant, for tests. O(n + buckets).
    ///
    /// # Panics
    /// When an invariant does not hold.
    #[doc(hidden)]
    pub fn assert_valid(&mut self) {
        assert_eq!(
            self.buckets.assert_valid(&self.nodes, self.now),
            self.scheduled_count()
        );
        assert!(
            self.next_due()
                .is_none_or(|due| due >= self.now && due >= self.due_bound)
        );
    }

    /// Returns level and slot of a task in a bucket, for tests. O(rows of buckets).
    #[doc(hidden)]
    pub fn bucket_of(&self, id: TaskId) -> Option<(usize, usize)> {
        self.buckets.bucket_of(self.node(id)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> TimingWheel<T> {
        /// Makes the wheel add no pages of nodes to those that it has.
        pub(crate) fn make_no_page(&mut self) {
            self.nodes.make_no_page();
        }
    }
}
