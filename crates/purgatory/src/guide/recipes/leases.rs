//! Leases on shards: one holder at a time, first come, first served.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{Purgatory, WaitFuture};

const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Leases {
    pub free: Arc<Mutex<HashSet<u32>>>,
    pub waits: Purgatory<u32>,
}

/// Returned on drop.
pub struct Lease {
    leases: Leases,
    pub shard: u32,
}

impl Leases {
    /// Once `waits` is shut down, a lease that is free is still given out, and no client waits.
    pub fn acquire(&self, shard: u32) -> WaitFuture<Lease> {
        let leases = self.clone();
        let lease = move || leases.try_acquire(shard);
        self.waits.wait_in_turn(&shard, TIMEOUT, lease)
    }

    fn try_acquire(&self, shard: u32) -> Option<Lease> {
        let was_free = self.free.lock().unwrap().remove(&shard);
        if !was_free {
            return None;
        }
        let leases = self.clone();
        Some(Lease { leases, shard })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.free.lock().unwrap().insert(self.shard);
        self.leases.waits.check_and_complete_one(&self.shard);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let free = Arc::new(Mutex::new([7].into()));
    let leases = Leases {
        free,
        waits: Purgatory::new("leases")?,
    };
    let first = leases.acquire(7).wait_blocking()?;
    let second = leases.acquire(7);
    let third = leases.acquire(7);
    drop(first); // the second has it now ...
    assert_eq!(leases.waits.waiters(&7), 1);
    drop(second); // ... and, as its client has gone, the third
    assert_eq!(third.wait_blocking()?.shard, 7);
    Ok(())
}
