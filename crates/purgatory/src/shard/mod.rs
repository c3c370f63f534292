//! A shard: the keys that hash to it, and their data. It holds the operations whose first key is
//! here, on its own timing wheel; the watches under each key, by operations of any shard; and
//! counts.
//!
//! It is pure: no lock, no clock, no thread. The only user code that runs in here is a key's `Eq`
//! and `Clone`, as the key is looked up and before anything is changed. Each call returns the
//! user's values that must be dropped, so that the caller drops them after the unlock.
//!
//! [`entry`] is the state machine of one operation, [`expire`] advances the wheel, [`Keys`] finds a
//! key's record, and [`watchers`] keeps the lists of watches and the walks over them.

mod entry;
pub(crate) mod expire;
mod links;
mod watchers;

use smallvec::SmallVec;
use timer_core::{
    TaskId, TickLength, TimerHandle, TimingWheel,
    driver::{ShardPlan, ShardState, sync::Latch},
};

use self::{
    entry::{AfterCheck, ColdState},
    links::{Ends, SLOT, SecondaryWatches, Waited, WalkCursor},
};
use crate::{
    error::WaitError,
    operation::{DelayedOperation, Outcome, ReachResult},
    stats::{Counts, OtherEnds, Stats, Times},
    table::{EndedAt, FormShard, Look, full, keys::Keys},
    watches::WatchKey,
};

pub(crate) use entry::{Cause, CheckedOut, Entry};
pub(crate) use links::{SecondaryId, WAITERS_MAX, Waiters, WalkId};

/// The reason why an entry is found.
const HOLDER_REMOVES: &str = "Holder removes: the entry of a payload is there";

/// The state that one lock guards.
#[derive(Debug)]
#[repr(C)] // the fields that each operation writes come first, in as few cache lines as possible
pub(crate) struct Shard<K, O> {
    wheel: TimingWheel<Entry<O>>,
    number: u8,
    /// Set before a shutdown removes the entries, tested before one is inserted.
    closed: bool,
    pub(crate) counts: Counts,
    keys: Keys<K, Waited>,
    cold: Cold,
}

/// The cold parts, made when one of them is first used.
type Cold = Option<Box<ColdParts>>;

/// The parts that an operation does not touch if it has one key and completes.
#[derive(Debug, Default)]
struct ColdParts {
    secondary: SecondaryWatches,
    /// The walks under way. A shard seldom has any.
    walks: Vec<WalkCursor>,
    walks_begun: u64,
    /// The number of operations that callers took out, to answer them.
    taken: u64,
    other_ends: OtherEnds,
}

/// The result of checking a payload in.
#[derive(Debug)]
pub(crate) enum CheckedIn<K, O> {
    /// The operation waits on.
    Parked,
    /// An event or a sweep came meanwhile: check it again. The caller still holds the entry.
    CheckAgain(CheckedOut<O>),
    /// The operation has ended.
    Ended(Ended<K, O>),
}

/// An operation that has ended, and is off the wheel and off the list of its first key.
#[derive(Debug)]
pub(crate) struct Ended<K, O> {
    pub(crate) payload: O,
    pub(crate) outcome: Outcome,
    pub(crate) to_release: ToRelease<K>,
}

/// The parts of an operation that has ended and is off its first key, still to be released.
#[derive(Debug)]
pub(crate) struct ToRelease<K> {
    /// True if its place among `max_parked` is still to be returned.
    pub(crate) has_place: bool,
    /// The deadline, in nanoseconds, if it passed while it was parked; else `u64::MAX`.
    pub(crate) due_ns: u64,
    /// The last of its secondary watches, all still to be released.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// Its first key, if that has no watch left.
    pub(crate) emptied_key: Option<K>,
    /// The cold part of its entry, to be dropped with nothing locked: it may have a reason of the
    /// user's.
    pub(crate) cold: Option<Box<ColdState>>,
}

impl<K> ToRelease<K> {
    /// Returns the parts of an operation that was never parked: none.
    pub(crate) fn nothing() -> Self {
        ToRelease {
            has_place: false,
            due_ns: u64::MAX,
            last_secondary: None,
            emptied_key: None,
            cold: None,
        }
    }
}

/// Several ended operations.
pub(crate) type AllEnded<K, O> = SmallVec<[Ended<K, O>; 8]>;

