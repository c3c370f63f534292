//! A shard: all there is of the keys that hash to it. The operations whose first key is here, on a
//! timing wheel of their own; for each key the watches on it, of operations whose first key is here
//! and in other shards; counts.
//!
//! Pure: no lock, no clock, no thread, and no code of the user's but a key's `Eq` and `Clone`,
//! which run as a key is looked up, before anything is changed. Whatever is the user's and has to
//! be dropped is returned.

mod entry;
mod keys;
mod watchers;
mod watermark_queue;

use smallvec::SmallVec;
use timer_core::{
    Advanced, MAX_TASKS, TickLength, TimerHandle, TimingWheel,
    driver::{Pages, ShardState},
};

use self::keys::{Keys, SecondaryWatch, Walk};
use crate::{
    operation::{Outcome, RefusedReason, Verdict},
    stats::{Counts, Stats, Times},
};

pub(crate) use entry::{
    Batch, COUNTED_MAX, CheckedOut, Entries, Entry, Next, ParkInfo, ParkTimes, Waiter,
};
pub(crate) use keys::{SecondaryId, WAITERS_MAX, WatchList};
pub(crate) use watermark_queue::Watermark;

#[derive(Debug)]
#[repr(C)] // what each operation writes comes first, in as few cache lines as can be
pub(crate) struct Shard<K, O> {
    entries: Entries<O>,
    pub(crate) counts: Counts,
    keys: Keys<K>,
    rest: Box<LongWalks>,
    /// Once the program has asked for it.
    pub(crate) timed: Option<Box<Timed>>,
    /// Set before the shard is emptied for good, tested before anything is put in.
    pub(crate) closed: bool,
}

/// What an operation with one key does not touch.
#[derive(Debug)]
struct LongWalks {
    slots: Pages<SecondaryWatch>,
    /// The walks under way. A shard seldom has any.
    walks: Vec<Walk>,
    walks_begun: u64,
}

/// What a shard times once the program has asked for it.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) times: Times,
    pub(crate) tick: TickLength,
}

impl Timed {
    /// Records how long an operation waited that ends and, if it expired, how late.
    fn ended<O>(&mut self, outcome: &Outcome, entry: &Entry<O>, now_ns: u64) {
        self.times.ended(outcome, entry.age_ns(now_ns));
        if matches!(outcome, Outcome::Expired) {
            let due_ns = self.tick.start_ns(entry.deadline);
            self.times.lateness.record(now_ns.saturating_sub(due_ns));
        }
    }
}

/// The nanosecond of the timer's clock at which an operation ends, if that is timed. It is read
/// before the lock is taken.
pub(crate) type EndedAt = Option<u64>;

/// A watch to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) hash: u64,
    /// The key's version before the check, which the shard leaves to its caller.
    pub(crate) version: u64,
    pub(crate) watermark: Option<Watermark>,
}

/// What became of an operation given back.
pub(crate) type CheckedIn<K, O> = Next<CheckedOut<O>, Ended<K, O>>;

/// An operation that has ended: it is off the wheel and off the list of its first key.
#[derive(Debug)]
pub(crate) struct Ended<K, O> {
    pub(crate) payload: O,
    pub(crate) outcome: Outcome,
    /// Its weight, if it was parked, and so has a place among `max_parked`.
    pub(crate) permit: Option<u64>,
    /// The last of its further watches, still to be released.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// Its first key, if nobody waits for that any more.
    pub(crate) left: Option<K>,
}

/// Several of them.
pub(crate) type AllEnded<K, O> = SmallVec<[Ended<K, O>; 8]>;

impl<K, O> Ended<K, O> {
    /// One that was never parked.
    pub(crate) fn at_once(payload: O, outcome: Outcome) -> Self {
        Ended {
            payload,
            outcome,
            permit: None,
            last_secondary: None,
            left: None,
        }
    }
}

