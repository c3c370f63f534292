//! What the handles of a `LocalPurgatory` share: one room in a `RefCell`, and a trampoline. What
//! they call to park and to end operations is in [`calls`](super::calls).
//!
//! Only the *outermost* call runs callbacks, and works the queue off before it returns. A nested
//! one queues them, and queues events whole; so an event never finds an operation under check. One
//! that a first check raises falls before its watch: then it is checked again. What is left to do
//! for an operation that is under check is a cancel or a completion from its own check: those are
//! noted, as in a shared purgatory.
//!
//! - **Nothing borrowed**: while a check, a callback or a drop of the user's runs the room is not
//!   borrowed. A key's `Eq` and `Clone` run while it is.
//! - **Bounded call**: after `BUDGET` queued pieces of work the rest stays queued for the next
//!   call.

use std::{
    borrow::Borrow,
    cell::{Cell, RefCell},
    collections::VecDeque,
    hash::{BuildHasher, Hash},
};

use smallvec::SmallVec;
use timer_core::{TickLength, TimerHandle, TimingWheel, WheelSize, driver::contain};

use crate::{
    paths::callbacks::drop_key,
    room::{Ended, Room, Ticket, Tickets},
    sync::KeyHasher,
    words::{
        check::{Verdict, check},
        operation::{CancelReason, DelayedOperation, Outcome, next_purgatory},
        stats::Stats,
        watches::WatchKey,
    },
};

/// Queued pieces of work that one call runs, and steps of the wheel in one `advance`.
const BUDGET: usize = 1024;

/// What a nested call leaves to the outermost one.
pub(super) enum Work<K, O> {
    /// The key and its hash.
    Event(K, u64),
    /// The key, its hash and the value.
    Rise(K, u64, u64),
    Callback(O, Outcome),
}

pub(super) struct Settings {
    pub(super) tick: TickLength,
    pub(super) wheel_size: WheelSize,
    pub(super) max_parked: usize,
}

pub(super) struct Core<K, O> {
    pub(super) number: u32,
    pub(super) hasher: KeyHasher,
    pub(super) tick: TickLength,
    pub(super) max_parked: usize,
    /// The last one that goes closes the purgatory.
    pub(super) handles: Cell<usize>,
    pub(super) now_ns: Cell<u64>,
    /// A call is under way.
    active: Cell<bool>,
    /// Events raised inside a check or callback.
    pub(super) nested_events: Cell<u64>,
    queue: RefCell<VecDeque<Work<K, O>>>,
    pub(super) room: RefCell<Room<K, O>>,
    /// What the room does not count.
    pub(super) counts: RefCell<Stats>,
}

/// A call, outermost or nested.
pub(super) struct Call<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    pub(super) outermost: bool,
}

