//! Introspection: what waits, for what, since when, and what became of the rest, without stopping
//! anything.
//!
//! Rooms are looked at one after the other, a bounded number of entries a lock hold (but all keys
//! of a room in one), so a snapshot is exact when nothing moves and otherwise a smear over the time
//! it took.
//!
//! That an operation is *under check* shows in its entry, but since when would cost a clock reading
//! a check. So it is the snapshots that remember: one that finds a check under way marks the entry,
//! a check that ends wipes the mark, and a later snapshot that finds the mark knows that it is
//! looking at the same check still.

use std::{borrow::Borrow, cmp, collections::BinaryHeap, hash::Hash, time::Duration};

use timer_core::{TimerHandle, driver::Apart};

use crate::{
    paths::core::{Checks, Core},
    room::{Ticket, UnderCheck, times::Times},
    words::{
        operation::{DelayedOperation, OperationId},
        stats::Stats,
        watches::WatchKey,
    },
};

/// Entries looked at under one lock hold.
const BUDGET: usize = 256;

/// What a purgatory holds, and what became of what it held. Made by
/// [`Purgatory::snapshot`](crate::Purgatory::snapshot). With the feature `serde` it can be
/// serialised; durations then are seconds.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The purgatory's name.
    pub name: String,
    /// Counts: what is parked, and why operations ended.
    pub stats: Stats,
    /// How many keys have waiters.
    pub key_count: usize,
    /// Those with the most waiters, most first.
    pub busiest: Vec<KeyWaiters<K>>,
    /// What has been parked for longest, longest first.
    pub oldest: Vec<Parked<K>>,
    /// What is under check, by how long that is known to go on, longest first. A check that never
    /// returns shows up here, and its operation cannot expire.
    pub under_check: Vec<Parked<K>>,
    /// How long operations waited. Counted from the first snapshot, or
    /// [`times`](crate::Purgatory::times), on.
    pub times: Times,
}

/// A key and how many wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyWaiters<K> {
    /// The key.
    pub key: K,
    /// Its watches, counted as by [`Purgatory::waiters`](crate::Purgatory::waiters).
    pub waiters: usize,
}

/// A parked operation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Parked<K> {
    /// Its name, to cancel or complete it by.
    pub id: OperationId,
    /// The keys it still waits for, one for each watch. A watermark that was met and counted is
    /// none.
    pub keys: Vec<K>,
    /// How long it has been parked, to the microsecond.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds"))]
    pub age: Duration,
    /// How long until it expires, to the timer's tick; zero when it is due, `None` when it never
    /// does.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub expires_in: Option<Duration>,
    /// When it is under check: for how long at least, which is since the first snapshot that found
    /// it in this check.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub under_check: Option<Duration>,
}

#[cfg(feature = "serde")]
fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(feature = "serde")]
fn as_seconds_or_none<S: serde::Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&duration.map(|duration| duration.as_secs_f64()), to)
}

/// What stands out among what is parked, each with its microseconds, most first.
pub(crate) struct Survey {
    /// What has been parked for longest.
    pub(crate) oldest: Vec<(u64, TimerHandle)>,
    /// The checks known to be under way for longest.
    pub(crate) longest: Vec<(u64, TimerHandle)>,
}

/// The `limit` items of highest rank of those that are offered.
struct Highest<T> {
    limit: usize,
    kept: BinaryHeap<Ranked<T>>,
}

/// Ordered by rank, lowest on top of the heap.
struct Ranked<T> {
    rank: u64,
    item: T,
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> Highest<T> {
    fn new(limit: usize) -> Self {
        Highest { limit, kept: BinaryHeap::new() }
    }

    /// Keeps what `item` makes if the rank is high enough; returns what has to go for it.
    fn offer(&mut self, rank: u64, item: impl FnOnce() -> T) -> Option<T> {
        let full = self.kept.len() >= self.limit;
        if full && self.kept.peek().is_none_or(|lowest| lowest.rank >= rank) {
            return None;
        }
        let item = item(); // a panic of it changes nothing
        let gone = if full { self.kept.pop() } else { None };
        self.kept.push(Ranked { rank, item });
        gone.map(|Ranked { item, .. }| item)
    }

    /// What was kept with its rank, highest first.
    fn into_vec(self) -> Vec<(u64, T)> {
        let sorted = self.kept.into_sorted_vec();
        sorted.into_iter().map(|Ranked { rank, item }| (rank, item)).collect()
    }
}

impl<K, O> Core<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    pub(crate) fn snapshot(&self, limit: usize) -> Snapshot<K> {
        let now_ns = self.driver().now_ns();
        let Survey { oldest, longest } = self.survey(limit, now_ns);
        let under_check = longest.iter().filter_map(|&(known_us, id)| {
            let under_check = Some(Duration::from_micros(known_us));
            Some(Parked { under_check, ..self.parked(id, now_ns)? })
        });
        let known = |id| longest.iter().find(|&&(_, other)| other == id);
        let oldest = oldest.iter().filter_map(|&(_, id)| {
            let parked = self.parked(id, now_ns)?;
            let known = known(id).map(|&(known_us, _)| Duration::from_micros(known_us));
            Some(Parked { under_check: known.or(parked.under_check), ..parked })
        });
        Snapshot {
            name: self.name.to_string(),
            oldest: oldest.collect(),
            under_check: under_check.collect(),
            key_count: self.keys(),
            busiest: self.busiest(limit),
            times: self.times(),
            stats: self.stats(),
        }
    }

