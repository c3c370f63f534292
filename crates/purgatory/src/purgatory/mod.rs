//! [`Purgatory`], the handle that most programs hold. Its methods are in five files, by what a
//! program does: it parks, signals, ends, reaches, inspects.

// Apart, so that the documentation has the methods in this order.
mod park;

mod signal;

pub(crate) mod end;

mod reach;

mod inspect;

use std::sync::Arc;

use crate::{
    boxed::BoxedOperation,
    engine::Core,
    operation::{CancelReason, DelayedOperation, opaque},
    sync::{Share, Shares},
    watches::WatchKey,
};

/// Parks operations `O` under keys `K` until they complete, expire or are cancelled.
///
/// The default, `BoxedOperation`, accepts any operation; `wait` needs it.
///
/// Park an operation with [`try_complete_else_watch`](Self::try_complete_else_watch). Code that
/// makes a condition true calls [`check_and_complete`](Self::check_and_complete) with its key. An
/// operation that is not completed in time expires. Each operation ends exactly once.
///
/// A purgatory is a handle: clones share the same operations. Dropping the last handle ends all
/// parked operations as [`Dropped`](CancelReason::Dropped), without waiting for a thread. It may be
/// dropped inside a callback.
///
/// # The one rule
/// Make the condition true *first*, then signal the key, and hold no lock that a check needs while
/// you signal. Then no event is lost: when `check_and_complete` returns, every operation parked
/// under the key before the call has ended, was seen unsatisfied, or is checked again by the thread
/// that has it under check.
///
/// # Locks
/// Checks and callbacks run with nothing of the purgatory locked ([where](crate::guide::your_code)).
/// No thread blocks while another runs one. A key's `Eq` and `Clone` run under a lock and must not
/// call back.
///
/// # Calls from inside a check or callback
/// Checks and callbacks of a nested call are queued until the outermost call returns, so a nested
/// event returns 0 and a chain of completions needs no stack. A change that follows an event needs
/// another event.
///
/// # Cost
/// Parking and completing under one key takes three locks and a clock read. Up to four keys need no
/// allocation per operation. Threads contend only within a shard
/// ([`Builder::shards`](crate::Builder::shards)).
pub struct Purgatory<K: WatchKey, O: DelayedOperation = BoxedOperation> {
    pub(crate) core: Arc<Core<K, O>>,
    closes_on_drop: Arc<ClosesOnDrop<K, O>>,
}

/// The part that all handles share. Closes the purgatory when the last handle is dropped.
struct ClosesOnDrop<K: WatchKey, O: DelayedOperation> {
    /// Shares for futures. Each thread takes one, so that threads count on different words.
    shares: Shares<Arc<Core<K, O>>>,
}

impl<K: WatchKey, O: DelayedOperation> Drop for ClosesOnDrop<K, O> {
    fn drop(&mut self) {
        let core = self.shares.value();
        core.close(CancelReason::Dropped);
        #[cfg(feature = "metrics")]
        core.withdraw();
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Makes the first handle of a core.
    pub(crate) fn from_core(core: Arc<Core<K, O>>) -> Self {
        let config = &core.frame.driver().config;
        let count = config.shard_count.min(core.shards.count());
        let shares = Shares::new(core.clone(), count);
        Purgatory {
            closes_on_drop: Arc::new(ClosesOnDrop { shares }),
            core,
        }
    }

    /// Returns this thread's reference to the core.
    pub(crate) fn share(&self) -> &Share<Arc<Core<K, O>>> {
        self.closes_on_drop.shares.of_this_thread()
    }
}

impl<K: WatchKey, O: DelayedOperation> Clone for Purgatory<K, O> {
    fn clone(&self) -> Self {
        Purgatory {
            core: self.core.clone(),
            closes_on_drop: self.closes_on_drop.clone(),
        }
    }
}

opaque!([K: WatchKey, O: DelayedOperation] Purgatory<K, O>, name: core.frame.name);
