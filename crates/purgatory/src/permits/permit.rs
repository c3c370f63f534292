//! [`Permit`], the guard of permits.

use std::{mem, sync::Arc};

use crate::{
    operation::opaque,
    permits::{
        entry::{Granted, Guard, Semaphores},
        held::Held,
        serve::{give_back, use_up},
    },
    table::Table,
    watches::WatchKey,
};

/// A guard that holds permits, and returns them when dropped. It does not keep its
/// [`Permits`](crate::Permits) open.
#[must_use = "dropped, it returns the permits"]
pub struct Permit<K: WatchKey = ()> {
    table: Arc<Table<Semaphores<K>>>,
    held: Held,
}

impl<K: WatchKey> Guard<K> for Permit<K> {
    #[inline]
    fn of(table: &Arc<Table<Semaphores<K>>>, _: usize, granted: Granted) -> Self {
        let Granted::Permits(held) = granted else {
            panic!("a request without a time to live is granted permits");
        };
        Permit {
            table: table.clone(),
            held,
        }
    }
}

impl<K: WatchKey> Permit<K> {
    /// Returns the number of permits that it holds. O(1). For 2^28 - 1 permits of a key, or more, it
    /// locks the key's shard.
    pub fn weight(&self) -> u64 {
        let held = self.held;
        held.weight::<K>().unwrap_or_else(|| {
            let shard = self.table.lock(held.shard::<K>());
            shard.records.heavy.weighed::<K>(held).weight
        })
    }
}

impl Permit {
    /// Uses the permits up: they are not returned, and the [limit](crate::Permits::limit) falls by
    /// as many until a [refill](crate::Permits::refill) or [resize](crate::Permits::resize). O(1),
    /// since no permit comes free. To lower the limit for good, [remove](crate::Permits::remove)
    /// permits and drop this guard. If the limit was lowered below the permits that are then used
    /// up, the excess is deducted from the permits that are added next.
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
    #[inline] // as in `impl Permits`
    pub fn forget(mut self) {
        let held = mem::replace(&mut self.held, Held::NOTHING);
        use_up(&self.table, held);
    }
}

impl<K: WatchKey> Drop for Permit<K> {
    #[inline]
    fn drop(&mut self) {
        if !self.held.is_nothing::<K>() {
            give_back(&self.table, self.held);
        }
    }
}

opaque!([K: WatchKey] Permit<K>, weight: weight());
