//! The handle of a table: when the last one is dropped, its waits end as Dropped.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

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
    /// Made with the first clone or future. While it is unset, this is the only handle.
    shared: OnceLock<Arc<ClosesOnDrop<T>>>,
}

/// A handle of an engine's form.
pub(crate) type Handle<E> = HandleOf<Table<E>>;

/// A table, as seen by its last handle.
pub(crate) trait Closes {
    /// Returns how many shares there are for futures, a power of two.
    fn share_count(&self) -> usize;

    /// Ends all its waits as Dropped.
    fn close_dropped(self: &Arc<Self>);
}

impl<E: Inside> Closes for AnyTable<E> {
    fn share_count(&self) -> usize {
        let config = &self.frame.driver().config;
        config.shard_count.min(self.shards.count())
    }

    fn close_dropped(self: &Arc<Self>) {
        self.close(CancelReason::Dropped);
        #[cfg(feature = "metrics")]
        self.withdraw();
    }
}

/// The part that all handles share. It closes the form when the last handle is dropped.
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
        let table = AnyTable::new(settings, |_| engine)?;
        Ok(HandleOf::of(table))
    }

    /// Makes the first handle of a table.
    pub(crate) fn of(table: Arc<AnyTable<E>>) -> Self {
        HandleOf {
            table,
            shared: OnceLock::new(),
        }
    }

    /// Borrows this thread's reference to the table.
    #[inline]
    pub(crate) fn shown(&self) -> &Share<Arc<AnyTable<E>>> {
        self.shared().shares.of_this_thread()
    }

    /// Returns the part that keeps the form open.
    pub(crate) fn kept_open(&self) -> Arc<dyn Any + Send + Sync> {
        self.shared().clone()
    }

    /// Returns this thread's reference to the table.
    #[inline]
    pub(crate) fn share(&self) -> Share<Arc<AnyTable<E>>> {
        self.shown().clone()
    }
}

impl<T: Closes> HandleOf<T> {
    fn shared(&self) -> &Arc<ClosesOnDrop<T>> {
        match self.shared.get() {
            Some(shared) => shared,
            None => self.make_shared(),
        }
    }

    #[cold]
    fn make_shared(&self) -> &Arc<ClosesOnDrop<T>> {
        self.shared.get_or_init(|| {
            let shares = Shares::new(self.table.clone(), self.table.share_count());
            Arc::new(ClosesOnDrop { shares })
        })
    }
}

impl<T: Closes> Drop for HandleOf<T> {
    fn drop(&mut self) {
        // Without a shared part, this is the only handle.
        if self.shared.get().is_none() {
            self.table.close_dropped();
        }
    }
}

impl<T: Closes> Clone for HandleOf<T> {
    fn clone(&self) -> Self {
        HandleOf {
            table: self.table.clone(),
            shared: self.shared().clone().into(),
        }
    }
}
