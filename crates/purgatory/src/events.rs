//! Events with an argument: [`check_and_complete_with`](Purgatory::check_and_complete_with).

use std::{any::Any, borrow::Borrow, hash::Hash};

use crate::{operation::DelayedOperation, purgatory::Purgatory, watches::WatchKey};

/// Events with an argument.
impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Signals a key as [`check_and_complete`](Self::check_and_complete) does, and tells each
    /// operation's check what has happened
    /// ([`try_complete_with`](DelayedOperation::try_complete_with)): the tag of a message, say, so
    /// that only the pulls that want it read the queue.
    ///
    /// The one rule holds as for every event: change the state first. An argument may not arrive.
    /// Events that come while an operation is under check, or is being parked, are merged: its
    /// check runs once more, without an argument
    /// ([`try_complete`](DelayedOperation::try_complete)), and looks at the state. Inside a check
    /// or callback this returns 0, and the queued event has no argument.
    ///
    /// O(n) for n plain watches of the key; one lock if there are none. The argument is borrowed
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
    pub fn check_and_complete_with<Q: Hash + Eq + ?Sized, E: Any>(
        &self,
        key: &Q,
        event: &E,
    ) -> usize
    where
        K: Borrow<Q>,
    {
        const { assert!(O::SIGNALLED_BY_CALLERS, "their owner signals these keys") };
        self.core.signal_with(key, event)
    }
}
