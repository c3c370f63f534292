//! The future most often written by hand: a list of oneshot senders for each key, and tokio's
//! `timeout`. An event takes the whole list and tells everybody on it; who finds its request not
//! ready then registers again. Who leaves takes itself off the lists it is still on.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use tokio::{sync::oneshot, time};

use super::wait::Waits;
use crate::{contender::Peer, request::Request};

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
        let untold = self.places.iter_mut().filter(|(_, told)| !told.is_terminated());
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
        Registered { waits: self, places }
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
        let senders = self.0.remove(&key).map_or(Vec::new(), |(_, senders)| senders);
        senders.into_iter().for_each(|sender| _ = sender.send(()));
    }
}
