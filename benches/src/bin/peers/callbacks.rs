//! The best callbacks under keys that we could write by hand: one lock over a map of requests by
//! key. A signal removes the ready requests of its key from the map, and calls them back without
//! the lock.
//!
//! Their limits: all threads share one lock, so two of them contend. Conditions are checked under
//! it, so a check must be short and may not call back into the map. With a sweep, a request ends up
//! to 100 ms late, and each sweep walks the whole map with the lock held. There is no bound, no
//! shutdown and no count, and a callback that panics loses the requests after it.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::ready,
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{
    contender::Peer,
    request::{Request, Wait},
    sweep,
    waits::Waits,
};

/// Requests by key. Its methods are inlined, in whichever codegen unit the compiler puts the rows.
pub(crate) struct Callbacks(Arc<Mutex<Map>>);

#[derive(Default)]
struct Map {
    /// Most keys have one request at a time.
    lists: HashMap<u64, SmallVec<[Parked; 1]>, RandomState>,
    /// The number of the last request.
    number: u64,
}

/// A request, listed under each of its keys.
struct Parked {
    number: u64,
    request: Request,
    keys: SmallVec<[u64; 3]>,
    deadline: Instant,
}

/// Requests that end together.
type Ended = SmallVec<[Parked; 1]>;

impl Map {
    /// Removes from a key's list the requests for which `is_over` is true, and returns them.
    #[inline]
    fn take_if(&mut self, key: u64, is_over: impl Fn(&Parked) -> bool) -> Ended {
        let mut ended = Ended::new();
        if let Entry::Occupied(mut list) = self.lists.entry(key) {
            let mut at = 0;
            while let Some(parked) = list.get().get(at) {
                if is_over(parked) {
                    ended.push(list.get_mut().remove(at));
                } else {
                    at += 1;
                }
            }
            if list.get().is_empty() {
                list.remove();
            }
        }
        ended
    }

    /// Removes the requests of a key for which `is_over` is true from all their lists.
    #[inline]
    fn end_if(&mut self, key: u64, is_over: impl Fn(&Parked) -> bool) -> Ended {
        let ended = self.take_if(key, is_over);
        for parked in &ended {
            for &other in parked.keys.iter().filter(|other| **other != key) {
                self.take_if(other, |also| also.number == parked.number);
            }
        }
        ended
    }
}

impl Peer for Callbacks {
    const NAME: &'static str = "callbacks-sweep";

    fn start() -> anyhow::Result<Self> {
        let callbacks = Callbacks(Arc::default());
        sweep::start(&callbacks.0, |map| expire(map, Instant::now()));
        Ok(callbacks)
    }

    fn remaining(&self) -> usize {
        self.0.lock().lists.len()
    }
}

impl Waits for Callbacks {
    const CALLS_BACK: bool = true;

    #[inline]
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        let deadline = Instant::now() + limit;
        let mut map = self.0.lock();
        // Checked under the lock, so that no signal comes between the check and the listing.
        if request.is_ready() {
            drop(map);
            request.end(true);
            return ready(());
        }
        map.number += 1;
        let number = map.number;
        for (at, key) in keys.iter().enumerate() {
            // A key that is named twice lists the request once.
            if !keys[..at].contains(key) {
                map.lists.entry(*key).or_default().push(Parked {
                    number,
                    request,
                    keys: SmallVec::from_slice(&keys),
                    deadline,
                });
            }
        }
        ready(())
    }

    #[inline]
    fn signal(&self, key: u64) {
        let ended = self
            .0
            .lock()
            .end_if(key, |parked| parked.request.is_ready());
        // Call back without the lock.
        for parked in ended {
            parked.request.end(true);
        }
    }
}

/// Ends the requests whose deadline has come.
fn expire(map: &Mutex<Map>, now: Instant) {
    let mut map = map.lock();
    let mut keys = Vec::new();
    for (key, list) in &map.lists {
        if list.iter().any(|parked| parked.deadline <= now) {
            keys.push(*key);
        }
    }
    let mut ended = Vec::new();
    for key in keys {
        ended.extend(map.end_if(key, |parked| parked.deadline <= now));
    }
    drop(map);
    // Call back without the lock.
    for parked in ended {
        parked.request.end(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_leaves_all_its_lists() {
        let callbacks = Callbacks(Arc::default());
        let [ready, waiting] = [(); 2].map(|()| Request::new());
        let hour = Duration::from_secs(3600);
        drop(callbacks.park([1, 3, 3], hour, ready)); // names a key twice
        drop(callbacks.park([3, 4, 5], hour, waiting));
        ready.progress.reach(1);
        callbacks.signal(3);
        assert_eq!((ready.progress.completed(), ready.progress.ended()), (1, 1));
        assert_eq!((callbacks.remaining(), waiting.progress.ended()), (3, 0));
    }

    #[test]
    fn a_sweep_ends_what_is_late_once() {
        let callbacks = Callbacks(Arc::default());
        let [late, waiting] = [(); 2].map(|()| Request::new());
        drop(callbacks.park([1, 2], Duration::ZERO, late));
        drop(callbacks.park([2], Duration::from_secs(3600), waiting));
        expire(&callbacks.0, Instant::now());
        assert_eq!((late.progress.completed(), late.progress.ended()), (0, 1));
        assert_eq!((callbacks.remaining(), waiting.progress.ended()), (1, 0));
    }
}