impl<K: WatchKey, O: DelayedOperation> Drop for Call<'_, K, O> {
    fn drop(&mut self) {
        if self.outermost {
            if !self.core.queue.borrow().is_empty() {
                self.core.work_off_queue();
            }
            self.core.active.set(false);
        }
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    pub(super) fn new(settings: Settings) -> Self {
        let Settings { tick, wheel_size, max_parked } = settings;
        Core {
            number: next_purgatory(),
            hasher: KeyHasher::default(),
            tick,
            max_parked,
            handles: Cell::new(1),
            now_ns: Cell::new(0),
            active: Cell::new(false),
            nested_events: Cell::new(0),
            queue: RefCell::default(),
            room: RefCell::new(Room::new(0, TimingWheel::new(wheel_size, 0))),
            counts: RefCell::default(),
        }
    }

    /// Looks into the room; `look` runs none of the user's code but a key's `Eq`.
    pub(super) fn with<R>(&self, look: impl FnOnce(&Room<K, O>) -> R) -> R {
        look(&self.room.borrow())
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    pub(super) fn now(&self) -> u64 {
        self.tick.round_down(self.now_ns.get())
    }

    pub(super) fn waiters<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        self.with(|room| room.waiters(key, hash))
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = *self.counts.borrow();
        self.room.borrow().add_to(&mut stats);
        stats.add_first_checks();
        let queue = self.queue.borrow();
        let callbacks = queue.iter().filter(|work| matches!(work, Work::Callback(..))).count();
        stats.callbacks_waiting = callbacks as u64;
        stats.deferred = (queue.len() - callbacks) as u64;
        stats
    }

    #[inline]
    pub(super) fn enter(&self) -> Call<'_, K, O> {
        Call { core: self, outermost: !self.active.replace(true) }
    }

    /// Checks an operation, with nothing borrowed.
    #[inline]
    pub(super) fn check(&self, operation: &mut O) -> Verdict {
        check(operation, |_| self.count_panic())
    }

    fn count_panic(&self) {
        self.counts.borrow_mut().panics += 1;
    }

    /// Ends what has ended: out of every watch list, then called back. Returns how many that
    /// completed.
    #[inline]
    pub(super) fn finish(&self, call: &Call<'_, K, O>, ended: Ended<K, O>) -> usize {
        let Ended { id, payload, outcome, tickets, left, .. } = ended;
        if tickets.len() > 0 {
            self.release(id, &tickets);
        }
        drop_key(left);
        let completed = usize::from(matches!(outcome, Outcome::Completed));
        self.run_callback(call, payload, outcome);
        completed
    }

    /// Takes an operation's further watches away, and drops the keys that nobody waits for any
    /// more.
    pub(super) fn release(&self, id: TimerHandle, tickets: &Tickets) {
        let mut room = self.room.borrow_mut();
        let unwatch = |ticket: Ticket| room.unwatch(ticket, id);
        let left: SmallVec<[K; 4]> = tickets.iter().filter_map(unwatch).collect();
        drop(room);
        left.into_iter().for_each(|key| drop_key(Some(key)));
    }

    /// Calls `on_complete`: here, or when the outermost call gets to it.
    #[inline]
    pub(super) fn run_callback(&self, call: &Call<'_, K, O>, payload: O, outcome: Outcome) {
        if call.outermost {
            self.call_back(payload, outcome);
        } else {
            self.queue(Work::Callback(payload, outcome));
        }
    }

    #[inline]
    fn call_back(&self, payload: O, outcome: Outcome) {
        if contain(|| payload.on_complete(outcome)).is_err() {
            self.count_panic();
        }
    }

    pub(super) fn queue(&self, work: Work<K, O>) {
        self.queue.borrow_mut().push_back(work);
    }

    fn next_queued(&self) -> Option<Work<K, O>> {
        let queue = &mut *self.queue.borrow_mut();
        let work = queue.pop_front();
        if queue.is_empty() && queue.capacity() > BUDGET {
            *queue = VecDeque::new(); // a peak is given back
        }
        work
    }

    /// Runs queued work, as much as a call may; after shutdown, when nobody may come again, all of
    /// it.
    #[cold]
    fn work_off_queue(&self) {
        let mut left = BUDGET;
        while (left > 0 || self.room.borrow().closed)
            && let Some(work) = self.next_queued()
        {
            left = left.saturating_sub(1);
            let (key, hash, value) = match work {
                Work::Callback(payload, outcome) => {
                    self.call_back(payload, outcome);
                    continue;
                }
                Work::Event(key, hash) => (key, hash, None),
                Work::Rise(key, hash, value) => (key, hash, Some(value)),
            };
            let call = Call { core: self, outermost: false };
            let raised = contain(|| {
                _ = match value {
                    None => self.event(&call, &key, hash),
                    Some(value) => self.rise(&call, &key, hash, value),
                };
            });
            if raised.is_err() {
                self.count_panic();
            }
            drop_key(Some(key));
        }
    }

    pub(super) fn advance(&self, now_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(now_ns));
        let call = self.enter();
        if !call.outermost {
            return;
        }
        let (now, now_ns, tick) = (self.now(), self.now_ns.get(), self.tick);
        let mut expired = Vec::new();
        let mut room = self.room.borrow_mut();
        room.expire(now, now_ns, tick, BUDGET, |ended, _| expired.push(ended));
        drop(room);
        expired.into_iter().for_each(|ended| _ = self.finish(&call, ended));
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        if !self.queue.borrow().is_empty() {
            return Some(self.now_ns.get());
        }
        self.with(Room::next_due).map(|due| self.tick.start_ns(due))
    }

    /// Ends everything parked as Cancelled and refuses what comes later, a bounded step at a time.
    pub(super) fn close(&self, reason: CancelReason) {
        let outcome = Outcome::Cancelled(reason);
        let call = self.enter();
        let (mut from, mut ended) = (Some(0), Vec::new());
        while let Some(mut start) = from {
            let mut room = self.room.borrow_mut();
            room.closed = true;
            from = loop {
                let Some(id) = room.first_from(start) else { break None };
                start = id.id().index() + 1;
                ended.extend(room.claim(id, outcome.clone()));
                if ended.len() >= BUDGET {
                    break Some(start);
                }
            };
            drop(room);
            ended.drain(..).for_each(|ended| _ = self.finish(&call, ended));
        }
    }

    /// Cancels everything parked. All are claimed before the first is called back.
    pub(super) fn cancel_all(&self, reason: CancelReason) -> usize {
        let call = self.enter();
        let (outcome, mut ended, mut from) = (Outcome::Cancelled(reason), Vec::new(), 0);
        let mut room = self.room.borrow_mut();
        while let Some(id) = room.first_from(from) {
            from = id.id().index() + 1;
            ended.extend(room.claim(id, outcome.clone()));
        }
        drop(room);
        let count = ended.len();
        ended.into_iter().for_each(|ended| _ = self.finish(&call, ended));
        count
    }
}
