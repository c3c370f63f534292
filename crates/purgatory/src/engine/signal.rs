//! Signals: a thread that has made a condition true signals the key that stands for it.
//!
//! An *event* walks the key's waiters in the order they were parked, a batch at a time. It checks
//! the batch out (waiters that are held already are left a request), runs the checks with nothing
//! locked, and checks the batch in. Then the callbacks of what ended run. Most entries are in the
//! key's own shard: they are checked out in the lock hold that finds them.
//!
//! Operations that wait *in turn* come after that, the head alone ([`turns`](super::turns)).
//!
//! An *advance* of the key's watermark first takes the watches that the value meets off the key.
//! *The thread that takes a watch counts it down*, with no user code in between. Then it walks the
//! met watches that wait for their check, as an event does.

use std::{any::Any, hash::Hash, sync::Arc};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{
        Core, LockedShard,
        check::Batch,
        trace::WrongSignal,
        trampoline::{Call, enqueue},
        walk::{MET_BATCH, Taken, Unfinished, WaiterWalk},
    },
    operation::{DelayedOperation, Outcome},
    shard::{CountedDown, Popped, Shard, Signalled, TurnCause, WatchList},
    sync::CHECK_BATCH,
    watches::WatchKey,
};

/// A signal on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Every waiter is checked.
    All,
    /// Waiters are checked until one completes.
    One,
    /// The key's watermark has this value now.
    Advance(u64),
}

/// An event that was counted, of a key that has waiters. Its shard is locked.
struct Begun<'a, K: Eq + Clone, O> {
    shard: LockedShard<'a, K, O>,
    record: u32,
    signalled: Signalled,
}

impl<'a, K: WatchKey, O: DelayedOperation> Begun<'a, K, O> {
    /// Makes a batch for the key's plain watches. It may have room for the others, too.
    #[inline]
    fn batch(&self) -> Batch<O> {
        if self.shard.has_plain(self.record) {
            Batch::of(self.shard.waiters(self.record))
        } else {
            Batch::new()
        }
    }

    /// Begins a walk over the key's plain watches, with the first `limit` waiters in `batch`.
    #[inline]
    fn walk(
        mut self,
        core: &'a Core<K, O>,
        limit: usize,
        batch: &mut Batch<O>,
    ) -> WaiterWalk<'a, K, O> {
        WaiterWalk::begin(
            &core.shards,
            &mut self.shard,
            self.record,
            WatchList::Plain,
            limit,
            |entries, waiter| batch.add(entries, waiter),
        )
    }
}

