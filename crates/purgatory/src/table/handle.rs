//! The handle of a table: when the last one is dropped, its waits end as Dropped.

use std::{any::Any, sync::Arc};

use timer_core::BuildError;

use crate::{
    operation::CancelReason,
    settings::Settings,
    sync::{Share, Shares},
    table::{AnyTable, Inside, Table},
};

/// A handle of a form.
pub(crate) struct HandleOf<T: Closes> {
    pub(crate) table: Arc<T>,
    closes_on_drop: Arc<ClosesOnDrop<T>>,
}

/// A handle of an engine's form.
pub(crate) type Handle<E> = HandleOf<Table<E>>;

/// A table, as its last handle sees it.
pub(crate) trait Closes {
    /// Ends all that waits there as Dropped.
    fn close_dropped(self: &Arc<Self>);
}

impl<E: Inside> Closes for AnyTable<E> {
    fn close_dropped(self: &Arc<Self>) {
        self.close(CancelReason::Dropped);
        #[cfg(feature = "metrics")]
        self.withdraw();
    }
}

/// The part that all handles share. Closes the form when the last handle is dropped.
struct ClosesOnDrop<T: Closes> {
    /// Shares for futures. Each thread takes one, so that threads count on different words.
    shares: Shares<Arc<T>>,
}

impl<T: Closes> Drop for ClosesOnDrop<T> {
    fn drop(&mut self) {
        self.shares.value().close_dropped();
    }
}

impl<E: Inside> HandleOf<AnyTable<E>> {
    /// Makes a form of these settings, and its first handle.
    pub(crate) fn new(settings: Settings, engine: E) -> Result<Self, BuildError> {
        let table = AnyTable::new(settings, |_, _, _| engine)?;
        Ok(HandleOf::of(table))
    }

    /// Makes the first handle of a table.
    pub(crate) fn of(table: Arc<AnyTable<E>>) -> Self {
        let config = &table.frame.driver().config;
        let count = config.shard_count.min(table.shards.count());
        let shares = Shares::new(table.clone(), count);
        HandleOf {
            closes_on_drop: Arc::new(ClosesOnDrop { shares }),
            table,
        }
    }

    /// Shows this thread's reference to the table.
    #[inline]
    pub(crate) fn shown(&self) -> &Share<Arc<AnyTable<E>>> {
        self.closes_on_drop.shares.of_this_thread()
    }

    /// Returns the part that keeps the form open.
    pub(crate) fn kept_open(&self) -> Arc<dyn Any + Send + Sync> {
        self.closes_on_drop.clone()
    }

    /// Returns this thread's reference to the table.
    #[inline]
    pub(crate) fn share(&self) -> Share<Arc<AnyTable<E>>> {
        self.shown().clone()
    }
}

impl<T: Closes> Clone for HandleOf<T> {
    fn clone(&self) -> Self {
        HandleOf {
            table: self.table.clone(),
            closes_on_drop: self.closes_on_drop.clone(),
        }
    }
}
