//! [`Permit`], the guard of permits.

use std::{mem, sync::Arc};

use crate::{
    operation::opaque,
    permits::{
        entry::{Granted, Guard, Semaphores},
        serve::{give_back, use_up},
    },
    table::Table,
    watches::WatchKey,
};

/// Holds permits, and returns them when dropped. It does not keep its
/// [`Permits`](crate::Permits) open.
#[must_use = "dropped, it returns the permits"]
pub struct Permit<K: WatchKey = ()> {
    table: Arc<Table<Semaphores<K>>>,
    weight: u64,
    line: u32,
    shard: u8,
}

impl<K: WatchKey> Guard<K> for Permit<K> {
    #[inline]
    fn of(table: &Arc<Table<Semaphores<K>>>, shard: usize, granted: Granted) -> Self {
        let Granted::Permits { weight, line } = granted else {
            panic!("a request without a time to live is granted permits");
        };
        Permit {
            table: table.clone(),
            weight,
            line,
            shard: shard as u8,
        }
    }
}

impl<K: WatchKey> Permit<K> {
    /// Returns the number of permits that it holds.
    pub fn weight(&self) -> u64 {
        self.weight
    }
}

impl Permit {
    /// Uses the permits up: they are not returned, and the [limit](crate::Permits::limit) falls by
    /// as many until a [refill](crate::Permits::refill) or [resize](crate::Permits::resize). O(1):
    /// none comes free by it. For good, [remove](crate::Permits::remove) permits and drop this.
    ///
    /// ```
    /// use purgatory::Permits;
    ///
    /// let sends = Permits::new("sends", 2)?; // in each second
    /// let sent = sends.try_acquire(1).expect("two are free");
    /// sent.forget();
    /// assert_eq!((sends.limit(), sends.taken(), sends.free()), (1, 0, 1));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn forget(mut self) {
        let weight = mem::take(&mut self.weight);
        use_up(&self.table, self.shard.into(), self.line, weight);
    }
}

impl<K: WatchKey> Drop for Permit<K> {
    #[inline]
    fn drop(&mut self) {
        if self.weight > 0 {
            give_back(&self.table, self.shard.into(), self.line, self.weight);
        }
    }
}

opaque!([K: WatchKey] Permit<K>, weight: weight);
