//! Reaching parked operations: [`take`](Purgatory::take), [`with`](Purgatory::with),
//! [`for_each`](Purgatory::for_each); all operations of a key:
//! [`take_for_key`](Purgatory::take_for_key), [`with_for_key`](Purgatory::with_for_key).
//!
//! A closure that is called on an operation in place runs under the lock of the operation's first
//! shard. A call of the purgatory inside the closure would wait for that lock: debug builds panic
//! instead ([`must_be_unlocked`](crate::table::under_lock::must_be_unlocked)). An operation that a
//! thread has checked out cannot be reached; the caller is told so.

use std::{panic::resume_unwind, slice};

use smallvec::SmallVec;
use timer_core::TimerHandle;

use crate::{
    engine::Kernel,
    operation::{DelayedOperation, OperationId, ReachResult},
    purgatory::Purgatory,
    shard::ToRelease,
    table::{
        Inside,
        tour::{Handles, Tour},
        under_lock::under_lock,
    },
    watches::{KeyRef, WatchKey},
};

/// Reaching parked operations.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Takes a parked operation out, without a callback: the caller answers it, or parks it again.
    ///
    /// When this returns, the operation's keys and its place under
    /// [`max_parked`](crate::Builder::max_parked) are free, and no event, timeout or shutdown
    /// reaches it any more. An operation under check is not taken
    /// ([`UnderCheck`](ReachResult::UnderCheck)), nor is one whose last check is queued; either may
    /// go on waiting. To end such an operation for sure, [cancel](Self::cancel) it.
    ///
    /// The operation counts as [`taken`](crate::Stats::taken), has no outcome, and its wait is not
    /// timed.
    ///
    /// If you take the operation of a [`wait`](Purgatory::wait), it is best to end it: call its
    /// `on_complete`. If you drop it, it ends as [`Panicked`](crate::CancelReason::Panicked). If
    /// you park it again, it still answers its future, but the future does not know the new id and
    /// neither cancels nor reschedules it; once the future is dropped, the condition never comes
    /// true. Parked again, the operation has a last check only if the purgatory
    /// [checks at expiry](crate::Builder::check_at_expiry). The operation of a
    /// [`next_event`](Purgatory::next_event) ends when it is parked again.
    ///
    /// O(k) for its k keys.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{DelayedOperation, Outcome, Purgatory};
    ///
    /// struct Waiter { client: u32 }
    /// impl DelayedOperation for Waiter {
    ///     fn try_complete(&mut self) -> bool { false }
    ///     fn on_complete(self, _: Outcome) { unreachable!("it is taken") }
    /// }
    ///
    /// let waits = Purgatory::new("locks")?;
    /// let timeout = Duration::from_secs(30);
    /// let parked = waits.try_complete_else_watch(Waiter { client: 7 }, &["row"], timeout)?;
    /// let id = parked.expect("its check is never true");
    /// let waiter = waits.take(id).reached().expect("no thread checks it");
    /// assert_eq!((waiter.client, waits.len(), waits.stats().taken), (7, 0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the operation may be under check, and was not reached then"]
    pub fn take(&self, id: OperationId) -> ReachResult<O> {
        let Some(handle) = self.handle.table.frame.handle(id) else {
            return ReachResult::Gone;
        };
        let taken = self.handle.table.first_shard_of(handle).take(handle);
        taken.map(|(operation, to_release)| {
            self.handle.table.release_uncalled(to_release);
            operation
        })
    }

    /// Takes out all operations parked under `key`, as [`take`](Self::take) does with one. Returns
    /// them, in the order of parking, and the ids of the operations that were not taken because
    /// they are under check; these may go on waiting.
    ///
    /// This is not an event: operations that other threads park meanwhile may stay.
    ///
    /// O(n) for n watches of the key, with memory for all of them. The key's shard is locked for 128
    /// of its watches at a time.
    ///
    /// ```
    /// use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout, when};
    ///
    /// let fetches = Purgatory::<&str>::new("fetch")?;
    /// for topic in ["orders", "orders", "users"] {
    ///     fetches.try_complete_else_watch(when(|| false, drop), &[topic], Timeout::Never)?;
    /// }
    /// let (taken, under_check) = fetches.take_for_key(&"orders");
    /// assert_eq!((taken.len(), under_check.len(), fetches.len()), (2, 0, 1));
    /// for fetch in taken {
    ///     fetch.on_complete(Outcome::Completed); // the caller answers them
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if the key's own `Hash` or `Eq` panics.
    #[must_use = "the operations in it are unanswered"]
    pub fn take_for_key<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> (Vec<O>, Vec<OperationId>) {
        // 1. Take each out under its first shard's lock.
        let mut operations = Vec::new();
        let mut to_release = SmallVec::<[ToRelease<K>; 4]>::new();
        let mut under_check = Vec::new();
        let table = &self.handle.table;
        if let Some(waited) = table.waited(key) {
            table.each_waiter(waited, |first_shard, handle| {
                match first_shard.take(handle) {
                    ReachResult::Reached((operation, released)) => {
                        operations.push(operation);
                        to_release.push(released);
                    }
                    ReachResult::UnderCheck => under_check.push(table.frame.id(handle)),
                    ReachResult::Gone => {}
                }
            });
        }
        // 2. Release their watches, with nothing locked.
        for released in to_release {
            table.release_uncalled(released);
        }
        (operations, under_check)
    }

    /// Calls `reach` with a parked operation in place, to look at it or to change it. An operation
    /// under check is not reached ([`UnderCheck`](ReachResult::UnderCheck)).
    ///
    /// This is not an event. If the change may have made its condition true, signal its key
    /// afterwards. O(1).
    ///
    /// # Locks
    /// `reach` runs under the lock of the operation's shard, so it must be short. It must not call
    /// a purgatory, nor drop a value that does, such as a [future](crate::WaitFuture). Debug builds
    /// panic on such a call; a release build may deadlock.
    ///
    /// If `reach` replaces the operation of a [`wait`](Purgatory::wait) by another one, the
    /// replaced operation is the caller's, as if it had been [taken](Self::take). The place remains
    /// the future's until the future has its answer: dropping the future before that ends the
    /// operation then in its place.
    ///
    /// # Panics
    /// Resumes a panic of `reach`; the operation stays parked, as `reach` left it.
    ///
    /// ```
    /// use purgatory::{DelayedOperation, Outcome, Purgatory, ReachResult, Timeout};
    ///
    /// struct Waiter { for_lock_of: u64 }
    /// impl DelayedOperation for Waiter {
    ///     fn try_complete(&mut self) -> bool { false }
    ///     fn on_complete(self, _: Outcome) {}
    /// }
    ///
    /// let waits = Purgatory::new("locks")?;
    /// let waiter = Waiter { for_lock_of: 1 };
    /// let parked = waits.try_complete_else_watch(waiter, &["row"], Timeout::Never)?;
    /// let id = parked.expect("its check is never true");
    /// let was = waits.with(id, |waiter| std::mem::replace(&mut waiter.for_lock_of, 2));
    /// assert_eq!(was, ReachResult::Reached(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the operation may be under check, and was not reached then"]
    pub fn with<R>(&self, id: OperationId, reach: impl FnOnce(&mut O) -> R) -> ReachResult<R> {
        match self.handle.table.frame.handle(id) {
            Some(handle) => self.with_at(handle, reach),
            None => ReachResult::Gone,
        }
    }

    /// Calls `reach` with each operation parked under `key` in place, as [`with`](Self::with) does
    /// with one. Returns the results, in the order of parking, and the ids of the operations that
    /// were not reached because they are under check.
    ///
    /// Use it to find an operation by a name that the caller chose before parking it: park the
    /// operation under that name as a further key. Code that has the name needs no id, which exists
    /// only once the operation is parked.
    ///
    /// This is not an event: operations that other threads park meanwhile may be missed.
    ///
    /// O(n) for n watches of the key, with memory for all of them. The key's shard is locked for 128
    /// of its watches at a time, then the shard of each operation in turn.
    ///
    /// ```
    /// use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout};
    ///
    /// struct Waiter { for_lock_of: u64 }
    /// impl DelayedOperation for Waiter {
    ///     fn try_complete(&mut self) -> bool { false }
    ///     fn on_complete(self, _: Outcome) {}
    /// }
    ///
    /// #[derive(Clone, PartialEq, Eq, Hash)]
    /// enum Key { Row(u64), Request(u64) }
    ///
    /// let waits = Purgatory::new("locks")?;
    /// let keys = [Key::Row(3), Key::Request(7)]; // an event is of the row; 7 is the request's name
    /// waits.try_complete_else_watch(Waiter { for_lock_of: 1 }, &keys, Timeout::Never)?;
    /// let passed_on = |waiter: &mut Waiter| std::mem::replace(&mut waiter.for_lock_of, 2);
    /// let (was, under_check) = waits.with_for_key(&Key::Request(7), passed_on);
    /// assert_eq!((was, under_check.len()), (vec![1], 0));
    /// assert_eq!(waits.cancel_for_key(&Key::Request(7), "withdrawn"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Locks
    /// `reach` runs under the lock of each operation's shard. The same rules hold as for
    /// [`with`](Self::with).
    ///
    /// # Panics
    /// Resumes a panic of `reach`, or of the key's own `Hash` or `Eq`. The operations stay parked;
    /// results are dropped.
    #[must_use = "operations may be under check, and were not reached then"]
    pub fn with_for_key<Q: KeyRef<K> + ?Sized, R>(
        &self,
        key: &Q,
        mut reach: impl FnMut(&mut O) -> R,
    ) -> (Vec<R>, Vec<OperationId>) {
        let mut results = Vec::new();
        let mut under_check = Vec::new();
        let Some(waited) = self.handle.table.waited(key) else {
            return (results, under_check);
        };
        for handle in self.handle.table.waiters_of(waited) {
            match self.with_at(handle, &mut reach) {
                ReachResult::Reached(result) => results.push(result),
                ReachResult::UnderCheck => under_check.push(self.handle.table.frame.id(handle)),
                ReachResult::Gone => {}
            }
        }
        (results, under_check)
    }

    /// Calls `visit` with each parked operation, its id and the keys that it waits for, in no
    /// particular order. An operation under check is passed as `None`, with its id and keys.
    ///
    /// Each operation that stays parked throughout is visited once; one that is parked or ends
    /// meanwhile may be visited or not. Keys come in the order given. O(parked + their keys). The
    /// keys of an operation with several keys are cloned.
    ///
    /// # Locks
    /// `visit` runs under the lock of the operation's shard, for up to 64 operations in one lock
    /// hold. The same rules hold as for [`with`](Self::with): it must be short and must not call a
    /// purgatory. Collect ids here and act on them afterwards.
    ///
    /// # Panics
    /// Resumes a panic of `visit`, or of a key's own `Clone`.
    ///
    /// ```
    /// use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout};
    ///
    /// struct Waiter { client: u32 }
    /// impl DelayedOperation for Waiter {
    ///     fn try_complete(&mut self) -> bool { false }
    ///     fn on_complete(self, _: Outcome) {}
    /// }
    ///
    /// let waits = Purgatory::new("locks")?;
    /// waits.try_complete_else_watch(Waiter { client: 7 }, &["a", "b"], Timeout::Never)?;
    /// let mut dump = Vec::new();
    /// waits.for_each(|_id, keys, waiter| {
    ///     let client = waiter.map(|waiter| waiter.client); // `None`: under check
    ///     dump.push((client, keys.to_vec()));
    /// });
    /// assert_eq!(dump, [(Some(7), vec!["a", "b"])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each(&self, mut visit: impl FnMut(OperationId, &[K], Option<&mut O>)) {
        let mut tour = Tour::default();
        while let Some((mut shard, handles)) = tour.next(&self.handle.table.shards) {
            // 1. An operation with one key is visited in this lock hold, and its key is not cloned.
            let mut with_several = Handles::new();
            let mut visited = Ok(());
            for handle in handles {
                let Some((entry, key)) = shard.show(handle) else {
                    continue;
                };
                if entry.last_secondary.is_some() {
                    with_several.push(handle);
                    continue;
                }
                let id = self.handle.table.frame.id(handle);
                let keys = slice::from_ref(key);
                visited = under_lock(|| visit(id, keys, entry.payload.as_mut()));
                if visited.is_err() {
                    break;
                }
            }
            drop(shard);
            visited.unwrap_or_else(|panic| resume_unwind(panic));
            // 2. Visit the operations with several keys one by one.
            for handle in with_several {
                self.visit_with_keys(handle, &mut visit);
            }
        }
    }

    /// Visits an operation with several keys, unless it has ended.
    fn visit_with_keys(
        &self,
        handle: TimerHandle,
        visit: &mut impl FnMut(OperationId, &[K], Option<&mut O>),
    ) {
        let Some(keys) = Kernel::keys_of(&self.handle.table, handle) else {
            return;
        };
        // The keys are dropped after the unlock.
        let id = self.handle.table.frame.id(handle);
        let mut visited = Ok(());
        let mut first_shard = self.handle.table.first_shard_of(handle);
        if let Some(entry) = first_shard.get_mut(handle) {
            visited = under_lock(|| visit(id, &keys, entry.payload.as_mut()));
        }
        drop(first_shard);
        let table = &self.handle.table;
        table.drop_each(&table.frame.enter(), keys);
        visited.unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn with_at<R>(&self, handle: TimerHandle, reach: impl FnOnce(&mut O) -> R) -> ReachResult<R> {
        // 1. Reach the operation if it is there. If not, the closure is dropped with nothing
        //    locked.
        let mut first_shard = self.handle.table.first_shard_of(handle);
        let reached = match first_shard.get_mut(handle) {
            None => ReachResult::Gone,
            Some(entry) => match &mut entry.payload {
                None => ReachResult::UnderCheck,
                Some(operation) => ReachResult::Reached(under_lock(|| reach(operation))),
            },
        };
        drop(first_shard);
        // 2. Pass a panic on.
        reached.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}
