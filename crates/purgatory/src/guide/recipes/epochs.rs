//! Log ends of topics that may be deleted and made again under the same name.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use purgatory::{RefusedReason, WaitFuture, Watermarks};

pub struct Topics {
    pub epochs: Mutex<HashMap<&'static str, u64>>, // of the topics that there are
    pub made: AtomicU64,
    pub ends: Watermarks<(&'static str, u64)>, // by name and epoch
}

impl Topics {
    pub fn create(&self, name: &'static str) -> u64 {
        let epoch = self.made.fetch_add(1, Relaxed);
        self.epochs.lock().unwrap().insert(name, epoch);
        epoch
    }

    pub fn delete(&self, topic: (&'static str, u64)) -> usize {
        self.epochs
            .lock()
            .unwrap()
            .retain(|name, epoch| (*name, *epoch) != topic);
        self.ends.remove(&topic) // what waits is cancelled
    }

    /// None when this topic was deleted, even if there is one of its name again.
    pub fn fetch(&self, topic: (&'static str, u64), offset: u64) -> Option<WaitFuture<u64>> {
        let wait = self.ends.wait_for(&topic, offset, Duration::from_secs(30)); // registered ...
        self.is_there(topic).then_some(wait) // ... first: a deletion from here on cancels it
    }

    /// False when this topic was deleted.
    pub fn append(&self, topic: (&'static str, u64), end: u64) -> Result<bool, RefusedReason> {
        self.ends.advance(&topic, end)?;
        let there = self.is_there(topic);
        if !there {
            self.ends.remove(&topic); // a late append leaves no value behind
        }
        Ok(there)
    }

    fn is_there(&self, (name, epoch): (&'static str, u64)) -> bool {
        self.epochs.lock().unwrap().get(name) == Some(&epoch)
    }
}
