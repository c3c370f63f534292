//! The values of keys: watermarks that the shard itself keeps, beside the watches that wait for
//! them.
//!
//! Value and watches are under one lock, so a wait compares its threshold and parks in one step,
//! and an advance stores the value and takes what it meets in one step.
//!
//! A *quorum* has a watch under each of its keys, its members. The place of such a watch is the
//! state of the member: unmet, *met*, or nowhere, once its key was removed. So a quorum keeps no
//! state of its own that could differ.

use std::task::Waker;

use hashbrown::Equivalent;
use smallvec::SmallVec;
use timer_core::{TimerHandle, driver::Fate};

use super::{
    Ended, EndedAt, Inserted, ParkOptions, SecondaryId, Shard, Then, ToRelease, Watermark,
    awaited::last_waker_of,
    count_end,
    entries::Entries,
    entry::{Entry, Payload},
    flags::Flags,
    key_extras::{Lowest, Unmet, WatermarkKind},
    links::{Link, Popped, WatchList},
    watchers::Links,
};
use crate::operation::{Answering, DelayedOperation, Outcome};

/// The watches that a new value has met, some of them at a time.
#[derive(Debug)]
pub(crate) struct MetWaits<O> {
    /// Waits for this key alone.
    pub(crate) waits: SmallVec<[MetWait<O>; 8]>,
    /// The number of those whose answers are in their entries, and the sum of their weights.
    pub(crate) answered: u64,
    pub(crate) answered_weight: u64,
    /// Quorums of which this key is a member.
    pub(crate) quorums: Vec<TimerHandle>,
}

/// A wait for one key's value that has ended as Completed. Smaller than an [`Ended`]: it watches no
/// other key, and the record of its own stays, with the value.
#[derive(Debug)]
pub(crate) enum MetWait<O> {
    /// It is called back. It has its place, and this weight, until then.
    CallBack { payload: O, weight: u64 },
    /// Its answer is in its entry. Its task is woken, if it was polled.
    Wake(Option<Waker>),
}

impl<O> MetWaits<O> {
    pub(crate) fn new() -> Self {
        MetWaits {
            waits: SmallVec::new(),
            answered: 0,
            answered_weight: 0,
            quorums: Vec::new(),
        }
    }
}

impl<O> MetWait<O> {
    /// Returns its weight if it has a place, and what is left of its end.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Option<u64>, Then<O>) {
        match self {
            MetWait::CallBack { payload, weight } => {
                let deadline = u64::MAX; // it did not expire
                (Some(weight), Then::CallBack { payload, deadline })
            }
            MetWait::Wake(waker) => (None, Then::Wake(waker)),
        }
    }

    /// Returns it as any operation that has ended.
    pub(crate) fn into_ended<K>(self) -> Ended<K, O> {
        let (weight, then) = self.into_parts();
        Ended {
            then,
            outcome: Outcome::Completed,
            to_release: ToRelease::place_only(weight),
        }
    }
}

impl<O: DelayedOperation> Entries<O> {
    /// Ends a wait for one key's value as Completed, which `meet` gives the value, and adds it to
    /// `met`. `count` counts the end. Returns false if its watch had left. O(1).
    #[inline(always)]
    fn end_met(
        &mut self,
        unmet: &Unmet,
        record: u32,
        meet: &mut impl FnMut(&mut O) -> Answering,
        count: impl FnOnce(&Entry<O>),
        met: &mut MetWaits<O>,
    ) -> bool {
        let mut waited = false;
        let ended = &mut self.ended;
        // The entry is looked up once. Its slot may hold another operation by now: that one stays.
        self.wheel.end_with(unmet.handle.id(), |entry| {
            waited = entry.link.is_on(WatchList::Unmet, record);
            if !waited {
                return Fate::Stays;
            }
            entry.link = Link::NOWHERE;
            let weight = entry.info().weight;
            let is_abandoned = entry.flags.has(Flags::ABANDONED);
            let Payload::Here(payload) = &mut entry.payload else {
                unreachable!("a wait for one key is parked in one lock hold, and has no check");
            };
            // 1. One that a future waits for is the answer, and stays in the entry.
            if !is_abandoned {
                if let Answering::Made(waker) = meet(payload) {
                    let waker = last_waker_of(&mut entry.cold, waker);
                    met.waits.push(MetWait::Wake(waker));
                    met.answered += 1;
                    met.answered_weight += weight;
                    entry.flags.set(Flags::ENDED | Flags::ANSWERED);
                    *ended += 1;
                    count(entry);
                    return Fate::Stopped(());
                }
            }
            // 2. Any other leaves with its payload.
            if let Some(payload) = entry.take() {
                met.waits.push(MetWait::CallBack { payload, weight });
            }
            count(entry);
            Fate::Gone(())
        });
        waited
    }
}

/// The value of a key, as it was changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedValue {
    pub(crate) record: u32,
    pub(crate) value: u64,
    /// True when it meets watches, or watches that have left.
    pub(crate) meets_watches: bool,
}

