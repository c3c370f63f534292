//! Arrivals: an operation with several keys is put into its entry once its other keys are watched.
//!
//! Its entry is reserved before that, since the watches name it.
//!
//! - **Blank**: a reserved entry is held by its parker, on no list and in no bucket. It is no
//!   operation yet: nothing counts it, no tour visits it. A thread that comes to it by a watch
//!   leaves a note, as with any held entry. The parker acts on the notes as the operation arrives.

use timer_core::TimerHandle;

use super::{
    CheckedIn, EndedAt, Shard, Watermark,
    entry::{CheckedOut, ColdState, Decision, Entry, Notes, ParkInfo, ParkTimes, State},
    links::{Link, SecondaryId},
    watchers::Links,
};
use crate::{
    error::RefusedReason,
    operation::{DelayedOperation, Outcome, Verdict},
};

/// An operation whose keys are watched, but for the first.
#[derive(Debug)]
pub(crate) struct Arrival<'a, O> {
    /// Its entry, which is blank.
    pub(crate) handle: TimerHandle,
    pub(crate) operation: O,
    pub(crate) times: &'a ParkTimes,
    /// The last of its secondary watches.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// The watermark under its first key.
    pub(crate) watermark: Option<Watermark>,
    /// One of the keys saw an event since the check.
    pub(crate) event_passed: bool,
}

/// An operation that was put into its entry.
#[derive(Debug)]
pub(crate) struct Arrived<K, O> {
    pub(crate) checked_in: CheckedIn<K, O>,
    /// The tick at which the wheel has work for it; `u64::MAX` for never.
    pub(crate) due: u64,
}

impl<O> Entry<O> {
    /// Makes an entry that is reserved: its parker holds the payload.
    fn blank() -> Self {
        Entry {
            state: State::Held,
            last_secondary: None,
            link: Link {
                next: 0,
                ..Link::NOWHERE
            },
            cold: None,
            deadline: u64::MAX,
            parked_ns: 0,
            remaining: 0,
            notes: Notes::default(),
        }
    }

    /// Stores what its operation is parked with, and its secondary watches. `event_passed`: one of
    /// the keys saw an event since the parker checked.
    fn arrive(
        &mut self,
        times: &ParkTimes,
        last_secondary: Option<SecondaryId>,
        event_passed: bool,
    ) {
        // 1. The times and properties. A note may have made the cold part.
        self.last_secondary = last_secondary;
        self.deadline = times.deadline.unwrap_or(u64::MAX);
        self.parked_ns = times.parked_ns;
        if self.cold.is_some() || times.info != ParkInfo::PLAIN {
            self.cold.get_or_insert_with(ColdState::plain).info = times.info;
        }
        if times.last_check {
            self.notes.set(Notes::LAST_CHECK);
        }

        // 2. A version that moved counts as an event that found the entry held. An operation that
        //    needs a value does not complete without: it is checked for it.
        let mut is_checked = event_passed;
        if times.needs_value {
            self.notes.set(Notes::NEEDS_VALUE);
            if let Some(cold) = &mut self.cold {
                let completed = cold.end.take_if(|end| *end == Outcome::Completed);
                is_checked |= completed.is_some();
            }
        }
        if is_checked {
            self.notes.set(Notes::EVENT);
        }

        // 3. The watermarks, of which some may be met. With the last one it is complete.
        self.remaining = self.remaining.wrapping_add(times.counted as u16);
        if times.counted > 0 && self.remaining == 0 {
            self.note_end(&Outcome::Completed);
        }
    }
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Reserves an entry. `follows` is the sequence of the operation before, when order matters
    /// over several shards.
    pub(crate) fn reserve(&mut self, follows: Option<u64>) -> Result<TimerHandle, RefusedReason> {
        if let Some(reason) = self.refuses() {
            return Err(reason);
        }
        let wheel = &mut self.entries.wheel;
        if let Some(sequence) = follows {
            wheel.follow(sequence);
        }
        let Ok(id) = wheel.insert_unscheduled(Entry::blank()) else {
            unreachable!("a full shard refuses")
        };
        self.cold.blank += 1;
        Ok(TimerHandle::new(self.entries.shard as usize, id))
    }

