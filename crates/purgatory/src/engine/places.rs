//! Places: each operation takes one as it is parked, with a part of `max_weight`, and returns it as
//! it ends.

use crate::{engine::Core, error::RefusedReason, operation::DelayedOperation, watches::WatchKey};

/// A place among `max_parked` and a part of `max_weight`. Dropped, when nothing is parked after
/// all, it returns both.
pub(super) struct PlaceGuard<'a, K: WatchKey, O: DelayedOperation> {
    core: &'a Core<K, O>,
    pub(super) weight: u64,
}

impl<K: WatchKey, O: DelayedOperation> Drop for PlaceGuard<'_, K, O> {
    fn drop(&mut self) {
        self.core.return_place(Some(self.weight));
    }
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Takes a place for an operation. Asks for its weight, if that is bounded.
    #[inline]
    pub(super) fn take_place(&self, operation: &O) -> Result<PlaceGuard<'_, K, O>, RefusedReason> {
        let mut weight = 1;
        // The weight first, so that an operation that is too heavy takes no place from others.
        if let Some(max_weight) = &self.settings.max_weight {
            weight = operation.weight();
            if !max_weight.acquire(weight) {
                let limit = max_weight.max();
                return Err(RefusedReason::TooHeavy { weight, limit });
            }
        }
        if let Some(max_parked) = &self.settings.max_parked {
            if !max_parked.acquire(1) {
                if let Some(max_weight) = &self.settings.max_weight {
                    max_weight.release(weight);
                }
                let limit = max_parked.max() as usize;
                return Err(RefusedReason::Full { limit });
            }
        }
        Ok(PlaceGuard { core: self, weight })
    }

    /// Returns the place of an operation that has ended, if it has one, and so a weight.
    #[inline]
    pub(super) fn return_place(&self, weight: Option<u64>) {
        if let Some(weight) = weight {
            self.return_places(1, weight);
        }
    }

    /// Returns the places of operations that have ended, and the sum of their weights.
    #[inline]
    pub(super) fn return_places(&self, count: u64, weight: u64) {
        if let Some(max_parked) = &self.settings.max_parked {
            max_parked.release(count);
        }
        if let Some(max_weight) = &self.settings.max_weight {
            max_weight.release(weight);
        }
    }
}
