// Values that one task loads for all tasks that ask. If it fails or goes, another task takes over.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use purgatory::{Purgatory, WaitFuture};

const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Flights {
    pub values: Arc<Mutex<HashMap<u32, Option<u64>>>>, // `None` while it is loaded
    pub waits: Purgatory<u32>,
}

/// The right to load. If it is dropped without a value, it goes to a task that waits.
pub struct Load {
    flights: Flights,
    key: u32,
}

impl Flights {
    /// Yields the value, or the right to load it.
    pub fn get(&self, key: u32) -> WaitFuture<Result<u64, Load>> {
        let flights = self.clone();
        let value_or_load = move || match flights.values.lock().unwrap().entry(key) {
            Entry::Occupied(entry) => entry.get().map(Ok),
            Entry::Vacant(entry) => {
                entry.insert(None);
                let flights = flights.clone();
                Some(Err(Load { flights, key }))
            }
        };
        self.waits.wait(&[key], TIMEOUT, value_or_load)
    }
}

impl Load {
    pub fn loaded(self, value: u64) {
        let mut values = self.flights.values.lock().unwrap();
        values.insert(self.key, Some(value));
        drop(values); // the drop of `self` takes the lock
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let mut values = self.flights.values.lock().unwrap();
        if values.get(&self.key) == Some(&None) {
            values.remove(&self.key);
        }
        drop(values); // the checks need the lock
        self.flights.waits.check_and_complete(&self.key);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flights = Flights {
        values: Arc::default(),
        waits: Purgatory::new("flights")?,
    };
    let first = flights.get(1).wait_blocking()?;
    let second = flights.get(1);
    let third = flights.get(1);
    drop(first); // it failed
    second.wait_blocking()?.unwrap_err().loaded(100);
    assert_eq!(third.wait_blocking()?.ok(), Some(100));
    Ok(())
}
