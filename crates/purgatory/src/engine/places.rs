//! Places: each operation takes one as it is parked, and returns it as it ends.

use crate::{engine::Core, error::WaitError, operation::DelayedOperation, watches::WatchKey};

/// A place among `max_parked`. Dropped, when nothing is parked after all, it returns the place.
pub(super) struct PlaceGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for PlaceGuard<'_, K, O> {
    fn drop(&mut self) {
        self.core.return_place();
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Takes a place for an operation.
    #[inline]
    pub(super) fn take_place(&self) -> Result<PlaceGuard<'_, K, O>, WaitError> {
        if let Some(max_parked) = &self.max_parked {
            if !max_parked.acquire(1) {
                let limit = max_parked.max() as usize;
                return Err(WaitError::Full { limit });
            }
        }
        Ok(PlaceGuard { core: self })
    }

    /// Returns the place of an operation that has ended.
    #[inline]
    pub(super) fn return_place(&self) {
        if let Some(max_parked) = &self.max_parked {
            max_parked.release(1);
        }
    }
}