impl<K, O> ShardState for Shard<K, O> {
    type Task = Entry<O>;

    fn wheel(&mut self) -> &mut TimingWheel<Entry<O>> {
        &mut self.wheel
    }
}

impl<K: WatchKey, O: DelayedOperation> FormShard<K> for Shard<K, O> {
    fn close(&mut self) {
        self.closed = !failpoint!(ShutdownClosesNoShard);
    }

    fn waiting(&self) -> usize {
        self.wheel.len()
    }

    fn add_to(&self, stats: &mut Stats) {
        stats.parked += self.waiting() as u64;
        stats.watched += self.watched() as u64;
        self.counts.add_to(stats);
        if let Some(cold) = &self.cold {
            stats.taken += cold.taken;
            cold.other_ends.add_to(stats);
        }
    }

    fn times(&self) -> Option<&Times> {
        self.cold.as_ref()?.other_ends.times()
    }

    fn key_count(&self) -> usize {
        self.keys.len()
    }

    fn each_key(&self, visit: &mut dyn FnMut(&K, usize)) {
        for (key, waited) in self.keys.iter() {
            visit(key, waited.waiters as usize);
        }
    }

    fn look(&mut self, id: TaskId, now_ns: u64, tick: TickLength) -> Option<Look> {
        let deadline = self.wheel.deadline(id);
        let entry = self.wheel.get_mut(id)?;
        let due_ns = deadline.map(|deadline| tick.start_ns(deadline));
        Some(Look {
            age_ns: entry.age_ns(now_ns),
            due_ns: due_ns.or(entry.due_ns()),
            check_ns: entry.check_ns(now_ns),
            label: entry.label(),
        })
    }

    fn note_check(&mut self, id: TaskId, found_ns: u64, since_ns: u64) {
        if let Some(entry) = self.wheel.get_mut(id) {
            entry.note_check(found_ns, since_ns);
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Shard<K, O> {
    pub(crate) fn new(plan: &ShardPlan) -> Self {
        Shard {
            wheel: plan.wheel(),
            number: plan.number as u8, // below `MAX_SHARDS`
            closed: plan.is_closed,
            keys: Keys::default(),
            cold: None,
            counts: Counts::default(),
        }
    }

    /// Returns the number of watches here: the first watch of each operation, and the secondary
    /// ones.
    pub(crate) fn watched(&self) -> usize {
        self.waiting() + self.cold.as_ref().map_or(0, |cold| cold.secondary.len())
    }

    /// Returns the entry of an operation that has not ended.
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: TimerHandle) -> Option<&mut Entry<O>> {
        self.wheel.get_mut(handle.id())
    }

    /// Returns why the shard takes no operation now, or `None` if it takes one.
    pub(crate) fn refuses(&self) -> Option<WaitError> {
        match self.closed {
            true => Some(WaitError::Closed),
            false => full(self.wheel.len()),
        }
    }

    /// Counts an operation as parked, once all its keys are watched. Its parker still holds it.
    pub(crate) fn arrived(
        &mut self,
        handle: TimerHandle,
        last_secondary: Option<SecondaryId>,
        event_passed: bool,
    ) {
        self.counts.parked += 1;
        // Holder removes: the entry is there, whatever has happened meanwhile.
        if let Some(entry) = self.get_mut(handle) {
            entry.last_secondary = last_secondary;
            // A version that moved counts as an event that found the entry held. The event may be
            // another key's, so an operation without a condition ignores it and waits for one that
            // finds it.
            if event_passed && entry.has_condition() {
                entry.request_check();
            }
        }
    }

    /// Removes an operation that cannot be parked after all, with its first watch. Its parker holds
    /// it.
    pub(crate) fn withdraw(&mut self, handle: TimerHandle) -> Option<ToRelease<K>> {
        let withdrawn = self.remove_if(handle, |_, _, _| Some(((), u64::MAX)));
        withdrawn.reached().map(|((), to_release)| to_release)
    }

    /// Returns the index of a key's only waiter, if there is just one and its entry is here.
    pub(crate) fn only_here(&self, record: u32) -> Option<u32> {
        let Ends { head, tail } = self.keys.at(record).watches;
        if head == tail && head & SLOT == 0 {
            Some(head)
        } else {
            None
        }
    }

    /// Checks out, for an event, an operation whose entry is here. If it is held, its holder is
    /// left a request.
    pub(crate) fn check_out_here(&mut self, index: u32) -> Option<CheckedOut<O>> {
        let id = self.wheel.id_at(index);
        let payload = self.wheel.at_mut(index).check_out()?;
        let handle = TimerHandle::new(self.number as usize, id);
        Some(CheckedOut::new(handle, payload, Cause::Event))
    }

    /// Checks an operation out for an event. If it is held, its holder is left a request.
    pub(crate) fn check_out(&mut self, handle: TimerHandle) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(handle)?.check_out()?;
        Some(CheckedOut::new(handle, payload, Cause::Event))
    }

    /// Checks an operation out for a sweep if it was parked by then. If it is held, its holder is
    /// left a request.
    pub(crate) fn check_out_for_sweep(
        &mut self,
        handle: TimerHandle,
        parked_by_ns: u64,
    ) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(handle)?.check_out_for_sweep(parked_by_ns)?;
        Some(CheckedOut::new(handle, payload, Cause::NoEvent))
    }

