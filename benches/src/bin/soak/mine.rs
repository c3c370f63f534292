//! What a thread has parked and holds in its hands: what it may bring about, or give up.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use purgatory::{OperationId, Reply, WaitError, WaitFuture};

use crate::{
    books::{Ending, Record, Value},
    key::Key,
    world::World,
};

/// Something that was parked.
pub(crate) struct Mine {
    pub(crate) record: Arc<Record>,
    pub(crate) world: Weak<World>,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// Completes when the flag is set.
    Flag(Arc<AtomicBool>, Key, OperationId),
    /// Completes when the level of a key reaches a value.
    Level(u64, u64, OperationId),
    /// As a flag.
    Future(Arc<AtomicBool>, Key, WaitFuture<Value>),
    /// Completes when there is something on the shelf.
    Shelf(u64, WaitFuture<Value>),
    /// The same without a future.
    Shelves(u64),
    Reply(Key, Reply<Value>),
    /// Completes when the watermark of a key reaches a value.
    Watermark(Key, u64, WaitFuture<u64>),
    /// The same without a future.
    Watermarks(Key, u64),
    /// Two of three.
    Quorum([(Key, u64); 3], WaitFuture<Vec<(Key, u64)>>),
}

fn ready<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl Mine {
    /// Takes what its future has, if it is one. True when there is nothing to be waited for.
    pub(crate) fn is_over(&mut self) -> bool {
        let value = match &mut self.what {
            What::Future(_, _, future) => ready(future),
            What::Reply(_, reply) => {
                let Some(reply) = ready(reply) else { return false };
                // The thread that delivered it may have meant another of this key.
                return self.ended(reply.map(|value| value.back()).map(|()| true));
            }
            What::Shelf(_, future) => {
                let value = ready(future);
                if let (Some(Ok(_)), Some(world)) = (&value, self.world.upgrade()) {
                    world.taken.fetch_add(1, SeqCst);
                }
                value
            }
            What::Watermark(_, threshold, future) => {
                let Some(reached) = ready(future) else { return false };
                let enough = reached.map(|value| value >= *threshold);
                return self.ended(enough);
            }
            What::Quorum(_, future) => {
                let Some(reached) = ready(future) else { return false };
                return self.ended(reached.map(|reached| reached.len() >= 2));
            }
            _ => return true,
        };
        match value {
            Some(Ok(value)) => value.take(),
            Some(Err(error)) => self.record.end_polled(error),
            None => return false,
        }
        true
    }

    /// How a wait ended that yields no value of ours; what it yields must be right.
    fn ended(&self, result: Result<bool, WaitError>) -> bool {
        match result {
            Ok(true) => self.record.end(Ending::Completed),
            Ok(false) => self.record.odd("a wait yielded less than was asked for"),
            Err(error) => self.record.end_polled(error),
        }
        true
    }

    /// True when an outcome comes to us alone, and not to a callback.
    pub(crate) fn is_future(&self) -> bool {
        !matches!(
            self.what,
            What::Flag(..) | What::Level(..) | What::Shelves(_) | What::Watermarks(..)
        )
    }

    /// Its name in the plain purgatory, if it is there.
    pub(crate) fn id(&self) -> Option<OperationId> {
        match &self.what {
            What::Flag(_, _, id) | What::Level(_, _, id) => Some(*id),
            What::Future(_, _, future) => future.id(),
            _ => None,
        }
    }

    /// Gives it up, if it is a future; what is none goes on without us. What is to end with its
    /// world, which is going, comes back.
    pub(crate) fn leave(mut self) -> Option<Mine> {
        if !self.is_future() || self.is_over() {
            return None;
        }
        let Some(_open) = self.world.upgrade() else { return Some(self) };
        self.record.end(Ending::Dropped); // before: the hook looks
        drop(self);
        None
    }
}
