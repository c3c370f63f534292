//! Origins: a future's view of its purgatory, whatever the keys and operations there.
//!
//! A future whose answer stays in its operation's entry holds nothing but its origin and the
//! operation's id ([`EntryAnswer`]).

use std::{
    ptr,
    sync::Arc,
    task::{Poll, Waker},
};

use crossbeam_utils::CachePadded;

use crate::{
    engine::{Core, answer::Yields, signal::Event},
    error::WaitError,
    operation::{CancelReason, DelayedOperation, EndResult, OperationId, Outcome, Timeout},
    sync::{Mutex, Share},
    watches::WatchKey,
};

/// The purgatory that a future waits in, whatever its keys and operations. It keeps the memory of
/// the purgatory, but does not keep the purgatory open.
pub(crate) trait WaitOrigin: Send + Sync {
    /// Cancels the operation of a future that was dropped.
    fn cancel(&self, id: OperationId);
    /// Passes the turn of a completed wait on whose future was dropped with its value. Only waits
    /// in turn have one.
    fn pass_turn(&self) {}
    /// Reschedules the operation.
    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool;
    /// Returns true where a blocking wait might wait for the calling thread. In debug builds, warns
    /// where it would block a runtime's tasks.
    fn must_not_block(&self) -> bool;
}

impl<K: WatchKey, O: DelayedOperation> WaitOrigin for CachePadded<Arc<Core<K, O>>> {
    fn cancel(&self, id: OperationId) {
        self.end(id, Outcome::Cancelled(CancelReason::FutureDropped));
    }

    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        Core::reschedule(self, id, timeout)
    }

    fn must_not_block(&self) -> bool {
        let must_not = self.executors.must_not_block();
        if cfg!(debug_assertions) && !must_not {
            self.warned.blocks_runtime(&self.settings.name);
        }
        must_not
    }
}

/// The purgatory of a wait in turn, and the key of that turn.
pub(crate) struct TurnOrigin<K: WatchKey, O: DelayedOperation> {
    origin: Share<Arc<Core<K, O>>>,
    /// Locked, since a key need not be `Sync`.
    key: Mutex<K>,
}

impl<K: WatchKey, O: DelayedOperation> TurnOrigin<K, O> {
    /// Makes the origin of a wait in turn under this key.
    pub(crate) fn shared(origin: Share<Arc<Core<K, O>>>, key: K) -> Arc<dyn WaitOrigin> {
        Arc::new(TurnOrigin {
            origin,
            key: Mutex::new(key),
        })
    }
}

impl<K: WatchKey, O: DelayedOperation> WaitOrigin for TurnOrigin<K, O> {
    fn cancel(&self, id: OperationId) {
        let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
        let ended = self.origin.end(id, dropped);
        // Unless it ended here, an event may have completed it, for nothing.
        if ended != EndResult::Ended {
            self.pass_turn();
        }
    }

    fn pass_turn(&self) {
        if !failpoint!(DroppedWaitKeepsTurn) {
            let key = self.key.lock().clone();
            self.origin.signal::<K>(&key, Event::One);
        }
    }

    fn reschedule(&self, id: OperationId, timeout: Timeout) -> bool {
        self.origin.reschedule(id, timeout)
    }

    fn must_not_block(&self) -> bool {
        self.origin.must_not_block()
    }
}

/// The purgatory of a future whose answer stays in its operation's entry.
pub(crate) trait AnswerOrigin<T>: WaitOrigin {
    /// Takes the answer, or leaves `waker`; `None` stands for that of the last poll.
    fn poll(&self, id: OperationId, waker: Option<Waker>) -> Poll<Result<T, WaitError>>;
    /// Cancels the operation of a future that was dropped, or drops its answer.
    fn abandon(&self, id: OperationId);
    /// Returns the purgatory as its supertrait, which Rust 1.85 does not do by itself.
    fn wait_origin(&self) -> &dyn WaitOrigin;
}

impl<K: WatchKey, O: Yields<T>, T> AnswerOrigin<T> for CachePadded<Arc<Core<K, O>>> {
    #[inline]
    fn poll(&self, id: OperationId, waker: Option<Waker>) -> Poll<Result<T, WaitError>> {
        self.poll_answer(id, waker)
    }

    fn abandon(&self, id: OperationId) {
        Core::abandon(self, id);
    }

    fn wait_origin(&self) -> &dyn WaitOrigin {
        self
    }
}

/// The answer of a future, in its operation's entry.
pub(crate) struct EntryAnswer<T> {
    origin: Arc<dyn AnswerOrigin<T>>,
    id: OperationId,
    last_waker: WakerName,
}

impl<T> EntryAnswer<T> {
    /// Makes the answer of a parked operation.
    pub(crate) fn new(origin: Arc<dyn AnswerOrigin<T>>, id: OperationId) -> Self {
        EntryAnswer {
            origin,
            id,
            last_waker: WakerName::NONE,
        }
    }

    /// Returns the purgatory that it waits in.
    pub(crate) fn origin(&self) -> &dyn WaitOrigin {
        self.origin.wait_origin()
    }

    /// Takes the answer, or leaves the waker.
    #[inline]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<T, WaitError>> {
        // Another waker is cloned before the lock is taken, since wakers are user code.
        let name = WakerName::of(waker);
        let mut new_waker = None;
        if self.last_waker != name {
            new_waker = Some(waker.clone());
            self.last_waker = name;
        }
        self.origin.poll(self.id, new_waker)
    }

    /// Cancels the operation, or drops its answer: its future was dropped.
    pub(crate) fn abandon(self) {
        self.origin.abandon(self.id);
    }
}

/// A waker's addresses, which tell it from others without a call of its code. The waker of the last
/// poll is alive in the operation's entry, so no other one lies there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WakerName {
    data: usize,
    vtable: usize,
}

impl WakerName {
    /// Before the first poll. No waker's table lies there.
    const NONE: WakerName = WakerName { data: 0, vtable: 0 };

    #[inline]
    fn of(waker: &Waker) -> Self {
        WakerName {
            data: waker.data().addr(),
            vtable: ptr::from_ref(waker.vtable()).addr(),
        }
    }
}
