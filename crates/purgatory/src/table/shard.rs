//! One shard: the state that its lock guards. It is pure: no clock, lock or thread.
//!
//! These are the ways out of *Waits*, and out of the shard:
//!
//! | | used for | leaves an entry | takes the wait off the records |
//! |---|---|---|---|
//! | [`Shard::answer`] | a wait with a future that its engine ends | with the answer | the caller |
//! | [`Shard::end_listed`] | any wait that its engine ends | with the answer, if a future waits | the caller |
//! | [`Shard::end`] | a wait that the table ends: time, cancel, shutdown | with an error, if a future waits | [`Engine::leave`] |
//! | [`Shard::remove`] | a wait that its future abandons | no | the caller |
//! | [`Shard::move_to`] | a move to another shard | with the forwarding, at the first move | the caller |
//! | [`Shard::take_answer`], [`Shard::take_error`] | a poll after the end | no | – (it is off already) |

use std::{
    mem::{self, ManuallyDrop},
    sync::Arc,
    task::Waker,
};

use timer_core::{
    Scheduled, TaskId, TickLength, TimerHandle, TimingWheel,
    driver::{ShardPlan, ShardState},
};

use crate::{
    error::WaitError,
    operation::Outcome,
    stats::{Counts, OtherEnds, Stats, Times},
    table::{
        Batch, Common, Ended, EndedAt, Engine, FormShard, LockedShard, Look, Parts,
        forwarding::Forwarding, full,
    },
};

/// One wait: a task of its shard's wheel.
pub(crate) struct Entry<E: Parts> {
    pub(super) since_ns: u64,
    pub(super) state: EntryState<E>,
}

/// The states of a wait. The tag is as wide as a word: a move copies the bytes after the tag, and
/// if an answer lay across two words of the copy, the processor would stall as it reads the answer.
#[repr(u64)]
pub(crate) enum EntryState<E: Parts> {
    Waits {
        wait: E::Wait,
        /// The waker of the last poll.
        waker: Option<Waker>,
    },
    /// The wait has ended. Its future has not taken the answer.
    Answered(Result<E::Answer, WaitError>),
    /// The wait has moved, and its future follows it.
    Moved(Arc<Forwarding>),
}

/// A wait that was taken out of its entry.
pub(crate) struct Taken<E: Parts> {
    pub(crate) wait: E::Wait,
    pub(crate) waker: Option<Waker>,
}

/// The state of one shard.
pub(crate) struct Shard<E: Parts> {
    pub(crate) wheel: TimingWheel<Entry<E>>,
    pub(crate) records: E::Records,
    pub(crate) counts: Counts,
    /// Events of the shard's keys.
    pub(crate) events: u64,
    /// Waits that ended without an entry.
    pub(crate) ended_at_once: u64,
    /// Entries that do not wait any more: their answer was not taken yet, or they moved.
    answered: u32,
    /// Entries that are no waits.
    held: u32,
    pub(crate) closed: bool,
    number: u8,
    common: Common,
    /// Made with the first end that is timed, or is no completion: few shards have one.
    other_ends: Option<Box<OtherEnds>>,
}

/// The reason why a wait is found at an index that the records name.
pub(crate) const LISTED: &str = "Listed: the records name entries that wait";

impl<E: Parts> ShardState for Shard<E> {
    type Task = Entry<E>;

    fn wheel(&mut self) -> &mut TimingWheel<Entry<E>> {
        &mut self.wheel
    }
}

impl<E: Engine> FormShard<E::Key> for Shard<E> {
    fn close(&mut self) {
        self.closed = !failpoint!(ShutdownClosesNoShard);
    }

    fn waiting(&self) -> usize {
        self.wheel.len() - (self.answered + self.held) as usize
    }

    fn add_to(&self, stats: &mut Stats) {
        self.counts.add_to(stats);
        if let Some(ends) = &self.other_ends {
            ends.add_to(stats);
        }
        stats.parked += self.waiting() as u64;
        stats.watched += self.waiting() as u64;
        stats.ended_at_once += self.ended_at_once;
        stats.events += self.events;
    }

    fn times(&self) -> Option<&Times> {
        self.other_ends.as_ref()?.times()
    }

    fn key_count(&self) -> usize {
        E::key_count(self)
    }

    fn each_key(&self, visit: &mut dyn FnMut(&E::Key, usize)) {
        E::each_key(&self.records, visit);
    }

