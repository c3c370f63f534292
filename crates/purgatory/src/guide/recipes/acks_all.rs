//! Produces of one partition that are answered once every in-sync replica has their record. A
//! replica may fall out while they wait: then the others suffice.
//!
//! It does not do all that a broker needs. A produce waits for the replicas that are in sync as it
//! parks, so one that joins later is not waited for. There is no floor: once all others have fallen
//! out, the leader alone answers. And a produce belongs to no epoch: after a change of the leader
//! the values of the next epoch answer it, too.

use std::{sync::Mutex, time::Duration};

use purgatory::{RefusedReason, WaitFuture, Watermarks};

const TIMEOUT: Duration = Duration::from_secs(30);

pub type Replica = &'static str;

pub struct Partition {
    pub in_sync: Mutex<Vec<Replica>>,
    pub log_ends: Watermarks<Replica>, // how far each replica has come
}

impl Partition {
    /// A future of the replicas that have the record at this offset: all that are in sync.
    pub fn produce(&self, required_offset: u64) -> WaitFuture<Vec<(Replica, u64)>> {
        // Parked under the lock: a replica falls out before, or is one that this produce waits for.
        let in_sync = self.in_sync.lock().unwrap();
        let replicas: Vec<_> = in_sync
            .iter()
            .map(|&replica| (replica, required_offset))
            .collect();
        self.log_ends.wait_for_all(&replicas, TIMEOUT)
    }

    /// A replica has come this far. Returns how many produces that answered.
    pub fn fetched(&self, replica: Replica, offset: u64) -> Result<usize, RefusedReason> {
        self.log_ends.advance(&replica, offset)
    }

    /// A replica has fallen behind. Returns how many produces waited for it alone.
    pub fn falls_out(&self, replica: Replica) -> usize {
        self.in_sync
            .lock()
            .unwrap()
            .retain(|other| *other != replica);
        self.log_ends.remove(&replica)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orders = Partition {
        in_sync: Mutex::new(vec!["leader", "a", "b"]),
        log_ends: Watermarks::new("orders-0")?,
    };
    let [first, second] = [1, 2].map(|offset| orders.produce(offset));
    orders.fetched("leader", 2)?;
    orders.fetched("a", 2)?;
    assert_eq!(orders.fetched("b", 1)?, 1);
    assert_eq!(first.wait_blocking()?, [("leader", 2), ("a", 2), ("b", 1)]);
    assert_eq!(orders.falls_out("b"), 1); // the second produce needs it no more
    assert_eq!(second.wait_blocking()?, [("leader", 2), ("a", 2)]);
    Ok(())
}
