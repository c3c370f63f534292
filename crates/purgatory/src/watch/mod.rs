//! The watch registry: from a key to the operations parked under it.
//!
//! A fixed array of stripes, each with its own lock and cache lines; a key belongs to one by its
//! hash. Beside each lock stands the stripe's *version*, which counts the events on its keys and
//! is what makes parking safe without a second check:
//!
//! - **Versions**: an event raises the version under the lock, after its condition came true and
//!   before it walks. A parker reads the version, checks, and compares under the lock as it
//!   watches. Equal: no event fell in between. Raised: check again. Versions are never made
//!   anew, moved or reset; keys that share one cost each other a needless check now and then.
//!
//! A key's `Hash` runs with nothing locked; its `Eq` and `Clone` run under the stripe's lock.

mod heap;
mod records;
mod stripe;

use std::hash::{BuildHasher, Hash};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::sync::{AtomicU64, KeyHasher, Mutex, Ordering, STRIPES, planted};
pub(crate) use stripe::WAITERS_MAX;
use stripe::{Place, Stripe, WalkOn};

/// How many waiters a walk copies out under one lock hold.
pub(crate) const CHUNK: usize = 128;

/// The waiters of one step of a walk.
pub(crate) type Chunk = SmallVec<[TimerHandle; CHUNK]>;

/// A key's hash and the version of its stripe, read before a check.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub(crate) hash: u64,
    version: u64,
}

/// The right to a waiter's slot: releases it without hashing or comparing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    stripe: u32,
    slot: u32,
}

/// The value that a watermark watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// Met by a value of at least this.
    pub threshold: u64,
    /// Count form: taken when met. Otherwise it stays, met, until its operation ends.
    pub counted: bool,
}

/// Which watermark watches are taken off a key, and what that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// Those that count and are met; the others that are met stay. An event: raises the version.
    Met,
    /// More of the same event's.
    MoreMet,
    /// Every one. No event.
    All,
}

impl Taking {
    /// For what is taken after the first chunk.
    pub(crate) fn further(self) -> Taking {
        match self {
            Taking::Met | Taking::MoreMet => Taking::MoreMet,
            Taking::All => Taking::All,
        }
    }
}

/// What watching a key gave.
#[derive(Debug)]
pub struct Watched {
    /// `None` when the stripe is full.
    pub ticket: Option<Ticket>,
    /// An event came by since the version was read.
    pub event_passed: bool,
}

#[derive(Debug)]
struct Versioned<K> {
    version: AtomicU64,
    stripe: Mutex<Stripe<K>>,
}

impl<K> Versioned<K> {
    /// Raises the version for an event. Under the stripe's lock.
    fn raise(&self, event: bool) {
        if event && !planted("an event raises no version") {
            let version = self.version.load(Ordering::Relaxed);
            self.version.store(version + 1, Ordering::Release);
        }
    }
}

/// The watch registry: from a key to the operations parked under it.
#[derive(Debug)]
pub struct Registry<K> {
    stripes: Box<[CachePadded<Versioned<K>>]>,
    hasher: KeyHasher,
}

impl<K: Hash + Eq + Clone> Default for Registry<K> {
    fn default() -> Self {
        Registry::new()
    }
}

impl<K: Hash + Eq + Clone> Registry<K> {
    /// No key yet.
    pub fn new() -> Self {
        let stripe = || {
            let stripe = Mutex::new(Stripe::new());
            CachePadded::new(Versioned { version: AtomicU64::new(0), stripe })
        };
        Registry {
            stripes: std::iter::repeat_with(stripe).take(STRIPES).collect(),
            hasher: KeyHasher::default(),
        }
    }

    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    fn number(&self, hash: u64) -> usize {
        // The bits above those by which a hash table places, below those it tags with.
        (hash >> 32) as usize & (self.stripes.len() - 1)
    }

    /// To be called before the check whose result `watch` is to rely on.
    #[inline]
    pub fn see(&self, key: &K) -> Seen {
        let hash = self.hash(key);
        let version = self.stripes[self.number(hash)].version.load(Ordering::Acquire);
        Seen { hash, version }
    }

    /// Adds `id` to the key's waiters: for its events, or for a level.
    #[inline]
    pub fn watch(&self, key: &K, seen: Seen, level: Option<Level>, id: TimerHandle) -> Watched {
        let number = self.number(seen.hash);
        let mut stripe = self.stripes[number].stripe.lock();
        let version = self.stripes[number].version.load(Ordering::Relaxed);
        let slot = stripe.watch(key, seen.hash, id, level);
        Watched {
            ticket: slot.map(|slot| Ticket { stripe: number as u32, slot }),
            event_passed: version != seen.version && !planted("park skips the version check"),
        }
    }

