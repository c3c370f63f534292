// Leases on shards: one holder at a time, first come, first served. A holder that stalls loses its
// lease, and the store refuses its late writes.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use purgatory::{Lease, Permits, WaitFuture};

const TIME_TO_LIVE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Leases {
    pub shards: Permits<u32>,
}

impl Leases {
    /// The holder renews its lease well before the time to live is over, and stops its work once
    /// `lost()` is ready. When it drops the lease, the next client gets it.
    pub fn acquire(&self, shard: u32) -> WaitFuture<Lease<u32>> {
        self.shards.lease_for(&shard, 1, TIME_TO_LIVE, TIMEOUT)
    }
}

/// The text of each shard, with the fencing number of its last writer.
#[derive(Default)]
pub struct Store {
    shards: Mutex<HashMap<u32, (u64, String)>>,
}

impl Store {
    /// Writes unless a later holder has written. Returns true if it wrote.
    pub fn write(&self, shard: u32, fencing: u64, text: &str) -> bool {
        let mut shards = self.shards.lock().unwrap();
        let (last, stored) = shards.entry(shard).or_default();
        if fencing < *last {
            return false; // the writer's lease was lost
        }
        *last = fencing;
        *stored = text.to_owned();
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::timer_core::ManualTimer;

    let timer = ManualTimer::new();
    let builder = Permits::keyed_builder("leases").timer(&timer);
    let leases = Leases {
        shards: builder.build()?,
    };
    let store = Store::default();
    let first = leases.acquire(7).wait_blocking()?;
    let [second, third] = [(); 2].map(|()| leases.acquire(7));
    assert!(store.write(7, first.fencing(), "of the first"));

    timer.advance(TIME_TO_LIVE); // the first holder stalls, and the second has the lease ...
    let second = second.wait_blocking()?;
    assert!(store.write(7, second.fencing(), "of the second"));
    assert!(!store.write(7, first.fencing(), "late"));
    assert!(first.is_lost() && second.renew(TIME_TO_LIVE));

    drop(second); // ... and returns it
    assert!(!third.wait_blocking()?.is_lost());
    Ok(())
}