/// A turn of a wheel, to the tick `now`, within `budget` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) now: u64,
    pub(crate) now_ns: u64,
    pub(crate) budget: usize,
    /// Ticks from one recheck of an operation to the next. At least 1.
    pub(crate) every: u64,
    /// Each is checked once more when its time is up.
    pub(crate) last_check: bool,
}

/// What the wheel came by.
#[derive(Debug)]
pub(crate) enum CallbackJob<K, O> {
    Call(Ended<K, O>),
    /// It is due for a check without an event: the last, or one that was not due already.
    Recheck(TimerHandle),
}

/// The tick at which the wheel was to come by, and the sequence.
pub(crate) type Order = (u64, u64);

impl<K, O> ShardState for Shard<K, O> {
    type Task = Entry<O>;

    fn wheel(&mut self) -> &mut TimingWheel<Entry<O>> {
        &mut self.entries.wheel
    }
}

impl<K: Eq + Clone, O> Shard<K, O> {
    pub(crate) fn new(number: usize, wheel: TimingWheel<Entry<O>>) -> Self {
        let rest = LongWalks {
            slots: Pages::default(),
            walks: Vec::new(),
            walks_begun: 0,
        };
        Shard {
            closed: false,
            entries: Entries {
                wheel,
                shard: number as u32,
            },
            keys: Keys::new(),
            rest: Box::new(rest),
            counts: Counts::default(),
            timed: None,
        }
    }

    /// Operations whose first key is here.
    pub(crate) fn len(&self) -> usize {
        self.entries.wheel.len()
    }

    /// Watches here: one for each operation, its first, and those of further keys. One that was
    /// taken counts until its operation has ended.
    pub(crate) fn watched(&self) -> usize {
        self.len() + self.rest.slots.len()
    }

