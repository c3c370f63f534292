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
    entry::{Entry, Tickets, Verdict},
    event::{GivenBack, Held},
    frame::Frame,
    inner::Inner,
    operation::{
        CancelReason, DelayedOperation, OperationId, Outcome, Park, Refused, RefusedReason, Timeout,
    },
    watch::{Seen, Ticket, WAITERS_MAX},
};

/// Up to so many keys are watched under the home's lock.
const KEYS_NESTED: usize = 4;

/// From so many keys on, repeated ones are found by a hash set instead of by comparing each pair.
const KEYS_COMPARED: usize = 16;

type Tickets4 = SmallVec<[Ticket; KEYS_NESTED]>;

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
        keys: &[K],
        timeout: Timeout,
    ) -> Result<Park, Refused<O>> {
        if keys.is_empty() {
            return Err(Refused { operation, reason: RefusedReason::NoKeys });
        }
        let frame = Frame::enter(&self.driver);
        let now_ns = self.driver.now_ns(); // deadlines count from the call
        let mut seen: SmallVec<[Seen; KEYS_NESTED]> = SmallVec::new();
        for key in keys {
            seen.push(self.watches.see(key));
        }
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
        if let Some(permits) = self.permits.as_ref().filter(|permits| !permits.acquire()) {
            let reason = RefusedReason::Full { limit: permits.max() };
            return Err(Refused { operation, reason });
        }
        let parked = self.park_unsatisfied(&frame, operation, keys, &seen, now_ns, timeout);
        if parked.is_err() {
            self.release_permits(1);
        }
        parked
    }

    fn park_unsatisfied(
        self: &Arc<Self>,
        frame: &Frame<'_>,
        operation: O,
        keys: &[K],
        seen: &[Seen],
        now_ns: u64,
        timeout: Timeout,
    ) -> Result<Park, Refused<O>> {
        let tick = self.driver.tick();
        let deadline = timeout.deadline(tick, now_ns);
        let mut home = self.homes.lock(self.home_for(seen[0].hash));
        if home.state.closed {
            drop(home);
            return Err(Refused { operation, reason: RefusedReason::Closed });
        }
        let Ok(id) = home.insert(tick.round_down(now_ns), deadline, Entry::held()) else {
            drop(home);
            let reason = RefusedReason::Full { limit: MAX_TASKS as usize };
            return Err(Refused { operation, reason });
        };
        let mut nested = Some(home);
        if keys.len() > KEYS_NESTED {
            nested = None;
        }
        let mut watched = AllWatched { tickets: Tickets4::new(), event_passed: false, full: false };
        // A key's Eq or Clone may panic: then nothing was parked, and the panic is the caller's.
        let result =
            catch_unwind(AssertUnwindSafe(|| self.watch_all(keys, seen, id, &mut watched)));
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
                Ok(()) => {
                    let reason = RefusedReason::Full { limit: WAITERS_MAX };
                    Err(Refused { operation, reason })
                }
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
        let Some(ended) = ended else { return Ok(Park::Parked(OperationId(id))) };
        let outcome = ended.outcome.clone();
        self.finish(frame, ended);
        Ok(Park::Ended(outcome))
    }

    fn watch_all(&self, keys: &[K], seen: &[Seen], id: TimerHandle, watched: &mut AllWatched) {
        let mut known = HashSet::new();
        for (position, (key, &seen_now)) in keys.iter().zip(seen).enumerate() {
            let repeated = if keys.len() > KEYS_COMPARED {
                !known.insert(key)
            } else {
                let same = |other: usize| seen[other].hash == seen_now.hash && keys[other] == *key;
                (0..position).any(same)
            };
            if repeated {
                continue;
            }
            let here = self.watches.watch(key, seen_now, id);
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