    fn look(&mut self, id: TaskId, now_ns: u64, tick: TickLength) -> Option<Look> {
        let deadline = self.wheel.deadline(id);
        let entry = self.wheel.get(id)?;
        if !entry.wait().is_some_and(E::is_wait) {
            return None;
        }
        Some(Look {
            age_ns: now_ns.saturating_sub(entry.since_ns),
            due_ns: deadline.map(|deadline| tick.start_ns(deadline)),
            check_ns: None,
            label: None,
        })
    }
}

impl<E: Engine> EntryState<E> {
    /// Takes out the wait, which has not ended.
    #[inline(always)]
    fn into_taken(self) -> Taken<E> {
        match self {
            EntryState::Waits { wait, waker } => Taken { wait, waker },
            other => {
                mem::forget(other);
                panic!("{LISTED}")
            }
        }
    }
}

impl<E: Engine> Entry<E> {
    /// Returns the wait, unless it has ended.
    pub(crate) fn wait(&self) -> Option<&E::Wait> {
        match &self.state {
            EntryState::Waits { wait, .. } => Some(wait),
            EntryState::Answered(_) | EntryState::Moved(_) => None,
        }
    }

    #[inline]
    fn wait_mut(&mut self) -> Option<&mut E::Wait> {
        match &mut self.state {
            EntryState::Waits { wait, .. } => Some(wait),
            EntryState::Answered(_) | EntryState::Moved(_) => None,
        }
    }

    /// Returns the place of the last poll's waker, unless the wait has ended.
    pub(crate) fn waker_mut(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.state {
            EntryState::Waits { waker, .. } => Some(waker),
            EntryState::Answered(_) | EntryState::Moved(_) => None,
        }
    }
}

impl<E: Engine> Shard<E> {
    /// Makes an empty shard.
    pub(super) fn new(plan: &ShardPlan, common: Common) -> Self {
        Shard {
            wheel: plan.wheel(),
            records: E::Records::default(),
            counts: Counts::default(),
            events: 0,
            ended_at_once: 0,
            answered: 0,
            held: 0,
            closed: plan.is_closed,
            number: plan.number as u8,
            common,
            other_ends: None,
        }
    }

    /// Returns this shard's number.
    pub(crate) fn number(&self) -> usize {
        self.number as usize
    }

    /// Returns why a wait cannot be parked now; `None` if it can.
    pub(crate) fn refuses(&self) -> Option<WaitError> {
        match self.closed {
            true => Some(WaitError::Closed),
            false => full(self.wheel.len()),
        }
    }

