//! A cache in which each value is loaded once, however many ask for it meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{BoxedOperation, Purgatory, WaitError};

pub enum Entry {
    Loading,
    Loaded(u64),
}

pub struct Cache {
    pub entries: Arc<Mutex<HashMap<u32, Entry>>>,
    pub waits: Purgatory<u32, BoxedOperation>,
}

impl Cache {
    /// The value; `None` when its load failed or was given up. The next to ask loads anew.
    pub async fn get(
        &self,
        key: u32,
        load: impl Future<Output = Option<u64>>,
    ) -> Result<Option<u64>, WaitError> {
        let mut first = false;
        self.entries.lock().unwrap().entry(key).or_insert_with(|| {
            first = true;
            Entry::Loading
        });
        if first {
            let mut loading = Load {
                cache: self,
                key,
                value: None,
            };
            loading.value = load.await;
            return Ok(loading.value);
        }
        let entries = self.entries.clone();
        let loaded = move || match entries.lock().unwrap().get(&key) {
            Some(Entry::Loading) => None,
            Some(Entry::Loaded(value)) => Some(Some(*value)),
            None => Some(None),
        };
        self.waits
            .wait(&[key], Duration::from_secs(5), loaded)
            .await
    }
}

struct Load<'a> {
    cache: &'a Cache,
    key: u32,
    value: Option<u64>,
}

impl Drop for Load<'_> {
    /// Also after a panic, and when the client that loads has gone.
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
