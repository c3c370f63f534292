//! [`Purgatory`], the handle that most programs hold. Its methods are in five files, by what a
//! program does: it parks, signals, ends, reaches, inspects.

// Apart, so that the documentation has the methods in this order.
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
/// parked operations as [`Dropped`](crate::CancelReason::Dropped), without waiting for a thread. It
/// may be dropped inside a callback.
///
/// # The one rule
/// Make the condition true *first*, then signal the key, and hold no lock that a check or a
/// callback needs while you signal. Then no event is lost: when `check_and_complete` returns, every
/// operation parked under the key before the call has ended, was seen unsatisfied, or is checked
/// again by the thread that has it under check.
///
/// # Locks
/// Checks and callbacks run with nothing of the purgatory locked ([where](crate::guide::your_code)).
/// No thread blocks while another runs one. A key's `Eq` and `Clone` run under a lock and must not
/// call back.
///
/// # Calls from inside a check or callback
/// Checks and callbacks of a nested call run behind the [outermost call](crate::guide::your_code) on
/// the thread, so a nested event returns 0 and a chain of completions needs no stack. A change that
/// follows an event needs another event.
///
/// # Cost
/// Parking and completing under one key takes three locks and a clock read. Up to four keys need no
/// allocation per operation. Threads contend only within a shard
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
