//! Ways to wait under keys, each used as its own documentation advises, behind [`Waits`].
//!
//! Ours comes in two forms: a *callback*, called by the thread that signals the key, and a *future*
//! that is awaited. No contender keeps any part of a request that was completed or timed out. The
//! peers' maps hash with foldhash, which favours them; a `DashMap` has its default number of
//! shards. The cheapest peers, in [`wakers`](crate::wakers), have one lock.
//!
//! To add a peer, add its type to [`waits`].

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory};
use tokio::{sync::oneshot, time};

use crate::{
    contender::Peer,
    request::{Request, Wait},
};

/// A contender in which requests wait under keys until a signal finds them ready.
pub(crate) trait Waits: Peer {
    /// The number of checks that a signal makes of a request that is not ready.
    const VAIN_CHECKS: u64 = 1;
    /// Whether requests end in callbacks, so that no future stays pending.
    const CALLS_BACK: bool = false;

    /// Parks a request that is not ready. In the future form it waits once the future was polled,
    /// and [`Request::end`] is called before the future ends. In the callback form the future is
    /// ready as soon as the request waits.
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait;

    /// Signals `key`: the condition of requests under it may have become true.
    fn signal(&self, key: u64);
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(outcome == Outcome::Completed);
    }
}

/// Both forms of ours, callbacks and futures.
impl<O: DelayedOperation + Send> Peer for Purgatory<u64, O> {
    fn start() -> anyhow::Result<Self> {
        Ok(Purgatory::new("ours")?)
    }

    fn remaining(&self) -> usize {
        self.len() + self.keys()
    }
}

impl Waits for Purgatory<u64, Request> {
    const CALLS_BACK: bool = true;

    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        _ = self
            .try_complete_else_watch(request, &keys, limit)
            .expect("a free slot");
        poll_fn(|_| Poll::Ready(()))
    }

    fn signal(&self, key: u64) {
        self.check_and_complete(&key);
    }
}

impl Waits for Purgatory<u64, BoxedOperation> {
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        let wait = self.wait(&keys, limit, request.condition());
        async move { request.end(wait.await.is_ok()) }
    }

    fn signal(&self, key: u64) {
        self.check_and_complete(&key);
    }
}

/// The most common hand-written future: a list of oneshot senders for each key, and tokio's
/// `timeout`. A signal takes the whole list and wakes each waiter on it; a waiter whose request is
/// not ready registers again. A waiter that is dropped removes itself from its lists.
#[derive(Default)]
pub(crate) struct Oneshots(DashMap<u64, Vec<oneshot::Sender<()>>, RandomState>);

/// A task's entries on the lists of its keys.
struct Registered<'a, const K: usize> {
    waits: &'a Oneshots,
    places: [(u64, oneshot::Receiver<()>); K],
}

impl<const K: usize> Registered<'_, K> {
    /// Waits until any of the keys is signalled.
    async fn signalled(&mut self) {
        poll_fn(|context| {
            // The first ready receiver ends the wait; the others have registered the waker.
            let mut places = self.places.iter_mut();
            let signalled = places.any(|(_, signal)| Pin::new(signal).poll(context).is_ready());
            if signalled {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl<const K: usize> Drop for Registered<'_, K> {
    fn drop(&mut self) {
        for (key, signal) in &mut self.places {
            if signal.is_terminated() {
                continue; // the signal took the list off the map
            }
            signal.close();
            // A key is removed with its last sender.
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
            // One channel per key: a sender cannot be shared.
            let (sender, signal) = oneshot::channel();
            self.0.entry(key).or_default().push(sender);
            (key, signal)
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

    fn remaining(&self) -> usize {
        self.0.len()
    }
}

impl Waits for Oneshots {
    /// One check before it registers again and one after.
    const VAIN_CHECKS: u64 = 2;

    async fn park<const K: usize>(&self, keys: [u64; K], timeout: Duration, request: Request) {
        let waits = async {
            while !request.is_ready() {
                let mut registered = self.register(keys);
                // A signal between the check and the registration woke no waiter: check again.
                if request.is_ready() {
                    break;
                }
                registered.signalled().await;
            }
        };
        request.end(time::timeout(timeout, waits).await.is_ok());
    }

    fn signal(&self, key: u64) {
        let Some((_, senders)) = self.0.remove(&key) else {
            return;
        };
        for sender in senders {
            // A receiver that has been dropped needs no signal.
            _ = sender.send(());
        }
    }
}

/// Lists the contenders of a row by form, with the row's function.
macro_rules! waits {
    ($measure:ident) => {{
        use purgatory::{BoxedOperation, Purgatory};
        use tokio::time::Instant;
        use $crate::{callbacks::Callbacks, contender::*, request::Request, waits::*, wakers::Wakers};
        [
            (
                "callback",
                contenders!($measure, Peer: Purgatory<u64, Request>, Oneshots, Callbacks),
            ),
            (
                "future",
                contenders!(
                    $measure, Peer:
                    Purgatory<u64, BoxedOperation>,
                    Oneshots,
                    Wakers<()>,
                    Wakers<Instant>,
                ),
            ),
        ]
    }};
}
pub(crate) use waits;
