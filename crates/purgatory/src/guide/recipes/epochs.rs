//! Log ends of topics that may be deleted and made again under the same name.

use std::{
    collections::hash_map::{Entry, HashMap},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use purgatory::{RefusedReason, WaitFuture, Watermarks};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Name and epoch.
pub type Topic = (&'static str, u64);

pub struct Topics {
    pub epochs: Mutex<HashMap<&'static str, u64>>, // of the topics that exist
    pub made: AtomicU64,
    pub ends: Watermarks<Topic>,
}

impl Topics {
    /// The epoch of a new topic; `None` when one of this name exists.
    pub fn create(&self, name: &'static str) -> Option<u64> {
        match self.epochs.lock().unwrap().entry(name) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => Some(*vacant.insert(self.made.fetch_add(1, Relaxed))),
        }
    }

    /// Cancels the fetches of the topic; returns how many.
    pub fn delete(&self, topic: Topic) -> usize {
        let mut epochs = self.epochs.lock().unwrap();
        epochs.retain(|name, epoch| (*name, *epoch) != topic);
        drop(epochs);
        self.ends.remove(&topic)
    }

    /// `None` when this topic was deleted, even if one of its name exists again.
    pub fn fetch(&self, topic: Topic, offset: u64) -> Option<WaitFuture<u64>> {
        // Registered before the look: a deletion from here on cancels it.
        let wait = self.ends.wait_for(&topic, offset, TIMEOUT);
        if self.exists(topic) { Some(wait) } else { None }
    }

    /// False when this topic was deleted.
    pub fn append(&self, topic: Topic, end: u64) -> Result<bool, RefusedReason> {
        self.ends.advance(&topic, end)?;
        let exists = self.exists(topic);
        if !exists {
            self.ends.remove(&topic); // a late append leaves no value behind
        }
        Ok(exists)
    }

    fn exists(&self, topic: Topic) -> bool {
        let (name, epoch) = topic;
        self.epochs.lock().unwrap().get(name) == Some(&epoch)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ends = Watermarks::new("ends")?;
    let topics = Topics {
        epochs: Mutex::default(),
        made: AtomicU64::new(0),
        ends,
    };
    let old = ("orders", topics.create("orders").unwrap());
    topics.append(old, 100)?;
    topics.delete(old);
    let new = ("orders", topics.create("orders").unwrap());
    let fetch = topics.fetch(new, 1).unwrap();
    assert!(!topics.append(old, 101)? && topics.append(new, 1)?);
    assert_eq!(fetch.wait_blocking(), Ok(1));
    Ok(())
}
