//! What a thread has parked and holds in its hands: what it may bring about, or give up.

use std::{
    pin::Pin,
    sync::{Arc, Weak, atomic::AtomicBool},
    task::{Context, Waker},
};

use purgatory::{OperationId, WaitError};

use crate::{
    books::{Ending, Record},
    key::Key,
    world::World,
};

/// Something that was parked.
pub(crate) struct Mine {
    pub(crate) record: Arc<Record>,
    pub(crate) world: Weak<World>,
    pub(crate) what: What,
    /// What is waited for; without it a callback is told the outcome.
    pub(crate) wait: Option<Wait>,
}

/// What may bring it about.
pub(crate) enum What {
    /// It completes when the flag is set; its name in the plain purgatory.
    Flag(Arc<AtomicBool>, Key, Option<OperationId>),
    /// When the level of a key reaches a value.
    Level(u64, u64, Option<OperationId>),
    /// When there is something on the shelf.
    Shelf(u64),
    Reply(Key),
    /// When the watermark of a key reaches a value, or two of three do.
    Watermarks(Vec<(Key, u64)>),
}

/// A wait that tells the books how it ended.
pub(crate) type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A wait with a record, and what is done with what it yields.
pub(crate) fn wait<T: Send + 'static>(
    record: &Arc<Record>,
    future: impl Future<Output = Result<T, WaitError>> + Send + 'static,
    completed: impl FnOnce(T, &Record) + Send + 'static,
) -> Option<Wait> {
    let record = record.clone();
    Some(Box::pin(async move {
        match future.await {
            Ok(value) => completed(value, &record),
            Err(error) => record.end(error),
        }
    }))
}

impl Mine {
    /// Takes what it waits for, if it waits. True when there is nothing to be waited for.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.wait.as_mut().is_none_or(|wait| wait.as_mut().poll(&mut context).is_ready())
    }

    /// Its name in the plain purgatory, if it is there.
    pub(crate) fn id(&self) -> Option<OperationId> {
        match self.what {
            What::Flag(_, _, id) | What::Level(_, _, id) => id,
            _ => None,
        }
    }

    /// Gives it up, if it is waited for; what is not goes on without us. What is to end with its
    /// world, which is going, comes back.
    pub(crate) fn leave(mut self) -> Option<Mine> {
        if self.is_over() {
            return None;
        }
        let Some(_open) = self.world.upgrade() else { return Some(self) };
        self.record.end(Ending::Dropped); // before: the hook looks
        drop(self);
        None
    }
}