    /// Adds an entry to a shard that is not full. The closure makes the wait in its place: a wait
    /// made before would be moved for each step that may drop it. O(levels of the wheel).
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        deadline_tick: Option<u64>,
        since_ns: u64,
        wait: impl FnOnce() -> E::Wait,
    ) -> Scheduled {
        self.follow_next();
        let (scheduled, place) = self.wheel.insert_place(deadline_tick);
        let wait = wait();
        let state = EntryState::Waits { wait, waker: None };
        mem::forget(place.replace(Entry { since_ns, state })); // the place was empty
        scheduled
    }

    /// Numbers the entry inserted next, where the order of entries across shards matters.
    fn follow_next(&mut self) {
        if let Some(follows) = self.common.follows() {
            self.wheel.follow(follows);
        }
    }

    /// Adds an entry that is no wait ([`Engine::is_wait`]), without a deadline. It counts nowhere
    /// and takes no place. Returns `None` if the shard is full. O(1).
    pub(crate) fn hold(&mut self, wait: E::Wait) -> Option<TaskId> {
        if full(self.wheel.len()).is_some() {
            return None;
        }
        self.held += 1;
        Some(self.insert(None, 0, || wait).id)
    }

    /// Returns the wait at an index that the records name.
    ///
    /// # Panics
    /// Panics if none waits there (Listed).
    pub(crate) fn wait(&self, index: u32) -> &E::Wait {
        self.wheel.at(index).wait().expect(LISTED)
    }

    /// Returns the wait at an index mutably, as [`wait`](Self::wait) does.
    #[inline]
    pub(crate) fn wait_mut(&mut self, index: u32) -> &mut E::Wait {
        self.wheel.at_mut(index).wait_mut().expect(LISTED)
    }

    /// Returns the wait of this id; `None` if it has ended.
    pub(crate) fn get(&self, id: TaskId) -> Option<&E::Wait> {
        self.wheel.get(id)?.wait()
    }

    /// Returns the wait of this id mutably; `None` if it has ended.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut E::Wait> {
        self.wheel.get_mut(id)?.wait_mut()
    }

    /// Answers the wait at an index that the records name; its entry stays for its future. Returns
    /// the wait, which the caller takes off the records. O(1).
    ///
    /// The entry is looked up once. Its old state is not dropped if a later step panics: for that,
    /// it and each copy of it would have to lie in memory.
    #[inline(always)]
    pub(crate) fn answer(
        &mut self,
        index: u32,
        answer: impl FnOnce() -> Result<E::Answer, WaitError>,
        outcome: &Outcome,
        ended_at: EndedAt,
    ) -> Taken<E> {
        let mut since_ns = 0;
        let state = self.wheel.stop_with(index, |entry| {
            since_ns = entry.since_ns;
            let answered = EntryState::Answered(answer());
            ManuallyDrop::new(mem::replace(&mut entry.state, answered))
        });
        self.answered += 1;
        self.count_end(outcome, since_ns, ended_at);
        ManuallyDrop::into_inner(state).into_taken()
    }

    /// Ends the wait of this id, which the records name, in one look-up: an entry that a future
    /// waits for is answered, any other is removed. `end` takes all that needs a drop out of the
    /// wait in its place: each step of a return would copy it. The caller takes the wait off the
    /// records. O(1).
    ///
    /// # Panics
    /// Panics if the entry does not wait (Listed).
    #[inline(always)]
    pub(crate) fn end_listed(
        &mut self,
        id: TaskId,
        answer: impl FnOnce() -> Result<E::Answer, WaitError>,
        outcome: &Outcome,
        ended_at: EndedAt,
        end: impl FnOnce(&mut E::Wait, &mut Option<Waker>),
    ) {
        let mut since_ns = None;
        let mut is_answered = false;
        self.wheel.end_with(id, |place| {
            let entry = place.as_mut()?;
            since_ns = Some(entry.since_ns);
            let EntryState::Waits { wait, waker } = &mut entry.state else {
                panic!("{LISTED}");
            };
            is_answered = E::is_awaited(wait);
            // `end` has taken all that needs a drop: the rest is forgotten.
            end(wait, waker);
            if is_answered {
                let answered = EntryState::Answered(answer());
                mem::forget(mem::replace(&mut entry.state, answered));
            } else {
                mem::forget(place.take());
            }
            Some(())
        });
        self.answered += u32::from(is_answered);
        self.count_end(outcome, since_ns.expect(LISTED), ended_at);
    }

    /// Removes and returns an entry that its future abandons. If it waited, the caller counts the
    /// end.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Entry<E>> {
        let entry = self.wheel.cancel(id)?;
        self.answered -= u32::from(entry.wait().is_none());
        Some(entry)
    }

    /// Returns the forwarding of a wait that was parked here and has moved.
    pub(crate) fn forwarding(&self, id: TaskId) -> Option<&Arc<Forwarding>> {
        match &self.wheel.get(id)?.state {
            EntryState::Moved(forwarding) => Some(forwarding),
            EntryState::Waits { .. } | EntryState::Answered(_) => None,
        }
    }

    /// Moves the wait at an index that the records name to another shard, which does not
    /// [refuse](Self::refuses) it. Its deadline, waker and place go along. `forwarding` comes from
    /// its last move. Returns its index there, and its forwarding from now on. The caller has taken
    /// it off the records here. O(levels of the wheel).
    pub(crate) fn move_to(
        &mut self,
        index: u32,
        to: &mut LockedShard<'_, E>,
        now_tick: u64,
        forwarding: Option<Arc<Forwarding>>,
    ) -> (u32, Arc<Forwarding>) {
        // 1. Make an empty place there, for the forwarding to name.
        let id = self.wheel.id_at(index);
        let deadline = self.wheel.deadline(id);
        let number = to.number();
        to.follow_next();
        to.wheel.catch_up(now_tick);
        let (scheduled, place) = to.wheel.insert_place(deadline);
        let moved = TimerHandle::new(number, scheduled.id);
        // 2. Move the wait. The entry in which it was parked stays for the future; any other is
        //    removed.
        let forwarding = if let Some(forwarding) = forwarding {
            forwarding.set(moved);
            *place = self.wheel.cancel(id);
            forwarding
        } else {
            let forwarding = Arc::new(Forwarding::to(moved));
            let sign = EntryState::Moved(forwarding.clone());
            *place = self.wheel.stop_with(index, |entry| {
                Some(Entry {
                    since_ns: entry.since_ns,
                    state: mem::replace(&mut entry.state, sign),
                })
            });
            self.answered += 1;
            forwarding
        };
        if deadline.is_some() {
            to.work_at(scheduled.due);
        }
        (moved.index(), forwarding)
    }

    /// Returns the place of the last poll's waker; `None` if the wait is not here any more.
    #[inline(always)]
    pub(super) fn waker_mut(&mut self, id: TaskId) -> Option<&mut Option<Waker>> {
        self.wheel.get_mut(id)?.waker_mut()
    }

    /// Takes the answer of a wait, if it was given one, and removes the entry. O(1).
    #[inline(always)]
    pub(super) fn take_answer(&mut self, id: TaskId) -> Option<E::Answer> {
        // The answer is moved into `answer` from its place: each step of a return would copy it.
        let mut answer = None;
        self.wheel.end_with(id, |place| {
            let is_answer =
                |entry: &mut Entry<E>| matches!(entry.state, EntryState::Answered(Ok(_)));
            let entry = place.take_if(is_answer)?;
            match entry.state {
                EntryState::Answered(Ok(taken)) => answer = Some(taken),
                other => mem::forget(other), // unreachable: it is an answer
            }
            Some(())
        })?;
        self.answered -= 1;
        answer
    }

    /// Takes the error of a wait that ended without an answer, and removes the entry. O(1).
    pub(super) fn take_error(&mut self, id: TaskId) -> Option<WaitError> {
        let EntryState::Answered(Err(_)) = self.wheel.get(id)?.state else {
            return None;
        };
        match self.remove(id)?.state {
            EntryState::Answered(answer) => answer.err(),
            EntryState::Waits { .. } | EntryState::Moved(_) => None,
        }
    }

    /// Ends a wait for the table. Adds it to `batch`, behind the waits that its leaving ends.
    /// Returns false if it has ended already.
    pub(crate) fn end(
        &mut self,
        engine: &E,
        id: TaskId,
        outcome: &Outcome,
        batch: &mut Batch<E>,
    ) -> bool {
        let error = || Err(WaitError::of(outcome.clone()));
        self.end_with(engine, id, error, outcome, batch)
    }

    /// Ends a wait as [`end`](Self::end) does, with this answer if a future waits for one.
    pub(crate) fn end_with(
        &mut self,
        engine: &E,
        id: TaskId,
        answer: impl FnOnce() -> Result<E::Answer, WaitError>,
        outcome: &Outcome,
        batch: &mut Batch<E>,
    ) -> bool {
        let Some(wait) = self.get(id) else {
            return false;
        };
        let is_wait = E::is_wait(wait);
        let taken = if E::is_awaited(wait) {
            // The entry stays, with the answer.
            self.answer(id.index(), answer, outcome, batch.ended_at)
        } else {
            let entry = self.wheel.cancel(id).expect(LISTED);
            if is_wait {
                self.count_end(outcome, entry.since_ns, batch.ended_at);
            } else {
                self.held -= 1;
            }
            entry.state.into_taken()
        };
        let left = engine.leave(self, id, taken.wait, outcome, batch);
        let waker = taken.waker;
        batch.ended.push(Ended { waker, left });
        true
    }

    /// Counts an end, and returns the place that the wait had (Place).
    #[inline(always)]
    pub(super) fn count_end(&mut self, outcome: &Outcome, since_ns: u64, ended_at: EndedAt) {
        if !failpoint!(AnsweredKeepsPlace) {
            self.common.return_place();
        }
        if let (Outcome::Completed, None) = (outcome, ended_at) {
            self.counts.completed += 1;
            return;
        }
        self.count_other_end(outcome, since_ns, ended_at);
    }

    #[inline(never)]
    fn count_other_end(&mut self, outcome: &Outcome, since_ns: u64, ended_at: EndedAt) {
        let ends = self.other_ends.get_or_insert_default();
        let waited_ns = ended_at.map(|ended_at| ended_at.saturating_sub(since_ns));
        ends.ended(&mut self.counts, outcome, waited_ns);
    }

    /// Records how late a wait expired.
    pub(crate) fn count_lateness(&mut self, late_ns: u64) {
        if let Some(ends) = &mut self.other_ends {
            ends.expired_late(late_ns);
        }
    }
}
