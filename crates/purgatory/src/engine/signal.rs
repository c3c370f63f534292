//! Signals: a thread that has made a condition true signals the key that stands for it.
//!
//! An *event* walks the key's waiters in the order they were parked, a batch at a time. It checks
//! the batch out (if a waiter is held already, its holder is left a request), runs the checks with
//! nothing locked, and checks the batch in. Then it calls back the operations that ended. Most
//! entries are in the key's own shard: they are checked out in the lock hold that finds them.

use std::{
    any::Any,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use crate::{
    engine::{Core, LockedShard, check::Batch, walk::Waited},
    operation::{DelayedOperation, Verdict},
    sync::CHECK_BATCH,
    table::call::{Call, enqueue},
    watches::{KeyRef, WatchKey},
};

/// A signal on a key.
#[derive(Clone, Copy)]
pub(crate) enum Event<'a> {
    /// Every waiter is checked.
    All,
    /// Every waiter is checked, and told what has happened.
    With(&'a dyn Any),
    /// Waiters are checked until one completes.
    One,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Signals a key; returns how many operations this call completed. Inside a callback the signal
    /// is left to the outermost call.
    #[inline]
    pub(crate) fn signal<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        event: Event<'_>,
    ) -> usize {
        let call = self.frame.enter();
        let hash = self.hash(key);
        if call.is_nested() {
            self.queue_signal(key, hash, event);
            return 0;
        }
        self.signal_now(&call, key, hash, event)
    }

    /// Signals several keys, and checks each operation once, however many of the keys it watches.
    /// Inside a callback the signal is left to the outermost call. The keys are dropped after it.
    pub(crate) fn signal_several(self: &Arc<Self>, keys: Vec<K>) {
        let call = self.frame.enter();
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || {
                let call = core.frame.enter();
                let signal = || core.signal_several_now(&call, &keys);
                core.frame.call(signal); // the `Eq` of a key may panic
                core.drop_each(&call, keys);
            });
        } else {
            // Catch a panic of a key: a second one, as the keys are dropped, would abort.
            let signal = || self.signal_several_now(&call, &keys);
            let signalled = catch_unwind(AssertUnwindSafe(signal));
            self.drop_each(&call, keys);
            if let Err(panicked) = signalled {
                resume_unwind(panicked);
            }
        }
    }

    fn signal_several_now(self: &Arc<Self>, call: &Call<'_>, keys: &[K]) {
        if let [key] = keys {
            self.signal_out_of_line(call, key, self.hash(key), Event::All);
            return;
        }
        self.warn_stuck_checks();
        // 1. Begin an event of each key, and list the waiters of all, each once.
        let mut known = HashSet::new();
        let mut waiters = Vec::new();
        let mut panicked = None;
        for key in keys {
            // If one key's `Eq` panics, the other keys still have their events.
            let listed = catch_unwind(AssertUnwindSafe(|| {
                let hash = self.hash(key);
                let shard = self.shard_of(hash);
                if let Some(record) = self.begin_event(&shard, key, hash) {
                    waiters.extend(self.waiters_of(Waited { shard, record }));
                }
            }));
            panicked = panicked.or(listed.err());
        }
        waiters.retain(|&handle| known.insert(handle));
        // 2. Check them. If one is held by then, its holder is left a request.
        let mut batch = Batch::new();
        for together in waiters.chunks(CHECK_BATCH) {
            let handles = together.iter().copied();
            self.each_in_first_shard(
                None,
                handles,
                |&handle| handle,
                |first_shard, handle| {
                    batch.extend(first_shard.check_out(handle));
                },
            );
            self.check_batch(call, &mut batch, None);
        }
        if let Some(panicked) = panicked {
            resume_unwind(panicked);
        }
    }

    /// Leaves a signal inside a check or callback to the outermost call. If no operation waits
    /// under its key, only counts the event, at once.
    #[cold]
    fn queue_signal<Q: KeyRef<K> + ?Sized>(self: &Arc<Self>, key: &Q, hash: u64, event: Event<'_>) {
        let shard = self.shard_of(hash);
        let Some(key) = shard.stored(key, hash) else {
            self.engine.versions.count_event(hash);
            return;
        };
        drop(shard);
        // The argument is borrowed from the caller, so the queued event has none.
        let is_for_one = matches!(event, Event::One);
        let core = self.clone();
        enqueue(move || core.signal_queued(key, hash, is_for_one));
    }

    fn signal_queued(self: &Arc<Self>, key: K, hash: u64, is_for_one: bool) {
        let event = if is_for_one { Event::One } else { Event::All };
        let signal = || _ = self.signal_out_of_line(&self.frame.enter(), &key, hash, event);
        self.frame.call(signal); // the key's `Eq` may panic
        self.drop_key(&self.frame.enter(), key);
    }

    /// Signals a key as [`signal_now`](Self::signal_now) does, where the cost of a call does not
    /// matter.
    #[inline(never)]
    fn signal_out_of_line(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &K,
        hash: u64,
        event: Event<'_>,
    ) -> usize {
        self.signal_now(call, key, hash, event)
    }

    #[inline(always)]
    fn signal_now<Q: KeyRef<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        event: Event<'_>,
    ) -> usize {
        self.warn_stuck_checks();
        let mut shard = self.shard_of(hash);
        let Some(record) = self.begin_event(&shard, key, hash) else {
            return 0;
        };
        match event {
            Event::All => {
                // Most keys have one waiter: no walk is made for it.
                if let Some(only) = shard.only_here(record) {
                    let held = shard.check_out_here(only);
                    drop(shard);
                    return held.map_or(0, |held| self.check_single(call, held, None));
                }
                self.check_waiters(call, Waited { shard, record }, None)
            }
            Event::With(told) => self.check_waiters(call, Waited { shard, record }, Some(told)),
            Event::One => usize::from(self.check_until_one(call, Waited { shard, record })),
        }
    }

    /// Checks every waiter of a key whose event has begun, a batch at a time; returns how many
    /// completed.
    fn check_waiters(
        self: &Arc<Self>,
        call: &Call<'_>,
        begun: Waited<'_, K, O>,
        told: Option<&dyn Any>,
    ) -> usize {
        let waiters = begun.shard.waiters(begun.record);
        let mut batch = Batch::with_capacity(waiters.min(CHECK_BATCH));
        let mut completed = 0;
        let mut walk = self.walk(begun);
        while walk.next(CHECK_BATCH, |first_shard, handle| {
            batch.extend(first_shard.check_out(handle));
        }) {
            completed += self.check_batch(call, &mut batch, told);
        }
        completed
    }

    /// Checks the waiters of a key one at a time, until a check of this call comes true. An
    /// operation that another thread completes meanwhile does not use the event up.
    fn check_until_one(self: &Arc<Self>, call: &Call<'_>, begun: Waited<'_, K, O>) -> bool {
        let mut next = None;
        let mut walk = self.walk(begun);
        while walk.next(1, |first_shard, handle| {
            next = first_shard.check_out(handle);
        }) {
            let Some(held) = next.take() else { continue };
            let (verdict, ended) = self.check_held(held);
            if let Some(ended) = ended {
                self.finish(call, ended);
                if verdict == Verdict::Satisfied {
                    return true;
                }
            }
        }
        false
    }

    /// Counts an event, under the lock of its key's shard. Returns the key's record; `None` if
    /// nothing waits.
    #[inline]
    fn begin_event<Q: KeyRef<K> + ?Sized>(
        &self,
        shard: &LockedShard<'_, K, O>,
        key: &Q,
        hash: u64,
    ) -> Option<u32> {
        // The condition is true by now, so a thread that parks sees that, or else this count.
        self.engine.versions.count_event(hash);
        shard.find(key, hash)
    }
}
