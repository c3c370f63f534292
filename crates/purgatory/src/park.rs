//! Parking: check, watch every key, check again if an event came by.
//!
//! 1. Read each key's version, then check. True: over, and nothing else was touched.
//! 2. Put an entry into the home shard, on the wheel, held by this thread.
//! 3. Watch each key, comparing versions under the key's lock.
//! 4. Give the payload back as any holder does. A version that moved counts as an event that found
//!    the entry held, so the holder looks again.
//!
//! For a few keys the home's lock is kept through step 3 (order: home, then key, never the
//! reverse); for many it is let go, and whoever comes by meanwhile leaves a note as usual.

use std::{
    collections::HashSet,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use smallvec::SmallVec;
use timer_core::{MAX_TASKS, TickLength, TimerHandle};

use crate::{
    entry::{COUNTED_MAX, Entry, Tickets, Verdict},
    event::{GivenBack, Held},
    frame::Frame,
    inner::Inner,
    operation::{CancelReason, DelayedOperation, Outcome, Park, Refused, RefusedReason, Timeout},
    trace,
    watch::{Level, Seen, Ticket, WAITERS_MAX},
    watches::Watches,
};

/// Up to so many keys are watched under the home's lock.
const KEYS_NESTED: usize = 4;

/// From so many keys on, repeated ones are found by a hash set instead of by comparing each pair.
const KEYS_COMPARED: usize = 16;

type Tickets4 = SmallVec<[Ticket; KEYS_NESTED]>;

/// A watch to be set: its key, what was seen of it before the check, and its level if it has one.
struct Sight<'a, K> {
    key: &'a K,
    seen: Seen,
    level: Option<Level>,
}

type Sights<'a, K> = SmallVec<[Sight<'a, K>; KEYS_NESTED]>;

impl Timeout {
    /// The deadline in ticks; `None` for never.
    pub(crate) fn deadline(self, tick: TickLength, now_ns: u64) -> Option<u64> {
        match self {
            Timeout::After(delay) => Some(tick.deadline(now_ns, delay)),
            Timeout::At(deadline_ns) => Some(tick.round_up(deadline_ns)),
            Timeout::Never => None,
        }
    }
}

