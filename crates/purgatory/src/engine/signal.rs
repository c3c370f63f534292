//! Signals: a thread that has made a condition true signals the key that stands for it.
//!
//! An *event* walks the key's waiters in the order they were parked, a batch at a time. It checks
//! the batch out (waiters that are held already are left a request), runs the checks with nothing
//! locked, and checks the batch in. Then the callbacks of what ended run. Most entries are in the
//! key's own shard: they are checked out in the lock hold that finds them.

use std::{any::Any, hash::Hash, sync::Arc};

use hashbrown::Equivalent;

use crate::{
    engine::{
        Core,
        check::Batch,
        trampoline::{Call, enqueue},
        walk::Waited,
    },
    operation::DelayedOperation,
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
        let call = self.frame.enter();
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
        let call = self.frame.enter();
        let hash = self.versions.hash(key);
        if call.is_nested() {
            // The argument is the caller's and stays here: the queued event is one without.
            self.queue_signal(key, hash, Event::All);
            return 0;
        }
        self.warn_stuck_checks();
        let Some(begun) = self.begin_event(key, hash) else {
            return 0;
        };
        self.check_waiters(begun, |batch| self.check_batch_with(&call, batch, event))
    }

    /// Signals several keys, and checks each operation once, however many of them it watches. Returns
    /// how many this call completed.
    pub(crate) fn signal_several(self: &Arc<Self>, keys: &[K]) -> usize {
        if let [key] = keys {
            return self.signal(key, Event::All);
        }
        let call = self.frame.enter();
        if call.is_nested() {
            self.queue_several(keys);
            return 0;
        }
        self.signal_several_now(&call, keys)
    }

    fn signal_several_now(self: &Arc<Self>, call: &Call<'_>, keys: &[K]) -> usize {
        self.warn_stuck_checks();
        // 1. An event of each key: list its waiters.
        let mut waiters = Vec::new();
        for key in keys {
            let hash = self.versions.hash(key);
            if let Some(begun) = self.begin_event(key, hash) {
                waiters.extend(self.waiters_of(begun));
            }
        }
        // 2. Check them. One that is held by then is left a request.
        self.check_each_once(call, waiters)
    }

    /// Leaves a signal of several keys to the outermost call, as
    /// [`queue_signal`](Self::queue_signal) does.
    #[cold]
    fn queue_several(self: &Arc<Self>, keys: &[K]) {
        // 1. Those that nothing waits for count at once.
        let mut waited = Vec::new();
        for key in keys {
            let hash = self.versions.hash(key);
            let shard = self.shard_of(hash);
            match shard.stored(key, hash) {
                Some(key) => waited.push(key),
                None => self.versions.count_event(hash),
            }
        }
        // 2. The others are signalled together.
        if waited.is_empty() {
            return;
        }
        let core = self.clone();
        enqueue(move || {
            let call = core.frame.enter();
            core.signal_several_now(&call, &waited);
        });
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
            let call = core.frame.enter();
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
        self.warn_stuck_checks();
        match event {
            Event::All => self.signal_all(call, key, hash),
            Event::One => usize::from(self.signal_one(call, key, hash)),
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
        if let Some(only) = begun.shard.only_here(begun.record) {
            let held = begun.shard.check_out_here(only);
            drop(begun.shard);
            return match held {
                Some(held) => self.check_single(call, held),
                None => 0,
            };
        }

        self.check_waiters(begun, |batch| self.check_batch(call, batch))
    }

    /// Checks every waiter of a key whose event has begun, a batch at a time by `check_batch`;
    /// returns how many completed.
    #[inline(always)]
    fn check_waiters<'a>(
        self: &'a Arc<Self>,
        mut begun: Waited<'a, K, O>,
        mut check_batch: impl FnMut(&mut Batch<O>) -> usize,
    ) -> usize {
        let mut batch = Batch::of(begun.shard.waiters(begun.record));
        let mut walk = begun.walk(self, CHECK_BATCH, |of, waiter| batch.add(of, waiter));
        drop(begun);
        let mut completed = check_batch(&mut batch);
        while walk.next_into(CHECK_BATCH, &mut batch) {
            completed += check_batch(&mut batch);
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
        let Some(mut begun) = self.begin_event(key, hash) else {
            return false;
        };
        let mut batch = Batch::new();
        let mut walk = begun.walk(self, 1, |of, waiter| batch.add(of, waiter));
        drop(begun);
        loop {
            if self.check_for_one_event(call, &mut batch) {
                return true;
            }
            if !walk.next_into(1, &mut batch) {
                return false;
            }
        }
    }

    /// Counts an event. `None` when nothing is to be checked.
    #[inline]
    fn begin_event<Q: Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        hash: u64,
    ) -> Option<Waited<'_, K, O>> {
        let shard = self.shard_of(hash);
        // The condition is true by now: a thread that parks sees that, or this count.
        self.versions.count_event(hash);
        let record = shard.find(key, hash)?;
        Some(Waited { shard, record })
    }
}
