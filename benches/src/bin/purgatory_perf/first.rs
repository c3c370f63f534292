//! The shape of Kafka's first purgatory: one delay heap, one lock for all watch lists, and requests
//! that were completed kept in both until a purge, which walks everything under those locks once
//! enough were parked since the last.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    vec::Drain,
};

use foldhash::HashMap;
use parking_lot::Mutex;
use purgatory_benches::delays::{AtEnd, Delays};
use timer_core::SystemClock;

use crate::{
    books::{Ending, Request},
    heap::Heap,
    waits::{Key, Waits},
};

pub(crate) struct First {
    keys: Vec<Key>,
    /// So many are parked between two purges.
    purge: u32,
    lists: Mutex<Lists>,
    delays: Delays<Heap<Arc<Waiting>>>,
}

#[derive(Default)]
struct Lists {
    watchers: HashMap<Key, Vec<Arc<Waiting>>>,
    since_purge: u32,
}

/// A request, which may be on several lists and in the heap.
pub(crate) struct Waiting {
    request: Request,
    over: AtomicBool,
}

impl Waiting {
    fn end(&self, ending: Ending) {
        if !self.over.swap(true, SeqCst) {
            self.request.end(ending);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

impl First {
    pub(crate) fn new(keys: Vec<Key>, purge: u32, clock: SystemClock) -> anyhow::Result<Self> {
        let delays = Delays::start(clock, AtEnd::Wait, |waiting: Drain<'_, Arc<Waiting>>| {
            waiting.for_each(|waiting| waiting.end(Ending::Expired));
        })?;
        Ok(First { keys, purge, lists: Mutex::default(), delays })
    }

    fn purge(&self, lists: &mut Lists) {
        for list in lists.watchers.values_mut() {
            list.retain(|waiting| !waiting.is_over());
        }
        self.delays.with(|heap| heap.retain(|waiting| !waiting.is_over()));
        lists.since_purge = 0;
    }
}

impl Waits for First {
    type Ticket = Arc<Waiting>;

    fn park(&self, request: Request) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting { request, over: AtomicBool::new(false) });
        let mut lists = self.lists.lock();
        for &key in &self.keys {
            lists.watchers.entry(key).or_default().push(waiting.clone());
        }
        self.delays.add(request.expires_ns(), waiting.clone());
        lists.since_purge += 1;
        if lists.since_purge >= self.purge {
            self.purge(&mut lists);
        }
        waiting
    }

    fn complete(&self, waiting: impl Iterator<Item = Arc<Waiting>>) {
        waiting.for_each(|waiting| waiting.end(Ending::Completed));
    }
}