/// The state of a quorum's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// Its value is below the threshold.
    Unmet,
    /// It was met, and its key's value is this now.
    Met(u64),
    /// Its key was removed.
    Removed,
}

/// A member of a quorum, and the watch of the one before.
#[derive(Debug)]
pub(crate) struct MemberWatch {
    pub(crate) member: Member,
    pub(crate) before: Option<SecondaryId>,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Returns the value of a key with a record.
    #[inline]
    pub(crate) fn value(&self, record: u32) -> Option<u64> {
        self.keys.at(record).value()
    }

    /// Returns the record of a key, if there is one, and its value; a missing value is 0. Runs the
    /// key's `Eq`.
    #[inline(always)]
    pub(crate) fn find_value<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> (Option<u32>, u64) {
        match self.keys.find_record(key, hash) {
            Some((number, record)) => (Some(number), record.value().unwrap_or(0)),
            None => (None, 0),
        }
    }

    /// Puts an operation in that waits for a value of one key, which has this record. The shard
    /// must not refuse it.
    #[inline(always)]
    pub(crate) fn park_for_value(
        &mut self,
        record: u32,
        threshold: u64,
        options: &ParkOptions,
        follows: Option<u64>,
        payload: O,
    ) -> Inserted {
        self.counts.parked += 1;
        let extras = self.keys.extras_end(record);
        let link = Link::new(WatchList::Unmet, record);
        let payload = Payload::Here(payload);
        let inserted = self.entries.insert(options, follows, payload, link);
        let watermark = Watermark {
            threshold,
            kind: WatermarkKind::Threshold,
        };
        let handle = inserted.handle;
        extras.push(watermark, handle, handle.id().index());
        inserted
    }

    /// Adds a record for a key that has none. It is to get a value, or a waiter, in this lock hold.
    pub(crate) fn add_key(&mut self, key: K, hash: u64) -> u32 {
        self.keys.add(key, hash)
    }

    /// Replaces a key's value by `to` of it. Returns `None` if the key has none.
    #[inline]
    pub(crate) fn change_value(
        &mut self,
        record: u32,
        to: impl FnOnce(u64) -> u64,
    ) -> Option<ChangedValue> {
        let at = self.keys.at_mut(record);
        let extras = at.extras.as_mut()?;
        let value = to(extras.value?);
        extras.value = Some(value);
        at.quiet_since = None; // that is an event, met or not
        Some(ChangedValue {
            record,
            value,
            meets_watches: extras.reaches(value),
        })
    }

    /// Sets a key's value.
    pub(crate) fn set_value(&mut self, record: u32, value: u64) -> ChangedValue {
        ChangedValue {
            record,
            value,
            meets_watches: self.keys.set_value(record, value).reaches(value),
        }
    }

    /// Finds a key of this hash whose value meets watches, which are still to be taken. No keys are
    /// compared.
    pub(crate) fn find_met(&self, hash: u64) -> Option<ChangedValue> {
        let record = self.keys.find_met(hash)?;
        Some(ChangedValue {
            record,
            value: self.value(record)?,
            meets_watches: true,
        })
    }

    /// Returns the epoch of a key's value: 0 if it was never reset.
    #[inline]
    pub(crate) fn epoch(&self, record: u32) -> u64 {
        let extras = &self.keys.at(record).extras;
        extras.as_ref().map_or(0, |extras| extras.epoch)
    }

    /// Begins an epoch of a key with a value: stores both, and puts the members back that this
    /// value does not meet. O(n log n) for n members of quorums.
    pub(crate) fn begin_epoch(&mut self, record: u32, epoch: u64, value: u64) -> ChangedValue {
        let changed = self.set_value(record, value);
        let mut links = Links::new(&mut self.entries, &mut self.cold);
        let extras = self.keys.extras_mut(record);
        extras.epoch = epoch;
        let is_met_member = |of: &_| links.is_on(of, WatchList::MemberMet, record);
        for member in extras.unmeet_members(value, is_met_member) {
            *links.at_mut(member.at) = Link::new(WatchList::Unmet, record);
        }
        changed
    }

    /// Returns the operations that wait for more than a key's value, in the order of (threshold,
    /// parking). O(n log n).
    pub(crate) fn unmet(&mut self, record: u32) -> Vec<TimerHandle> {
        let links = Links::new(&mut self.entries, &mut self.cold);
        match &self.keys.at(record).extras {
            Some(extras) => extras.waiting(|of| links.is_on(of, WatchList::Unmet, record)),
            None => Vec::new(),
        }
    }

    /// Takes the value of a key. Returns it with the key, if that has no waiters.
    pub(crate) fn take_value(&mut self, record: u32) -> (Option<u64>, Option<K>) {
        self.keys.take_value(record)
    }

    /// Returns the lowest threshold above the key's value that an operation waits for. O(1)
    /// amortised.
    pub(crate) fn lowest_unmet<Q: Equivalent<K> + ?Sized>(
        &mut self,
        key: &Q,
        hash: u64,
    ) -> Option<u64> {
        let record = self.find(key, hash)?;
        let links = Links::new(&mut self.entries, &mut self.cold);
        let extras = self.keys.at_mut(record).extras.as_mut()?;
        extras.lowest(|unmet| links.is_on(unmet, WatchList::Unmet, record))
    }

