// A cache in which each value is loaded once, however many clients ask for it meanwhile.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{Purgatory, WaitError};

const TIMEOUT: Duration = Duration::from_secs(5);

pub enum Entry {
    Loading,
    Loaded(u64),
}

pub struct Cache {
    pub entries: Arc<Mutex<HashMap<u32, Entry>>>,
    pub waits: Purgatory<u32>,
}

impl Cache {
    /// Returns the value; `None` if its load failed or was given up. The next client to ask loads
    /// it again.
    pub async fn get(
        &self,
        key: u32,
        load: impl Future<Output = Option<u64>>,
    ) -> Result<Option<u64>, WaitError> {
        // The first client to ask loads.
        if let Some(mut loading) = self.begin_load(key) {
            loading.value = load.await;
            return Ok(loading.value);
        }
        // Other clients wait until the load has ended.
        let entries = self.entries.clone();
        let loaded = move || match entries.lock().unwrap().get(&key) {
            Some(Entry::Loading) => None,
            Some(Entry::Loaded(value)) => Some(Some(*value)),
            None => Some(None),
        };
        self.waits.wait(&[key], TIMEOUT, loaded).await
    }

    fn begin_load(&self, key: u32) -> Option<Load<'_>> {
        match self.entries.lock().unwrap().entry(key) {
            hash_map::Entry::Occupied(_) => None,
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::Loading);
                Some(Load {
                    cache: self,
                    key,
                    value: None,
                })
            }
        }
    }
}

struct Load<'a> {
    cache: &'a Cache,
    key: u32,
    value: Option<u64>,
}

impl Drop for Load<'_> {
    /// Ends the load, even after a panic or when the client that loads has gone.
    fn drop(&mut self) {
        let mut entries = self.cache.entries.lock().unwrap();
        match self.value {
            Some(value) => entries.insert(self.key, Entry::Loaded(value)),
            None => entries.remove(&self.key),
        };
        drop(entries); // the checks need the lock
        self.cache.waits.check_and_complete(&self.key);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache {
        entries: Arc::default(),
        waits: Purgatory::new("cache")?,
    };
    let load = async {
        tokio::task::yield_now().await;
        Some(100)
    };
    let not_asked = async { unreachable!("the first client loads") };
    let both = tokio::join!(cache.get(1, load), cache.get(1, not_asked));
    assert_eq!(both, (Ok(Some(100)), Ok(Some(100))));
    assert_eq!(cache.get(2, async { None }).await, Ok(None));
    Ok(())
}