    /// Checks a payload in with the result of its check.
    ///
    /// Always inlined: if the payload goes through memory, an event on a key with many waiters
    /// costs a third more.
    #[inline(always)]
    pub(crate) fn check_in(&mut self, held: CheckedOut<O>, ended_at: EndedAt) -> CheckedIn<K, O> {
        self.counts.checks += 1;
        // The verdict and the entry's pending requests decide.
        let CheckedOut {
            handle, payload, ..
        } = held;
        let entry = self.get_mut(handle).expect(HOLDER_REMOVES);
        match entry.after_check(held.verdict) {
            AfterCheck::End(outcome) => {
                let to_release = self.end(handle, &outcome, ended_at);
                CheckedIn::Ended(Ended {
                    payload,
                    outcome,
                    to_release,
                })
            }
            AfterCheck::CheckAgain(cause) => {
                CheckedIn::CheckAgain(CheckedOut::new(handle, payload, cause))
            }
            AfterCheck::Park => {
                entry.payload = Some(payload);
                CheckedIn::Parked
            }
        }
    }

    /// Takes a parked operation out, for the caller to answer. It has no outcome.
    pub(crate) fn take(&mut self, handle: TimerHandle) -> ReachResult<(O, ToRelease<K>)> {
        // Holder removes: leave no request, since the caller cannot be given the payload later.
        self.remove_if(handle, |entry, _, cold| {
            let payload = entry.payload.take()?;
            cold.get_or_insert_default().taken += 1;
            Some((payload, u64::MAX))
        })
    }

    /// Returns the entry of an operation that has not ended, with its first key.
    pub(crate) fn show(&mut self, handle: TimerHandle) -> Option<(&mut Entry<O>, &K)> {
        let entry = self.wheel.get_mut(handle.id())?;
        let first_key = self.keys.key(entry.link.record());
        Some((entry, first_key))
    }

    /// Ends an operation from outside; its holder, if it has one, is left a request. The outcome
    /// stays with the caller, as it may have a reason of the user's. Never inlined: few of its many
    /// callers are measured.
    #[inline(never)]
    pub(crate) fn claim(
        &mut self,
        handle: TimerHandle,
        outcome: &Outcome,
        ended_at: EndedAt,
    ) -> ReachResult<Ended<K, O>> {
        let claim = |entry: &mut Entry<O>| entry.claim(outcome);
        self.end_with_payload(handle, outcome, u64::MAX, ended_at, claim)
    }

    /// If the shard is closed, counts a held operation as under way until its holder has called it
    /// back: a shutdown ends it.
    pub(crate) fn hold_shutdown(&mut self, handle: TimerHandle, closing: &Latch) {
        if self.closed {
            if let Some(entry) = self.get_mut(handle) {
                entry.hold_shutdown(closing);
            }
        }
    }

    /// Ends an operation if `take` takes its payload.
    #[inline(always)]
    fn end_with_payload(
        &mut self,
        handle: TimerHandle,
        outcome: &Outcome,
        due_ns: u64,
        ended_at: EndedAt,
        take: impl FnOnce(&mut Entry<O>) -> Option<O>,
    ) -> ReachResult<Ended<K, O>> {
        let ended = self.end_if(handle, outcome, due_ns, ended_at, take);
        ended.map(|(payload, to_release)| Ended {
            payload,
            outcome: outcome.clone(),
            to_release,
        })
    }

