//! Leases on shards: one holder at a time.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{BoxedOperation, Purgatory, WaitFuture};

#[derive(Clone)]
pub struct Leases {
    pub free: Arc<Mutex<HashSet<u32>>>,
    pub waits: Purgatory<u32, BoxedOperation>,
}

pub struct Lease {
    of: Leases,
    pub shard: u32,
}

impl Leases {
    pub fn acquire(&self, shard: u32) -> WaitFuture<Lease> {
        let of = self.clone();
        self.waits.wait(&[shard], Duration::from_secs(5), move || {
            let taken = of.free.lock().unwrap().remove(&shard);
            taken.then(|| Lease { of: of.clone(), shard })
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.of.free.lock().unwrap().insert(self.shard);
        self.of.waits.check_and_complete_one(&self.shard); // the first of them has it then
    }
}
