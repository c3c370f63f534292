//! The handle of a table: when the last one is dropped, its waits end as Dropped.

use std::sync::Arc;

use timer_core::BuildError;

use crate::{
    operation::CancelReason,
    settings::Settings,
    sync::{Share, Shares},
    table::{Engine, Table},
};

/// A handle of a form.
pub(crate) struct Handle<E: Engine> {
    pub(crate) table: Arc<Table<E>>,
    closes_on_drop: Arc<ClosesOnDrop<E>>,
}

/// The part that all handles share. Closes the form when the last handle is dropped.
struct ClosesOnDrop<E: Engine> {
    /// Shares for futures. Each thread takes one, so that threads count on different words.
    shares: Shares<Arc<Table<E>>>,
}

impl<E: Engine> Drop for ClosesOnDrop<E> {
    fn drop(&mut self) {
        let table = self.shares.value();
        table.close(&CancelReason::Dropped);
        #[cfg(feature = "metrics")]
        table.withdraw();
    }
}

impl<E: Engine> Handle<E> {
    /// Makes a form of these settings, and its first handle.
    pub(crate) fn new(settings: Settings, engine: E) -> Result<Self, BuildError> {
        let table = Table::new(settings, engine)?;
        let config = &table.frame.driver().config;
        let count = config.shard_count.min(table.shards.count());
        let shares = Shares::new(table.clone(), count);
        Ok(Handle {
            closes_on_drop: Arc::new(ClosesOnDrop { shares }),
            table,
        })
    }

    /// Returns this thread's reference to the table.
    #[inline]
    pub(crate) fn share(&self) -> Share<Arc<Table<E>>> {
        self.closes_on_drop.shares.of_this_thread().clone()
    }
}

impl<E: Engine> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Handle {
            table: self.table.clone(),
            closes_on_drop: self.closes_on_drop.clone(),
        }
    }
}