    /// Ends an operation whose payload is out for good. Reads no request: a check that came true
    /// beats them all.
    #[inline(always)]
    pub(crate) fn end(
        &mut self,
        handle: TimerHandle,
        outcome: &Outcome,
        ended_at: EndedAt,
    ) -> ToRelease<K> {
        let ended = self.end_if(handle, outcome, u64::MAX, ended_at, |_| Some(()));
        let ((), to_release) = ended.reached().expect(HOLDER_REMOVES);
        to_release
    }

    /// Ends an operation, unless `take` returns `None`: counts the end and removes the entry.
    /// `due_ns` is the deadline in nanoseconds if the operation expires here, else `u64::MAX`.
    #[inline(always)]
    fn end_if<T>(
        &mut self,
        handle: TimerHandle,
        outcome: &Outcome,
        due_ns: u64,
        ended_at: EndedAt,
        take: impl FnOnce(&mut Entry<O>) -> Option<T>,
    ) -> ReachResult<(T, ToRelease<K>)> {
        self.remove_if(handle, |entry, counts, cold| {
            let due_ns = entry.due_ns().unwrap_or(due_ns);
            let taken = take(entry)?;
            match (outcome, ended_at) {
                (Outcome::Completed, None) => counts.completed += 1,
                _ => {
                    let ends = &mut cold.get_or_insert_default().other_ends;
                    let waited_ns = ended_at.map(|ended_at| entry.age_ns(ended_at));
                    ends.ended(counts, outcome, waited_ns);
                    // Lateness counts from the deadline, not from the wheel's visit.
                    if let (Outcome::Expired, Some(ended_at)) = (outcome, ended_at) {
                        ends.expired_late(ended_at.saturating_sub(due_ns));
                    }
                }
            }
            Some((taken, due_ns))
        })
    }

    /// Removes an entry and its first watch, unless `take` returns `None` because a thread has the
    /// payload. `take` returns the values that the caller takes from the entry, with the deadline
    /// if that has passed. O(1).
    #[inline(always)]
    fn remove_if<T>(
        &mut self,
        handle: TimerHandle,
        take: impl FnOnce(&mut Entry<O>, &mut Counts, &mut Cold) -> Option<(T, u64)>,
    ) -> ReachResult<(T, ToRelease<K>)> {
        // 1. The entry is looked up once. Only the fields still needed leave it, each into a
        //    variable of its own: together they would be moved through memory.
        let mut is_held = false;
        let mut taken = None;
        let mut link = None;
        let mut last_secondary = None;
        let mut cold = None;
        self.wheel.end_with(handle.id(), |place| {
            let entry = place.as_mut()?;
            taken = take(entry, &mut self.counts, &mut self.cold);
            if taken.is_none() {
                is_held = true;
                return None;
            }
            link = Some(entry.link);
            last_secondary = entry.last_secondary;
            cold = entry.cold.take(); // a pending end may have the user's reason
            *place = None;
            Some(())
        });
        let (Some((taken, due_ns)), Some(link)) = (taken, link) else {
            return match is_held {
                true => ReachResult::UnderCheck,
                false => ReachResult::Gone,
            };
        };
        // 2. Take off its first watch, by the link from its entry.
        let mut emptied_key = None;
        if !failpoint!(EndedStaysListed) {
            emptied_key = self.unlink(handle.id().index(), link);
        }
        let to_release = ToRelease {
            has_place: true,
            due_ns,
            last_secondary,
            emptied_key,
            cold,
        };
        ReachResult::Reached((taken, to_release))
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn an_empty_shard_takes_four_cache_lines() {
        let bytes = size_of::<Shard<u64, Box<u64>>>();
        assert!(
            bytes <= 4 * 64 - 16,
            "{bytes}: with its lock more than four cache lines"
        );
    }

    /// The lock takes the first 8 bytes.
    #[test]
    fn what_each_operation_counts_lies_in_one_cache_line() {
        let line = |offset: usize| (8 + offset) / 64;
        let counts = offset_of!(Shard<u64, Box<u64>>, counts);
        assert_eq!(line(counts), line(counts + offset_of!(Counts, checks)));
    }
}