    /// Takes a waiter away, unless it was taken; returns the key if nobody else waits for it, to be
    /// dropped with nothing locked. O(1) but for a level not met.
    #[inline]
    pub fn unwatch(&self, ticket: Ticket, id: TimerHandle) -> Option<K> {
        self.stripes[ticket.stripe as usize].stripe.lock().unwatch(ticket.slot, id)
    }

    /// Starts a walk over the key's plain waiters; raises the version if this is an event.
    #[inline]
    pub(crate) fn walk(&self, key: &K, chunk: &mut Chunk, event: bool) -> Walk<'_, K> {
        let hash = self.hash(key);
        let versioned = &*self.stripes[self.number(hash)];
        let mut stripe = versioned.stripe.lock();
        versioned.raise(event);
        let on = stripe.find(key, hash).map_or(WalkOn::Done, |record| {
            stripe.walk(record, Place::Plain, CHUNK, |id| chunk.push(id))
        });
        Walk { versioned, on }
    }

    /// Takes the key's watermark watches that `value` meets, up to a chunk of them: those that count
    /// into `taken` (each of which the caller must count down), the others to the met ones. When none
    /// is left, starts a walk over all that are met.
    pub(crate) fn take_up_to(
        &self,
        key: &K,
        hash: u64,
        value: u64,
        taking: Taking,
        taken: &mut Chunk,
        met: &mut Chunk,
    ) -> Took<'_, K> {
        let versioned = &*self.stripes[self.number(hash)];
        let mut stripe = versioned.stripe.lock();
        versioned.raise(taking == Taking::Met);
        let mut on = WalkOn::Done;
        let Some(record) = stripe.find(key, hash) else {
            return Took { met: Some(Walk { versioned, on }), left: None };
        };
        let step =
            stripe.take_up_to(record, value, taking == Taking::All, CHUNK, |id| taken.push(id));
        if step.all && step.left.is_none() {
            on = stripe.walk(record, Place::Met, CHUNK, |id| met.push(id));
        }
        drop(stripe);
        Took { met: step.all.then_some(Walk { versioned, on }), left: step.left }
    }

    /// How many events there have been: what the versions count. O(stripes), without a lock.
    pub(crate) fn events(&self) -> u64 {
        self.stripes.iter().map(|versioned| versioned.version.load(Ordering::Relaxed)).sum()
    }

    /// Keys that have waiters. O(stripes).
    pub(crate) fn keys(&self) -> usize {
        self.stripes.iter().map(|versioned| versioned.stripe.lock().keys()).sum()
    }

    /// Calls `told` with each key and how many wait for it, under the lock of its stripe.
    pub(crate) fn each_key(&self, mut told: impl FnMut(&K, usize)) {
        for versioned in &self.stripes {
            let stripe = versioned.stripe.lock();
            stripe.waiters_by_key().for_each(|(key, waiters)| told(key, waiters));
        }
    }

    /// The key a ticket is for, unless it was released or taken. Runs the key's `Clone` under the lock.
    pub(crate) fn key_of(&self, ticket: Ticket, id: TimerHandle) -> Option<K> {
        self.stripes[ticket.stripe as usize].stripe.lock().key_of(ticket.slot, id)
    }

    /// How many wait for a key. O(1).
    pub(crate) fn waiters(&self, key: &K) -> usize {
        let hash = self.hash(key);
        self.stripes[self.number(hash)].stripe.lock().waiters(key, hash)
    }
}

/// What taking the watermark watches that a value meets came to.
#[derive(Debug)]
pub(crate) struct Took<'a, K: Eq + Clone> {
    /// A walk over the met ones; `None` while there is more to take.
    pub(crate) met: Option<Walk<'a, K>>,
    /// The key, if nobody waits for it any more: to be dropped with nothing locked.
    pub(crate) left: Option<K>,
}

/// A walk over waiters of one key, in the order they were parked: those present when it began,
/// but for those who have left before it came by. Nothing is locked between steps.
#[derive(Debug)]
pub(crate) struct Walk<'a, K: Eq + Clone> {
    versioned: &'a Versioned<K>,
    on: WalkOn,
}

impl<K: Eq + Clone> Walk<'_, K> {
    /// Replaces `chunk` by the next waiters; false at the end.
    #[inline]
    pub(crate) fn next(&mut self, chunk: &mut Chunk) -> bool {
        chunk.clear();
        let WalkOn::Walk(number) = self.on else { return false };
        let mut stripe = self.versioned.stripe.lock();
        let on = stripe.walk_on(number, CHUNK, |id| chunk.push(id));
        if on == WalkOn::Done {
            stripe.end_walk(number);
        }
        self.on = on;
        !chunk.is_empty()
    }
}

impl<K: Eq + Clone> Drop for Walk<'_, K> {
    fn drop(&mut self) {
        if let WalkOn::Walk(number) = self.on {
            self.versioned.stripe.lock().end_walk(number);
        }
    }
}
