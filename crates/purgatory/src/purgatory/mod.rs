//! [`Purgatory`], the handle that most programs hold. Its methods are in five files, one for each
//! group of calls: park, signal, end, reach, inspect.

// The blank lines keep this order, in which the documentation lists the methods.
mod park;

mod signal;

pub(crate) mod end;

mod reach;

mod inspect;

use crate::{
    boxed::BoxedOperation,
    engine::Core,
    operation::{DelayedOperation, opaque},
    table::handle::HandleOf,
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
/// parked operations as [`Dropped`](crate::CancelReason::Dropped), without waiting for a thread.
/// The last handle may be dropped inside a callback.
///
/// # The one rule
/// Make the condition true *first*, then signal the key, and hold no lock that a check or a
/// callback needs while you signal. Then no event is lost: when `check_and_complete` returns, every
/// operation parked under the key before the call has ended, was seen unsatisfied, or is checked
/// again by the thread that has it under check.
///
/// # Locks
/// Checks and callbacks run while nothing of the purgatory is locked
/// ([on which thread](crate::guide::your_code)). No thread blocks while another runs one. A key's
/// `Eq` and `Clone` run under a lock and must not call back.
///
/// # Calls from inside a check or callback
/// Checks and callbacks of a nested call run behind the [outermost call](crate::guide::your_code)
/// on the thread, so a nested event returns 0 and a chain of completions needs no stack. A change
/// made after an event needs an event of its own.
///
/// # Cost
/// Parking and completing under one key takes three locks and a clock read. An operation with up to
/// four keys needs no allocation. Threads contend only within a shard
/// ([`Builder::shards`](crate::Builder::shards)).
pub struct Purgatory<K: WatchKey, O: DelayedOperation = BoxedOperation> {
    pub(crate) handle: HandleOf<Core<K, O>>,
}

impl<K: WatchKey, O: DelayedOperation> Clone for Purgatory<K, O> {
    fn clone(&self) -> Self {
        Purgatory {
            handle: self.handle.clone(),
        }
    }
}

opaque!([K: WatchKey, O: DelayedOperation] Purgatory<K, O>, name: handle.table.frame.name);
