//! Reaching operations: one is taken out for the caller, or shown where it lies.

use timer_core::TimerHandle;

use super::{Shard, ToRelease};
use crate::operation::{DelayedOperation, ReachResult};

/// An operation where it lies, reached under the lock.
#[derive(Debug)]
pub(crate) struct InPlace<'a, K, O> {
    /// `None` while the entry is held.
    pub(crate) payload: Option<&'a mut O>,
    pub(crate) first_key: &'a K,
}

impl<K: Eq + Clone, O: DelayedOperation> Shard<K, O> {
    /// Takes a parked operation out, to be answered by the caller. It has no outcome.
    pub(crate) fn take(&mut self, handle: TimerHandle) -> ReachResult<(O, ToRelease<K>)> {
        // Holder removes: no request, since the caller cannot be given the payload later.
        self.remove_if(handle, |entry, _, cold| {
            let payload = entry.payload.take()?;
            cold.taken += 1;
            Some((payload, u64::MAX))
        })
    }

    /// Shows an operation where it lies, parked or held, with its first key, unless it has ended.
    pub(crate) fn show(&mut self, handle: TimerHandle) -> Option<InPlace<'_, K, O>> {
        let entry = self.wheel.get_mut(handle.id())?;
        let first_key = &self.keys.at(entry.link.record()).key;
        Some(InPlace {
            payload: entry.payload.as_mut(),
            first_key,
        })
    }
}