    /// Looks at everything parked, a bounded number under one lock hold.
    pub(crate) fn survey(&self, limit: usize, now_ns: u64) -> Survey {
        let mut oldest = Highest::new(limit);
        let mut under_check = Vec::new();
        for room in 0..self.rooms.count() {
            let mut from = Some(0);
            while let Some(start) = from {
                from = self.look_at_some(room, start, now_ns, &mut oldest, &mut under_check);
            }
        }
        let mut longest = Highest::new(limit);
        for (id, known_us) in self.remember(&under_check, now_ns) {
            longest.offer(known_us, || id);
        }
        Survey { oldest: oldest.into_vec(), longest: longest.into_vec() }
    }

    /// Looks at up to [`BUDGET`] entries of a room; returns where to go on.
    fn look_at_some(
        &self,
        room: usize,
        mut from: u32,
        now_ns: u64,
        oldest: &mut Highest<TimerHandle>,
        under_check: &mut Vec<(bool, TimerHandle)>,
    ) -> Option<u32> {
        let mut first_room = self.rooms.lock(room);
        for _ in 0..BUDGET {
            let id = first_room.first_from(from)?;
            from = id.id().index() + 1;
            let entry = first_room.get_mut(id)?;
            oldest.offer(entry.age_us(now_ns / 1000), || id);
            if let UnderCheck::Yes { seen } = entry.look() {
                under_check.push((seen, id));
            }
        }
        Some(from)
    }

    /// For how many microseconds each check is known to be under way; keeps that for the next
    /// snapshot.
    fn remember(
        &self,
        under_check: &[(bool, TimerHandle)],
        now_ns: u64,
    ) -> impl Iterator<Item = (TimerHandle, u64)> {
        let mut known = self.checks_known.lock();
        let since = under_check.iter().map(|&(seen, id)| {
            let before = known.get(&id).copied().filter(|_| seen);
            (id, before.unwrap_or(now_ns))
        });
        let since: Checks = since.collect();
        *known = since.clone();
        drop(known);
        since.into_iter().map(move |(id, since_ns)| (id, now_ns.saturating_sub(since_ns) / 1000))
    }

    /// What there is to tell of an operation, unless it is over.
    fn parked(&self, id: TimerHandle, now_ns: u64) -> Option<Parked<K>> {
        let mut first_room = self.first_room_of(id);
        let deadline = first_room.deadline(id)?;
        let entry = first_room.get_mut(id)?;
        let age_us = entry.age_us(now_ns / 1000);
        let under_check = entry.is_held().then_some(Duration::ZERO);
        let tickets: Vec<Ticket> = entry.tickets().iter().collect();
        let first = first_room.first_key(id).map(Apart::new);
        drop(first_room);
        let further = tickets.iter().filter_map(|&ticket| self.key_of(ticket, id).map(Apart::new));
        let keys: Vec<Apart<K>> = first.into_iter().chain(further).collect();
        let expires_ns = self.driver().tick.start_ns(deadline).saturating_sub(now_ns);
        Some(Parked {
            id: self.id(id),
            keys: keys.into_iter().map(Apart::take).collect(),
            age: Duration::from_micros(age_us),
            expires_in: (deadline != u64::MAX).then_some(Duration::from_nanos(expires_ns)),
            under_check,
        })
    }

    fn busiest(&self, limit: usize) -> Vec<KeyWaiters<K>> {
        let mut busiest = Highest::new(limit);
        let mut gone = Vec::new(); // keys are the user's: none is dropped under a lock
        for room in 0..self.rooms.count() {
            for (key, waiters) in self.rooms.lock(room).waiters_by_key() {
                gone.extend(busiest.offer(waiters as u64, || Apart::new(key.clone())));
            }
        }
        let told = |(waiters, key): (u64, Apart<K>)| KeyWaiters {
            key: key.take(),
            waiters: waiters as usize,
        };
        busiest.into_vec().into_iter().map(told).collect()
    }

    /// Keys that have waiters. O(rooms).
    pub(crate) fn keys(&self) -> usize {
        self.rooms.sum(|room| room.key_count())
    }

    /// How many wait for a key. O(1).
    pub(crate) fn waiters<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let hash = self.versions.hash(key);
        self.room_of(hash).waiters(key, hash)
    }
}