    /// Reserves an entry ahead, for an operation that comes later. Returns `None` if one is there
    /// already, or the shard refuses it.
    #[inline]
    pub(crate) fn reserve_next(&mut self) -> Option<TimerHandle> {
        if self.cold.reserved.is_some() {
            return None;
        }
        self.cold.reserved = self.reserve(None).ok();
        self.cold.reserved
    }

    /// Returns the entry that is reserved ahead, if the shard has no operation.
    #[inline]
    pub(crate) fn idle_reserve(&self) -> Option<TimerHandle> {
        if self.len() > 0 {
            return None;
        }
        self.cold.reserved
    }

    /// Puts an operation into its entry, watches its first key, which has this record, and checks
    /// it in.
    pub(crate) fn arrive(
        &mut self,
        record: u32,
        arrival: Arrival<'_, O>,
        now_ns: EndedAt,
    ) -> Arrived<K, O> {
        // 1. Its first watch. The entry is blank no more.
        let Arrival { handle, times, .. } = arrival;
        let index = handle.id().index();
        self.reserve_used(handle);
        self.counts.parked += 1;
        let end = self.keys.list_end(record, arrival.watermark);
        self.entries.wheel.at_mut(index).link = end.link(record);
        Links::new(&mut self.entries, &mut self.cold).add(end, handle, index);

        // 2. Its bucket, unless it never falls due.
        let wheel = &mut self.entries.wheel;
        wheel.catch_up(times.now);
        let mut due = u64::MAX;
        if let Some(armed) = times.armed {
            due = wheel.reschedule(handle.id(), armed).unwrap_or(u64::MAX);
        }

        // 3. Its entry, which decides by the notes. The check before counts.
        self.counts.checks += 1;
        let entry = wheel.at_mut(index);
        entry.arrive(times, arrival.last_secondary, arrival.event_passed);
        let checked_in = match entry.check_in(arrival.operation, Verdict::Unsatisfied) {
            Decision::Parked => CheckedIn::Parked,
            Decision::CheckAgain(operation, cause) => {
                CheckedIn::CheckAgain(CheckedOut::new(handle, operation, cause))
            }
            Decision::Ended(operation, outcome) => {
                CheckedIn::Ended(self.remove_ended(handle, operation, outcome, now_ns))
            }
        };
        Arrived { checked_in, due }
    }

    /// Removes the entry of an operation that does not arrive after all. The caller drops it after
    /// it unlocked.
    pub(crate) fn withdraw(&mut self, handle: TimerHandle) -> Option<Entry<O>> {
        self.reserve_used(handle);
        self.entries.wheel.cancel(handle.id())
    }

    /// Returns the number of entries, blank ones included.
    #[cfg(test)]
    pub(crate) fn entry_count(&self) -> usize {
        self.entries.wheel.len()
    }

    fn reserve_used(&mut self, handle: TimerHandle) {
        self.cold.blank -= 1;
        if self.cold.reserved == Some(handle) {
            self.cold.reserved = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::entry::{Cause, CountedDown},
        *,
    };

    fn times(counted: usize, needs_value: bool) -> ParkTimes {
        ParkTimes {
            now: 0,
            deadline: Some(10),
            armed: None,
            parked_ns: 0,
            info: ParkInfo::PLAIN,
            counted,
            last_check: false,
            needs_value,
        }
    }

    /// An advance may meet the last watermark while its first key, a plain one, is not watched.
    #[test]
    fn watermarks_met_before_it_arrives_complete_it() {
        let mut entry = Entry::blank();
        for _ in 0..2 {
            assert_eq!(entry.count_down(), CountedDown::OthersRemain);
        }
        entry.arrive(&times(2, true), None, false);
        let ended = Decision::Ended(7, Outcome::Completed);
        assert_eq!(entry.check_in(7, Verdict::Unsatisfied), ended);
    }

    #[test]
    fn one_watermark_met_before_it_arrives_counts() {
        let mut entry = Entry::blank();
        assert_eq!(entry.count_down(), CountedDown::OthersRemain);
        entry.arrive(&times(2, false), None, false);
        let again = Decision::CheckAgain(7, Cause::Event);
        assert_eq!(entry.check_in(7, Verdict::Unsatisfied), again);
        assert_eq!(entry.count_down(), CountedDown::Last);
    }
}