    /// Adds what the shard holds and has counted.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        stats.parked += self.len() as u64;
        stats.watched += self.watched() as u64;
        self.counts.add_to(stats);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TimerHandle) -> Option<&mut Entry<O>> {
        self.entries.wheel.get_mut(id.id())
    }

    /// The first operation at or after an index, to visit all in bounded steps.
    pub(crate) fn first_from(&self, index: u32) -> Option<TimerHandle> {
        let first = self.entries.wheel.first_from(index)?;
        Some(TimerHandle::new(self.entries.shard as usize, first))
    }

    /// Why the shard takes no operation now, unless it does.
    pub(crate) fn refuses(&self) -> Option<RefusedReason> {
        if self.closed {
            return Some(RefusedReason::Closed);
        }
        let limit = MAX_TASKS as usize;
        (self.len() >= limit).then_some(RefusedReason::Full { limit })
    }

    /// Puts an operation in, in a shard that does not refuse it, and watches its first key: one that
    /// was checked under its one key, or one whose payload its parker holds; then its other keys,
    /// and [`arrived`](Self::arrived), are to follow. `follows` is the sequence of the one before,
    /// when order matters over several shards. Returns, too, at which tick the wheel has work.
    #[inline]
    pub(crate) fn park(
        &mut self,
        span: ParkTimes,
        follows: Option<u64>,
        payload: Option<O>,
        watch: &Watch<'_, K>,
    ) -> (TimerHandle, u64) {
        let record = self.record_of(watch);
        self.counts.parked += u64::from(payload.is_some());
        let entry = Entry::new(payload, &span);
        let wheel = &mut self.entries.wheel;
        wheel.catch_up(span.now);
        follows
            .into_iter()
            .for_each(|sequence| wheel.follow(sequence));
        let inserted = match span.armed {
            Some(armed) => wheel.insert(armed, entry).map(|at| (at.id, at.due)),
            None => wheel.insert_unscheduled(entry).map(|id| (id, u64::MAX)),
        };
        let Ok((id, due)) = inserted else {
            unreachable!("a full shard refuses")
        };
        let handle = TimerHandle::new(self.entries.shard as usize, id);
        self.link(record, watch.watermark, handle, id.index());
        (handle, due)
    }

    /// For a parker whose keys are all watched: its operation is parked, still held.
    pub(crate) fn arrived(
        &mut self,
        id: TimerHandle,
        last_secondary: Option<SecondaryId>,
        event_passed: bool,
    ) {
        self.counts.parked += 1;
        if let Some(entry) = self.get_mut(id) {
            entry.watched(last_secondary, event_passed);
        }
    }

    /// Takes an operation out that was not parked after all, with its first watch, whose key comes
    /// back if nobody else waits for it.
    pub(crate) fn withdraw(&mut self, id: TimerHandle) -> Option<K> {
        let left = self.unlink(id.id().index());
        self.entries.wheel.cancel(id.id());
        left
    }

    /// For an event on a key that has waiters.
    #[inline]
    pub(crate) fn raised(&mut self, record: u32) {
        self.keys.at_mut(record).quiet_since_ms = 0;
    }

    /// Each key with the milliseconds that it is known to have had waiters and no event: since the
    /// first such look, at `now_ms` of a clock that is never 0.
    pub(crate) fn quiet(&mut self, now_ms: u32, mut found: impl FnMut(&K, u32)) {
        self.keys.each_mut(|record| {
            if record.quiet_since_ms == 0 {
                record.quiet_since_ms = now_ms;
            }
            found(&record.key, now_ms.wrapping_sub(record.quiet_since_ms));
        });
    }

    /// Keys that have waiters.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Each key with how many wait for it.
    pub(crate) fn waiters_by_key(&self) -> impl Iterator<Item = (&K, usize)> {
        self.keys
            .iter()
            .map(|(_, record)| (&record.key, record.waiters as usize))
    }

    /// For an event: takes the payload out to check it, or leaves its holder a note.
    #[inline]
    pub(crate) fn check_out(&mut self, id: TimerHandle) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(id)?.check_out()?;
        Some(CheckedOut {
            id,
            payload,
            verdict: Verdict::Unsatisfied,
        })
    }

    /// Gives a payload back that was checked. Always in line: a payload that goes through memory on
    /// its way costs an event on a key with many waiters a third more.
    #[inline(always)]
    pub(crate) fn check_in(&mut self, held: CheckedOut<O>, at: EndedAt) -> CheckedIn<K, O> {
        self.counts.checks += 1;
        let CheckedOut {
            id,
            payload,
            verdict,
        } = held;
        let (payload, outcome) = if verdict == Verdict::Satisfied {
            (payload, Outcome::Completed)
        } else {
            let entry = self
                .get_mut(id)
                .expect("Holder removes: the entry of a payload is there");
            match entry.check_until_in(payload, verdict) {
                Next::Parked => return Next::Parked,
                Next::CheckAgain(payload) => {
                    return Next::CheckAgain(CheckedOut {
                        id,
                        payload,
                        verdict,
                    });
                }
                Next::Ended(ended) => ended,
            }
        };
        Next::Ended(self.remove_ended(id, payload, outcome, at))
    }

    /// Ends an operation from outside; `None` when its holder was left a note, or it is gone.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        id: TimerHandle,
        outcome: Outcome,
        at: EndedAt,
    ) -> Option<Ended<K, O>> {
        let payload = self.get_mut(id)?.claim(&outcome)?;
        Some(self.remove_ended(id, payload, outcome, at))
    }

    /// Takes an entry whose payload is out for good off the wheel and its first key's list.
    #[inline(always)]
    pub(crate) fn remove_ended(
        &mut self,
        id: TimerHandle,
        payload: O,
        outcome: Outcome,
        at: EndedAt,
    ) -> Ended<K, O> {
        if let (Some(now_ns), Some(timed)) = (at, &mut self.timed) {
            let entry = self.entries.wheel.get(id.id());
            entry
                .into_iter()
                .for_each(|entry| timed.ended(&outcome, entry, now_ns));
        }
        self.counts.ended(&outcome);
        self.take_out(id, payload, outcome)
    }

    /// Takes an entry out, and its first watch.
    #[inline(always)]
    fn take_out(&mut self, id: TimerHandle, payload: O, outcome: Outcome) -> Ended<K, O> {
        let stays = failpoint!(EndedStaysListed);
        let left = if stays {
            None
        } else {
            self.unlink(id.id().index())
        };
        let entry = self.entries.wheel.cancel(id.id());
        let (permit, last_secondary) = entry.map(|of| (of.tag().weight, of.last_secondary)).unzip();
        Ended {
            payload,
            outcome,
            permit,
            last_secondary: last_secondary.flatten(),
            left,
        }
    }

    /// Gives an operation another deadline, unless its end is decided or noted; returns when the
    /// wheel has work for it.
    pub(crate) fn reschedule(&mut self, id: TimerHandle, span: ParkTimes) -> Option<u64> {
        let ParkTimes {
            now,
            deadline,
            armed,
            ..
        } = span;
        let entry = self.get_mut(id)?;
        if entry.is_ending() {
            return None;
        }
        entry.deadline = deadline.unwrap_or(u64::MAX);
        let wheel = &mut self.entries.wheel;
        wheel.catch_up(now);
        match armed {
            Some(armed) => wheel.reschedule(id.id(), armed),
            None => wheel.unschedule(id.id()).then_some(u64::MAX),
        }
    }

    /// Turns the wheel: what nobody holds ends when its time is up, and is told with its deadline
    /// and, if the wheel keeps order, its sequence; a holder is left a note.
    pub(crate) fn expire(
        &mut self,
        turn: Turn,
        mut told: impl FnMut(CallbackJob<K, O>, Order),
    ) -> Advanced {
        let Shard {
            entries: Entries { wheel, shard },
            timed,
            ..
        } = self;
        let now = turn.now.max(wheel.now()); // a parker may have seen a later tick than the timer
        let (mut due, mut early) = (Vec::new(), Vec::new());
        let mut advanced = wheel.advance(now, turn.budget, |mut task| {
            let id = TimerHandle::new(*shard as usize, task.id());
            let order = (task.deadline(), task.id().sequence());
            let entry = task.get_mut();
            if entry.deadline > now {
                early.push((id, now.saturating_add(turn.every).min(entry.deadline)));
                if entry.due_again() {
                    told(CallbackJob::Recheck(id), order);
                }
            } else if turn.last_check {
                if !entry.is_held() {
                    told(CallbackJob::Recheck(id), (entry.deadline, order.1));
                }
                entry.hold_for_last();
            } else if let Some(payload) = entry.claim(&Outcome::Expired) {
                if let Some(timed) = timed {
                    timed.ended(&Outcome::Expired, entry, turn.now_ns);
                }
                // Its neighbours are out of reach from here.
                due.push((id, payload, (entry.deadline, order.1)));
            } else if failpoint!(ExpiryRemovesCheckedOut) {
                task.take();
            }
        });
        if !early.is_empty() {
            advanced.fired -= early.len();
            advanced.cascaded += early.len();
            early
                .into_iter()
                .for_each(|(id, armed)| _ = wheel.reschedule(id.id(), armed));
            advanced.next_due = wheel.next_due();
        }
        for (id, payload, order) in due {
            self.counts.ended(&Outcome::Expired);
            told(
                CallbackJob::Call(self.take_out(id, payload, Outcome::Expired)),
                order,
            );
        }
        advanced
    }

    /// For an operation that is due for a check: takes the payload out, unless a thread has it.
    pub(crate) fn check_out_again(&mut self, id: TimerHandle) -> Option<CheckedOut<O>> {
        let payload = self.get_mut(id)?.check_out_again()?;
        Some(CheckedOut {
            id,
            payload,
            verdict: Verdict::Unsatisfied,
        })
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn an_empty_shard_takes_five_cache_lines() {
        let bytes = size_of::<Shard<u64, Box<u64>>>();
        assert!(
            bytes <= 5 * 64 - 16,
            "{bytes}: with its lock more than five cache lines"
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
