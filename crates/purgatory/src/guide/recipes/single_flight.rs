//! Values that one task loads for all that ask. If it fails or goes, the next in line takes over.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use purgatory::{Purgatory, WaitFuture};

#[derive(Clone)]
pub struct Flights {
    pub values: Arc<Mutex<HashMap<u32, Option<u64>>>>, // none while it is loaded
    pub waits: Purgatory<u32>,
}

/// The right to load. Dropped without a value, it goes to the next in line.
pub struct Load(Flights, u32);

impl Flights {
    /// The value, or the right to load it.
    pub fn get(&self, key: u32) -> WaitFuture<Result<u64, Load>> {
        let of = self.clone();
        let turn = move || match of.values.lock().unwrap().entry(key) {
            Entry::Occupied(entry) => entry.get().map(Ok),
            Entry::Vacant(entry) => {
                entry.insert(None);
                Some(Err(Load(of.clone(), key)))
            }
        };
        self.waits.wait(&[key], Duration::from_secs(5), turn)
    }
}

impl Load {
    pub fn loaded(self, value: u64) {
        self.0.values.lock().unwrap().insert(self.1, Some(value));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let Load(Flights { values, waits }, key) = self;
        let mut values = values.lock().unwrap();
        if values.get(key) == Some(&None) {
            values.remove(key);
        }
        drop(values); // the checks need the lock
        waits.check_and_complete(key);
    }
}
