//! The callback written by hand, much as Kafka does it: a list of requests for each key, and their
//! deadlines in a `DelayQueue` behind one lock, which a task polls. An event looks at each request
//! on the list, with the list unlocked; whoever takes the deadline off the queue ends the request.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::wait::Waits;
use crate::{
    contender::Peer,
    request::{Request, Wait},
};

struct Waiter {
    request: Request,
    keys: SmallVec<[u64; 3]>,
    over: AtomicBool,
}

#[derive(Default)]
struct Shared {
    lists: DashMap<u64, Vec<(Arc<Waiter>, Key)>, RandomState>,
    deadlines: Mutex<DelayQueue<Arc<Waiter>>>,
}

pub(crate) struct Callbacks(Arc<Shared>);

impl Shared {
    /// Puts a request on the list of a key, unless it is over: an event of an earlier key may have
    /// completed it meanwhile, and has taken it off all lists it will ever take it off.
    fn watch(&self, key: u64, waiter: &Arc<Waiter>, deadline: Key) {
        let list = self.lists.entry(key); // locks it, so that either is seen
        if !waiter.over.load(Ordering::Acquire) {
            list.or_default().push((waiter.clone(), deadline));
        }
    }

    /// Completes a request that is ready.
    fn attempt(&self, waiter: &Arc<Waiter>, deadline: &Key) {
        if waiter.request.is_ready() {
            let mut deadlines = self.deadlines.lock();
            if !waiter.over.swap(true, Ordering::AcqRel) {
                deadlines.remove(deadline);
                drop(deadlines);
                self.leave(waiter, true);
            }
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>, completed: bool) {
        for key in &waiter.keys {
            self.lists.remove_if_mut(key, |_, list| {
                list.retain(|(other, _)| !Arc::ptr_eq(other, waiter));
                list.is_empty()
            });
        }
        waiter.request.over(completed);
    }

    /// Ends what times out.
    async fn expire(&self) {
        loop {
            let next = poll_fn(|context| match self.deadlines.lock().poll_expired(context) {
                Poll::Ready(Some(expired)) => {
                    let waiter = expired.into_inner();
                    Poll::Ready((!waiter.over.swap(true, Ordering::AcqRel)).then_some(waiter))
                }
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            next.await.inspect(|waiter| self.leave(waiter, false));
        }
    }
}

impl Peer for Callbacks {
    const NAME: &'static str = "dashmap-callback";

    fn start() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let expires = shared.clone();
        tokio::spawn(async move { expires.expire().await });
        Ok(Callbacks(shared))
    }

    fn left(&self) -> usize {
        self.0.lists.len() + self.0.deadlines.lock().len()
    }
}

impl Waits for Callbacks {
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        let over = AtomicBool::new(false);
        let waiter = Arc::new(Waiter { request, keys: SmallVec::from_slice(&keys), over });
        let deadline = self.0.deadlines.lock().insert(waiter.clone(), limit);
        for key in keys {
            self.0.watch(key, &waiter, deadline);
        }
        self.0.attempt(&waiter, &deadline);
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, key: u64) {
        let list = self.0.lists.get(&key).map_or(Vec::new(), |list| list.clone());
        list.iter().for_each(|(waiter, deadline)| self.0.attempt(waiter, deadline));
    }
}