/// Operations whose threshold watches an advance has met.
struct MetByAdvance<'a, K: WatchKey, O: DelayedOperation> {
    /// Their last watermark was met. Also finished when a key's `Eq` panics.
    completed: Unfinished<'a, K, O>,
    /// They wait for other watermarks, but their check may be true already.
    to_check: Vec<TimerHandle>,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Signals a key; returns how many operations this call completed. Inside a callback the signal
    /// waits for the outermost call.
    #[inline]
    pub(crate) fn signal<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        event: Event,
    ) -> usize {
        let call = Call::enter(&self.job_executor);
        let hash = self.versions.hash(key);
        if call.is_nested() {
            self.queue_signal(key, hash, event);
            return 0;
        }
        self.signal_now(&call, key, hash, event)
    }

    /// Signals a key with an argument; returns how many operations this call completed.
    pub(crate) fn signal_with<Q: Hash + Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        event: &dyn Any,
    ) -> usize {
        let call = Call::enter(&self.job_executor);
        let hash = self.versions.hash(key);
        if call.is_nested() {
            // The argument is the caller's and stays here: the queued event is one without.
            self.queue_signal(key, hash, Event::All);
            return 0;
        }
        self.warn(key, hash, Event::All);

        let Some(begun) = self.begin_event(key, hash) else {
            return 0;
        };
        self.check_waiters(&call, key, hash, begun, |batch| {
            self.check_batch_with(&call, batch, event)
        })
    }

    /// Leaves a signal inside a check or callback to the outermost call. If nothing waits for its
    /// key, it only counts as an event, at once.
    #[cold]
    fn queue_signal<Q: Equivalent<K> + ?Sized>(self: &Arc<Self>, key: &Q, hash: u64, event: Event) {
        let shard = self.shard_of(hash);
        let Some(key) = shard.stored(key, hash) else {
            self.versions.count_event(hash);
            return;
        };
        drop(shard);
        let core = self.clone();
        enqueue(move || {
            let call = Call::enter(&core.job_executor);
            core.signal_now::<K>(&call, &key, hash, event);
        });
    }

    #[inline(always)]
    fn signal_now<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        event: Event,
    ) -> usize {
        self.warn(key, hash, event);
        match event {
            Event::All => self.signal_all(call, key, hash),
            Event::One => usize::from(self.signal_one(call, key, hash)),
            Event::Advance(value) => self.advance_watermark(call, key, hash, value),
        }
    }

    /// In debug builds, warns of stuck checks, and of a signal that reaches none of its key's
    /// watches.
    #[inline]
    fn warn<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64, event: Event) {
        self.warn_stuck_checks();
        if cfg!(debug_assertions) {
            self.warn_wrong_signal(key, hash, event);
        }
    }

    /// Warns once a key of a signal that reaches none of the key's watches, since they wait for
    /// another call. In debug builds only: this takes the shard's lock once more.
    fn warn_wrong_signal<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: u64, event: Event) {
        // Which kinds of watches does the key have?
        let shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return;
        };
        let watches = shard.waiters(record);
        let is_reached = match event {
            Event::All | Event::One => shard.has_plain(record) || shard.has_in_turn(record),
            Event::Advance(_) => shard.has_watermarks(record),
        };
        drop(shard);

        // Warn with nothing locked: a subscriber is user code.
        if !is_reached {
            let wrong_signal = match event {
                Event::All => WrongSignal::watermarks("check_and_complete", watches),
                Event::One => WrongSignal::watermarks("check_and_complete_one", watches),
                Event::Advance(_) => WrongSignal::plain("complete_up_to", watches),
            };
            self.counts
                .cold()
                .warned
                .wrong_signal(&self.settings.name, hash, wrong_signal);
        }
    }

    /// Checks every waiter of a key; returns how many completed.
    #[inline]
    fn signal_all<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
    ) -> usize {
        let Some(mut begun) = self.begin_event(key, hash) else {
            return 0;
        };
        // Most keys have one waiter: no batch is made for it.
        if let Some(only) = begun.signalled.only_here() {
            let held = begun.shard.check_out_here(only);
            drop(begun.shard);
            return match held {
                Some(held) => self.check_single(call, held),
                None => 0,
            };
        }

        self.check_waiters(call, key, hash, begun, |batch| {
            self.check_batch(call, batch)
        })
    }

    /// Checks every waiter of a key whose event has begun, a batch at a time by `check_batch`;
    /// returns how many completed.
    #[inline(always)]
    fn check_waiters<'a, Q: Equivalent<K> + ?Sized>(
        self: &'a Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        begun: Begun<'a, K, O>,
        mut check_batch: impl FnMut(&mut Batch<O>) -> usize,
    ) -> usize {
        // 1. The plain ones.
        let has_in_turn = begun.signalled.has_in_turn;
        let mut batch = begun.batch();
        let mut walk = begun.walk(self, CHECK_BATCH, &mut batch);
        let mut completed = check_batch(&mut batch);
        while walk.next_into(CHECK_BATCH, &mut batch) {
            completed += check_batch(&mut batch);
        }
        // 2. Those in turn. An event that is handed on has no argument.
        if has_in_turn {
            let served = self.signal_in_turn(call, key, hash, TurnCause::EventForAll);
            completed += served.completed;
        }
        completed
    }

    /// Checks the waiters of a key one after the other, until a check of this call has come true.
    fn signal_one<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
    ) -> bool {
        let Some(begun) = self.begin_event(key, hash) else {
            return false;
        };
        // 1. The plain ones.
        let has_in_turn = begun.signalled.has_in_turn;
        let mut batch = Batch::new();
        let mut walk = begun.walk(self, 1, &mut batch);
        loop {
            if self.check_for_one_event(call, &mut batch) {
                return true;
            }
            if !walk.next_into(1, &mut batch) {
                break;
            }
        }
        // 2. Those in turn.
        let cause = TurnCause::EventForOne;
        has_in_turn && self.signal_in_turn(call, key, hash, cause).came_true
    }

    /// Counts an event. `None` when nothing is to be checked.
    #[inline]
    fn begin_event<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> Option<Begun<'_, K, O>> {
        const { assert!(O::CHECKED, "an event checks operations") };
        let mut shard = self.shard_of(hash);
        // The condition is true by now: a thread that parks sees that, or this count.
        self.versions.count_event(hash);
        let record = shard.find(key, hash)?;
        let signalled = shard.record_event(record);
        Some(Begun {
            shard,
            record,
            signalled,
        })
    }

    /// Advances a key's watermark to `value`; returns how many operations this call completed.
    fn advance_watermark<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        value: u64,
    ) -> usize {
        // 1. Take the watches that the value meets, and count each down.
        let mut met = MetByAdvance {
            completed: Unfinished::new(self, call),
            to_check: Vec::new(),
        };
        let mut batch = Batch::new();
        let met_watches = self.take_met_watches(key, hash, value, &mut met, &mut batch);

        // 2. Finish the operations whose last watermark was met, and check those that wait for
        //    others.
        let mut completed = met.completed.finish();
        completed += self.check_each_once(call, met.to_check);

        // 3. Check the operations with a checked watch that is met, as an event does.
        completed += self.check_batch(call, &mut batch);
        if let Some(mut walk) = met_watches {
            while walk.next_into(CHECK_BATCH, &mut batch) {
                completed += self.check_batch(call, &mut batch);
            }
        }
        completed
    }

    /// Takes every watch that `value` meets off a key, some under one lock hold. Threshold watches
    /// are counted down; checked watches move to the key's met list, over which a walk begins. No
    /// user code runs in between: a watch that it parked would be taken, too.
    fn take_met_watches<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
        value: u64,
        met: &mut MetByAdvance<'_, K, O>,
        batch: &mut Batch<O>,
    ) -> Option<WaiterWalk<'_, K, O>> {
        let now_ns = self.ending_at();
        let mut count_down =
            |first_shard: &mut Shard<K, O>, handle| match first_shard.count_down(handle) {
                CountedDown::Last => {
                    let ended = self.claim_in(first_shard, handle, &Outcome::Completed, now_ns);
                    met.completed.ended.extend(ended);
                }
                CountedDown::OthersRemain => met.to_check.push(handle),
                CountedDown::Gone => {}
            };
        let mut taken = Taken::new();
        let mut took_any = false;
        let mut shard = self.shard_of(hash);
        self.versions.count_event(hash);
        loop {
            let record = shard.find(key, hash)?;
            // An advance is an event: the key is not quiet.
            shard.record_event(record);
            let popped = shard.pop_up_to(record, value, MET_BATCH, |handle| {
                taken.push(handle);
            });
            took_any |= !taken.is_empty();
            let mut met_watches = None;
            if matches!(popped, Popped::Done) {
                // The walk begins in the same lock hold. Where callbacks come first it checks
                // nothing out yet, so that nothing is held meanwhile.
                let limit = if took_any { 0 } else { CHECK_BATCH };
                met_watches = Some(WaiterWalk::begin(
                    &self.shards,
                    &mut shard,
                    record,
                    WatchList::Met,
                    limit,
                    |entries, waiter| batch.add(entries, waiter),
                ));
            }
            self.each_taken(shard, &taken, &mut count_down);
            if !matches!(popped, Popped::More) {
                return met_watches; // an emptied key is dropped with nothing locked
            }
            taken.clear();
            shard = self.shard_of(hash);
        }
    }
}
