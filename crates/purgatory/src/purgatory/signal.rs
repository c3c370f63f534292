//! Signalling a key: [`check_and_complete`](Purgatory::check_and_complete) and its variants.

use std::any::Any;

use crate::{
    engine::signal::Event,
    operation::DelayedOperation,
    purgatory::Purgatory,
    watches::{KeyRef, WatchKey},
};

/// Signalling.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Signals a key: checks the operations parked under it, in the order of parking, and returns
    /// how many this call completed.
    ///
    /// Call it after any change that may have made their conditions true. An operation that another
    /// thread is checking right now is checked again by that thread. An operation whose deadline
    /// has passed can still complete until the reaper expires it.
    ///
    /// Checks and callbacks run here, with nothing of the purgatory locked. Do not hold a lock that
    /// one of them needs: [collect the keys and signal them
    /// later](crate::guide::recipes::signal_after_unlock). Inside a check or callback this returns
    /// 0, and the key's operations are checked behind the
    /// [outermost call](crate::guide::your_code).
    ///
    /// `key` can be any borrowed form of the key type, as in a `HashMap`, so signalling allocates
    /// no `String`. The same holds for every method that only looks a key up.
    ///
    /// ```
    /// use purgatory::{Purgatory, Timeout, when};
    ///
    /// let fetches = Purgatory::<String>::new("fetch")?;
    /// let fetch = when(|| false, drop);
    /// fetches.try_complete_else_watch(fetch, &["orders-0".to_owned()], Timeout::Never)?;
    /// assert_eq!((fetches.check_and_complete("orders-0"), fetches.waiters("orders-0")), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// O(n) for n watches of the key; one lock if there are none.
    ///
    /// # Panics
    /// Panics only if the key's own `Hash`, `Eq` or `Clone` panics. Panics of checks and callbacks
    /// are contained, and the remaining operations are checked.
    pub fn check_and_complete<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> usize {
        self.handle.table.signal(key, Event::All)
    }

    /// Signals a key for a change that can complete one operation only, such as one more job or one
    /// free lease. Checks operations in the order of parking until one completes whose future, if
    /// it has one, was not dropped meanwhile. Returns true if one did.
    ///
    /// Like `notify_one`, it is right only if the operations wait under this key alone, their
    /// checks *take* what they wait for, and nothing else completes them. Otherwise signal all: an
    /// operation that is not checked waits for the next event or its timeout.
    ///
    /// An operation that another thread is checking right now is left to that thread, and the next
    /// one is checked. The next one is also checked if a future is dropped while it waits or is
    /// under check. A future may be dropped with the value that it took: make the value a [guard
    /// that is returned on drop](crate::guide::recipes::deadline) and signals the key again.
    ///
    /// Inside a check or callback this returns false, and one operation is completed behind the
    /// [outermost call](crate::guide::your_code).
    ///
    /// ```
    /// use std::{sync::{Arc, Mutex}, time::Duration};
    /// use purgatory::Purgatory;
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("jobs")?;
    /// let jobs = Arc::new(Mutex::new(Vec::new()));
    /// let take = || {
    ///     let jobs = jobs.clone();
    ///     waits.wait(&["job"], Duration::from_secs(30), move || jobs.lock().unwrap().pop())
    /// };
    /// let first = take();
    /// let second = take();
    /// jobs.lock().unwrap().push("a job");
    /// assert!(waits.check_and_complete_one(&"job"));
    /// assert_eq!((first.wait_blocking(), waits.len()), (Ok("a job"), 1));
    /// # drop(second);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// O(c) for c checks; one lock if there are no waiters.
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn check_and_complete_one<Q: KeyRef<K> + ?Sized>(&self, key: &Q) -> bool {
        self.handle.table.signal(key, Event::One) > 0
    }

    /// Signals a key as [`check_and_complete`](Self::check_and_complete) does, and tells each
    /// operation's check what has happened
    /// ([`try_complete_with`](DelayedOperation::try_complete_with)): for example the tag of a
    /// message, so that only the pulls that want this tag read the queue.
    ///
    /// The one rule holds as for every event: change the state first. The argument may fail to
    /// arrive. Events that come while an operation is under check, or is being parked, are merged:
    /// its check runs once more, without an argument
    /// ([`try_complete`](DelayedOperation::try_complete)), and looks at the state. Inside a check
    /// or callback this returns 0, and the queued event has no argument.
    ///
    /// O(n) for n watches of the key; one lock if there are none. The argument is borrowed
    /// and never cloned.
    ///
    /// ```
    /// use std::{any::Any, collections::VecDeque, sync::{Arc, Mutex}, time::Duration};
    /// use purgatory::{DelayedOperation, Outcome, Purgatory};
    ///
    /// type Queue = Arc<Mutex<VecDeque<(&'static str, u32)>>>; // tags and messages
    ///
    /// struct Pull { tag: &'static str, queue: Queue }
    ///
    /// impl DelayedOperation for Pull {
    ///     fn try_complete(&mut self) -> bool {
    ///         self.queue.lock().unwrap().iter().any(|(tag, _)| *tag == self.tag)
    ///     }
    ///
    ///     fn try_complete_with(&mut self, event: &dyn Any) -> bool {
    ///         event.downcast_ref() == Some(&self.tag) && self.try_complete()
    ///     }
    ///
    ///     fn on_complete(self, _: Outcome) {}
    /// }
    ///
    /// let queue = Queue::default();
    /// let pulls = Purgatory::new("pulls")?;
    /// for tag in ["red", "blue"] {
    ///     let pull = Pull { tag, queue: queue.clone() };
    ///     pulls.try_complete_else_watch(pull, &["orders"], Duration::from_secs(30))?;
    /// }
    /// queue.lock().unwrap().push_back(("red", 7));
    /// assert_eq!(pulls.check_and_complete_with(&"orders", &"red"), 1); // "blue" did not look
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics as [`check_and_complete`](Self::check_and_complete) does.
    pub fn check_and_complete_with<Q: KeyRef<K> + ?Sized, E: Any>(
        &self,
        key: &Q,
        event: &E,
    ) -> usize {
        self.handle.table.signal(key, Event::With(event))
    }
}
