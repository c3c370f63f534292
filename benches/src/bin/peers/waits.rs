//! The ways to wait under keys that are compared, each used as its own documentation advises,
//! behind [`Waits`].
//!
//! Ours comes in two forms: a *callback* is called by the thread that raises the event, a *future*
//! is awaited. No contender leaves anything behind of a request that is completed or timed out. The
//! map of the peer hashes with foldhash, which is kind to it, and has the shards it has by default.
//!
//! A peer joins the run by its type in [`waits`].

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory};
use tokio::{sync::oneshot, time};

use crate::{
    contender::Peer,
    request::{Request, Wait},
    results::OURS,
};

/// Where requests wait under keys until an event finds them ready.
pub(crate) trait Waits: Peer {
    /// How often an event looks at a request that is not ready.
    const LOOKS: u64 = 1;

    /// Parks a request that is not ready: it waits once the future was polled, and is told that it
    /// is over before the future ends. In the callback form the future says nothing: it is ready
    /// as soon as the request waits.
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait;

    /// What requests under this key wait for may have come true.
    fn event(&self, key: u64);
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.over(outcome == Outcome::Completed);
    }
}

/// Of produces, too.
impl<O: DelayedOperation + Send> Peer for Purgatory<u64, O> {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Purgatory::new("ours")?)
    }

    fn left(&self) -> usize {
        self.len() + self.keys()
    }
}

impl Waits for Purgatory<u64, Request> {
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        _ = self
            .try_complete_else_watch(request, &keys, limit)
            .expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, key: u64) {
        self.check_and_complete(&key);
    }
}

impl Waits for Purgatory<u64, BoxedOperation> {
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        let condition = move || request.is_ready().then_some(());
        let wait = self.wait(&keys, limit, condition);
        async move { request.over(wait.await.is_ok()) }
    }

    fn event(&self, key: u64) {
        self.check_and_complete(&key);
    }
}

/// The future most often written by hand: a list of oneshot senders for each key, and tokio's
/// `timeout`. An event takes the whole list and wakes each waiter on it; one whose request is not
/// ready registers again. A waiter that leaves takes itself off its lists.
#[derive(Default)]
pub(crate) struct Oneshots(DashMap<u64, Vec<oneshot::Sender<()>>, RandomState>);

/// A place on the list of each key.
struct Registered<'a, const K: usize> {
    waits: &'a Oneshots,
    places: [(u64, oneshot::Receiver<()>); K],
}

impl<const K: usize> Registered<'_, K> {
    /// Waits for an event on any of the keys.
    async fn told(&mut self) {
        poll_fn(|context| {
            let mut places = self.places.iter_mut();
            let told = places.any(|(_, told)| Pin::new(told).poll(context).is_ready());
            if told { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl<const K: usize> Drop for Registered<'_, K> {
    fn drop(&mut self) {
        let untold = self
            .places
            .iter_mut()
            .filter(|(_, told)| !told.is_terminated());
        for (key, told) in untold {
            told.close();
            self.waits.0.remove_if_mut(key, |_, senders| {
                senders.retain(|sender| !sender.is_closed());
                senders.is_empty()
            });
        }
    }
}

impl Oneshots {
    fn register<const K: usize>(&self, keys: [u64; K]) -> Registered<'_, K> {
        let places = keys.map(|key| {
            let (tell, told) = oneshot::channel();
            self.0.entry(key).or_default().push(tell);
            (key, told)
        });
        Registered {
            waits: self,
            places,
        }
    }
}

impl Peer for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn left(&self) -> usize {
        self.0.len()
    }
}

impl Waits for Oneshots {
    /// Before it registers again and after.
    const LOOKS: u64 = 2;

    async fn park<const K: usize>(&self, keys: [u64; K], timeout: Duration, request: Request) {
        let waits = async {
            while !request.is_ready() {
                let mut registered = self.register(keys);
                if request.is_ready() {
                    break;
                }
                registered.told().await;
            }
        };
        request.over(time::timeout(timeout, waits).await.is_ok());
    }

    fn event(&self, key: u64) {
        let senders = self
            .0
            .remove(&key)
            .map_or(Vec::new(), |(_, senders)| senders);
        senders.into_iter().for_each(|sender| _ = sender.send(()));
    }
}

/// The contenders of a row, by form, with the row's function.
macro_rules! waits {
    ($measure:ident) => {{
        use purgatory::{BoxedOperation, Purgatory};
        use $crate::{contender::*, request::Request, waits::*};
        [
            ("callback", contenders!($measure, Peer: Purgatory<u64, Request>, Oneshots)),
            ("future", contenders!($measure, Peer: Purgatory<u64, BoxedOperation>, Oneshots)),
        ]
    }};
}
pub(crate) use waits;