/// What watching the keys gave.
struct AllWatched {
    tickets: Tickets4,
    event_passed: bool,
    full: bool,
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    pub(crate) fn park(
        self: &Arc<Self>,
        mut operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Result<Park, Refused<O>> {
        if watches.keys.is_empty() && watches.levels.is_empty() {
            return self.refuse(operation, RefusedReason::NoKeys);
        }
        let frame = Frame::enter(&self.elsewhere);
        let now_ns = self.driver().now_ns(); // deadlines count from the call
        let sights = self.sight(watches);
        let at_once = match (self.check(&mut operation), timeout) {
            (Verdict::Satisfied, _) => Some(Outcome::Completed),
            (Verdict::Panicked, _) => Some(Outcome::Cancelled(CancelReason::Panicked)),
            (_, Timeout::After(delay)) if delay.is_zero() => Some(Outcome::Expired),
            (_, Timeout::At(deadline_ns)) if deadline_ns <= now_ns => Some(Outcome::Expired),
            _ => None,
        };
        if let Some(outcome) = at_once {
            self.count_at_once();
            self.tell(&frame, operation, outcome.clone());
            return Ok(Park::Ended(outcome));
        }
        let levels = sights.iter().filter(|sight| sight.level.is_some());
        let counted = if watches.counted { levels.count() } else { 0 };
        if counted > COUNTED_MAX {
            return self.refuse(operation, RefusedReason::TooManyWatermarks { limit: COUNTED_MAX });
        }
        if let Some(permits) = self.permits.as_ref().filter(|permits| !permits.acquire()) {
            return self.refuse(operation, RefusedReason::Full { limit: permits.max() });
        }
        let entry = Entry::held(now_ns / 1000, counted);
        let parked = self.park_unsatisfied(&frame, operation, entry, &sights, now_ns, timeout);
        if parked.is_err() {
            self.release_permits(1);
        }
        parked
    }

    fn park_unsatisfied(
        self: &Arc<Self>,
        frame: &Frame<'_>,
        operation: O,
        entry: Entry<O>,
        sights: &[Sight<'_, K>],
        now_ns: u64,
        timeout: Timeout,
    ) -> Result<Park, Refused<O>> {
        let tick = self.driver().tick();
        let deadline = timeout.deadline(tick, now_ns);
        let mut home = self.homes.lock(self.home_for(sights[0].seen.hash));
        if home.state.closed {
            drop(home);
            return self.refuse(operation, RefusedReason::Closed);
        }
        let Ok(id) = home.insert(tick.round_down(now_ns), deadline, entry) else {
            drop(home);
            return self.refuse(operation, RefusedReason::Full { limit: MAX_TASKS as usize });
        };
        let mut nested = Some(home);
        if sights.len() > KEYS_NESTED {
            nested = None;
        }
        let mut watched = AllWatched { tickets: Tickets4::new(), event_passed: false, full: false };
        // A key's Eq or Clone may panic: then nothing was parked, and the panic is the caller's.
        let result = catch_unwind(AssertUnwindSafe(|| self.watch_all(sights, id, &mut watched)));
        let mut home = nested.unwrap_or_else(|| self.homes.lock(id.shard()));
        if result.is_err() || watched.full {
            home.remove(id);
            drop(home);
            self.release(id, &watched.tickets);
            return match result {
                Err(panic) => {
                    self.release_permits(1);
                    resume_unwind(panic)
                }
                Ok(()) => self.refuse(operation, RefusedReason::Full { limit: WAITERS_MAX }),
            };
        }
        home.state.watches += watched.tickets.len();
        home.state.counts.parked += 1;
        if let Some(entry) = home.get_mut(id) {
            entry.watched(Tickets::from(&*watched.tickets), watched.event_passed);
        }
        let held = Held { id, payload: operation, verdict: Verdict::Unsatisfied };
        let given_back = self.give_back(&mut home, held);
        drop(home);
        let ended = match given_back {
            GivenBack::Parked => None,
            GivenBack::CheckAgain(held) => self.hold(held),
            GivenBack::Ended(ended) => Some(ended),
        };
        let Some(ended) = ended else { return Ok(Park::Parked(self.id(id))) };
        let outcome = ended.outcome.clone();
        self.finish(frame, ended);
        Ok(Park::Ended(outcome))
    }

    /// Hands an operation back, with nothing locked.
    #[cold]
    fn refuse(&self, operation: O, reason: RefusedReason) -> Result<Park, Refused<O>> {
        self.counts.refused(reason);
        trace::refused(&self.name, reason);
        Err(Refused { operation, reason })
    }

    /// Reads the version of each key, once for what is repeated.
    fn sight<'a>(&self, watches: Watches<'a, K>) -> Sights<'a, K> {
        let mut sights = Sights::new();
        if let ([key], []) = (watches.keys, watches.levels) {
            sights.push(Sight { key, seen: self.watches.see(key), level: None });
            return sights;
        }
        let plain = watches.keys.iter().map(|key| (key, None));
        let levels = watches.levels.iter().map(|(key, threshold)| {
            (key, Some(Level { threshold: *threshold, counted: watches.counted }))
        });
        if watches.keys.len() + watches.levels.len() > KEYS_COMPARED {
            let mut known = HashSet::new();
            let distinct = plain.chain(levels).filter(|&watch| known.insert(watch));
            sights.extend(distinct.map(|(key, level)| Sight {
                key,
                seen: self.watches.see(key),
                level,
            }));
        } else {
            for (key, level) in plain.chain(levels) {
                let seen = self.watches.see(key);
                let same = |other: &Sight<'_, K>| {
                    other.seen.hash == seen.hash && other.level == level && other.key == key
                };
                if !sights.iter().any(same) {
                    sights.push(Sight { key, seen, level });
                }
            }
        }
        sights
    }

    fn watch_all(&self, sights: &[Sight<'_, K>], id: TimerHandle, watched: &mut AllWatched) {
        for sight in sights {
            let here = self.watches.watch(sight.key, sight.seen, sight.level, id);
            watched.event_passed |= here.event_passed;
            match here.ticket {
                Some(ticket) => watched.tickets.push(ticket),
                None => {
                    watched.full = true;
                    return;
                }
            }
        }
    }
}