    /// Takes up to `limit` watches that `value` meets off a key with a value, in the order of
    /// (threshold, parking). Ends the waits for this key alone as Completed, after `meet` has given
    /// each the value; keeps the members of quorums, as met. Returns true when the limit was used
    /// up, so that more may be left.
    ///
    /// O(k log n) for k of n watches of the key.
    pub(crate) fn take_met(
        &mut self,
        record: u32,
        value: u64,
        limit: usize,
        now_ns: EndedAt,
        met: &mut MetWaits<O>,
        mut meet: impl FnMut(&mut O) -> Answering,
    ) -> bool {
        let Some(extras) = &mut self.keys.at_mut(record).extras else {
            return false;
        };
        let mut has_more = true;
        let mut ended = 0;
        for _ in 0..limit {
            // 1. Take the lowest watch off the queue, if it is met. One that has left counts as a
            //    step, so that a call is bounded.
            let Some(unmet) = extras.take_lowest(value) else {
                has_more = false;
                break;
            };
            // 2. A member stays until its quorum is over.
            if unmet.kind == WatermarkKind::Member {
                let mut links = Links::new(&mut self.entries, &mut self.cold);
                if links.is_on(&unmet, WatchList::Unmet, record) {
                    *links.at_mut(unmet.at) = Link::new(WatchList::MemberMet, record);
                    extras.push_met_member(unmet);
                    met.quorums.push(unmet.handle);
                } else {
                    extras.drop_gone();
                }
                continue;
            }
            // 3. Any other wait ends. Its entry is here, since it has no other key.
            let counts = &mut self.counts;
            let cold = &mut self.cold;
            let completed = &Outcome::Completed;
            let count =
                |entry: &Entry<O>| count_end(counts, cold, completed, now_ns, || Some(entry));
            if self.entries.end_met(&unmet, record, &mut meet, count, met) {
                ended += 1;
            } else {
                extras.drop_gone();
            }
        }
        // 4. A peak of the queue is given back. The key stays, since it has a value.
        extras.shrink();
        if ended > 0 {
            let emptied_key = self.keys.remove_waiters(record, ended);
            debug_assert!(emptied_key.is_none(), "Gone: it has a value");
            self.entry_left();
        }
        has_more
    }

    /// Takes up to `limit` watermark watches off a key, whether its value meets them or not, and
    /// calls `taken` with their operations.
    pub(crate) fn take_all(
        &mut self,
        record: u32,
        limit: usize,
        mut taken: impl FnMut(TimerHandle),
    ) -> Popped<K> {
        for _ in 0..limit {
            let mut links = Links::new(&mut self.entries, &mut self.cold);
            let Some(extras) = &mut self.keys.at_mut(record).extras else {
                return Popped::Done;
            };
            // 1. The met members first, then the queue.
            let met_member =
                extras.pop_met_member(|of| links.is_on(of, WatchList::MemberMet, record));
            let watch = match met_member {
                Some(met_member) => met_member,
                None => {
                    let is_unmet = |unmet: &_| links.is_on(unmet, WatchList::Unmet, record);
                    match extras.pop_up_to(u64::MAX, is_unmet) {
                        Lowest::Met(unmet) => unmet,
                        Lowest::Gone => continue, // a step, too
                        Lowest::Above => return Popped::Done,
                    }
                }
            };
            // 2. It leaves its key for good.
            *links.at_mut(watch.at) = Link::NOWHERE;
            taken(watch.handle);
            if let Some(key) = self.keys.remove_waiter(record) {
                return Popped::Emptied(key);
            }
        }
        // 3. The limit is used up: is there more?
        match &self.keys.at(record).extras {
            Some(extras) if extras.keeps_met_members() || extras.reaches(u64::MAX) => Popped::More,
            _ => Popped::Done,
        }
    }

    /// Returns the state of the member whose watch lies in its operation's entry, and the last of
    /// the operation's other watches. `None` when it has ended.
    pub(crate) fn first_member(&mut self, handle: TimerHandle) -> Option<MemberWatch> {
        let entry = self.entries.wheel.get(handle.id())?;
        Some(MemberWatch {
            member: self.member(entry.link),
            before: entry.last_secondary,
        })
    }

    /// Returns the state of another member. `None` when its operation has ended.
    pub(crate) fn secondary_member(
        &self,
        secondary: SecondaryId,
        handle: TimerHandle,
    ) -> Option<MemberWatch> {
        let watch = self.cold.secondary.get(secondary.slot())?;
        if watch.handle != Some(handle) {
            return None; // the slot is free, or another operation's by now
        }
        Some(MemberWatch {
            member: self.member(watch.link),
            before: watch.before,
        })
    }

    fn member(&self, link: Link) -> Member {
        if link.is_nowhere() {
            return Member::Removed;
        }
        match (link.list(), self.value(link.record())) {
            (WatchList::MemberMet, value) => Member::Met(value.unwrap_or(0)),
            _ => Member::Unmet,
        }
    }
}
