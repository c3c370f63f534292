//! Calls in a named epoch of a key of [`Watermarks`]: advances and waits.

use crate::{
    error::{Refused, WaitError},
    in_epoch::InEpoch,
    operation::{OperationId, Outcome, Timeout},
    wait::WaitFuture,
    watches::{ToKey, WatchKey},
    watermarks::{Callback, WatermarkValue, Watermarks, rank},
};

impl<K: WatchKey, V: WatermarkValue> Watermarks<K, V> {
    /// Names the key together with an epoch, for [advances and waits](InEpoch) in that epoch. Use
    /// it where a server that was replaced may still send values, or where a wait is for a record
    /// that was appended in a given epoch: a call that comes too late is refused, and no wait is
    /// met by another record.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{WaitError, Watermarks};
    ///
    /// let ends = Watermarks::new("log ends")?;
    /// ends.begin_epoch(&"orders-0", 7, 80)?; // meanwhile
    /// let old = ends.in_epoch(&"orders-0", 6); // 0 is the first
    /// let other = WaitError::OtherEpoch { named: 6, present: 7 };
    /// assert_eq!(old.advance(81), Err(other.clone()));
    /// let late = old.wait_for(81, Duration::from_secs(30));
    /// assert_eq!(late.wait_blocking(), Err(other));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_epoch<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        key: &'a Q,
        epoch: u64,
    ) -> InEpoch<'a, Self, Q> {
        InEpoch {
            form: self,
            key,
            epoch,
        }
    }
}

/// A key of [`Watermarks`].
impl<K: WatchKey, V: WatermarkValue, Q: ToKey<K> + ?Sized> InEpoch<'_, Watermarks<K, V>, Q> {
    /// Advances the key's value, as [`Watermarks::advance`] does.
    ///
    /// # Errors
    /// [`OtherEpoch`](WaitError::OtherEpoch) if the key is in another epoch: this advance is late,
    /// or its epoch has not begun here. Otherwise as [`Watermarks::advance`].
    ///
    /// # Panics
    /// Panics as [`Watermarks::advance`] does.
    pub fn advance(&self, value: V) -> Result<usize, WaitError> {
        let to = rank(value);
        let table = &self.form.handle.table;
        table.change(self.key, Some(self.epoch), |before| before.max(to))
    }

    /// Returns a future as [`Watermarks::wait_for`] does; the wait belongs to this epoch.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`]: [`OtherEpoch`](WaitError::OtherEpoch), at once, if the
    /// key is in another epoch.
    ///
    /// # Panics
    /// Panics as [`Watermarks::wait_for`] does.
    pub fn wait_for(&self, threshold: V, timeout: impl Into<Timeout>) -> WaitFuture<V> {
        let handle = &self.form.handle;
        handle.wait_for(self.key, Some(self.epoch), threshold, timeout.into())
    }

    /// Calls `then` as [`Watermarks::park`] does; the wait belongs to this epoch.
    ///
    /// # Errors
    /// [`Refused`] with the reason [`OtherEpoch`](WaitError::OtherEpoch) if the key is in another
    /// epoch. Otherwise as [`Watermarks::park`]. `then` is not called.
    ///
    /// # Panics
    /// Panics as [`Watermarks::park`] does.
    pub fn park(
        &self,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Option<OperationId>, Refused<Callback>> {
        let then = Box::new(then);
        let handle = &self.form.handle;
        handle.call_at(self.key, Some(self.epoch), threshold, timeout.into(), then)
    }
}

/// A key of [`Watermarks`] whose value counts.
impl<K: WatchKey, Q: ToKey<K> + ?Sized> InEpoch<'_, Watermarks<K>, Q> {
    /// Adds `by` to the key's value, as [`Watermarks::add`] does.
    ///
    /// # Errors
    /// Returns an error as [`advance`](Self::advance) does.
    ///
    /// # Panics
    /// Panics as [`Watermarks::advance`] does.
    pub fn add(&self, by: u64) -> Result<usize, WaitError> {
        let table = &self.form.handle.table;
        table.change(self.key, Some(self.epoch), |before| {
            before.saturating_add(by)
        })
    }
}
