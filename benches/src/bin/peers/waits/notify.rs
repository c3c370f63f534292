//! A `Notify` for each key, shared by who waits for it, and tokio's `timeout`. The loop is that of
//! `Notify`'s docs: be told from here on, look, wait. An event tells everybody; the last to leave
//! takes the key off the map. Of many keys each is waited for in a box, as `select_all` would have
//! it.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use tokio::{select, sync::Notify, time};

use super::wait::Waits;
use crate::{contender::Peer, request::Request};

#[derive(Default)]
pub(crate) struct Notifies(DashMap<u64, Arc<Notify>, RandomState>);

async fn until_ready(notifies: &[Arc<Notify>], request: Request) {
    loop {
        match notifies {
            [one] => {
                let told = one.notified();
                if request.is_ready() {
                    return;
                }
                told.await;
            }
            [a, b, c] => {
                let (a, b, c) = (pin!(a.notified()), pin!(b.notified()), pin!(c.notified()));
                if request.is_ready() {
                    return;
                }
                select! { biased; () = a => {}, () = b => {}, () = c => {} }
            }
            _ => {
                let notified = notifies.iter().map(|notify| Box::pin(notify.notified()));
                let mut notified: Vec<_> = notified.collect();
                if request.is_ready() {
                    return;
                }
                poll_fn(|context| {
                    let told = notified.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
                    if told { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        }
    }
}

/// Takes keys off the map that nobody shares any more.
struct Leaves<'a, const K: usize>(&'a Notifies, [u64; K]);

impl<const K: usize> Drop for Leaves<'_, K> {
    fn drop(&mut self) {
        for key in self.1 {
            self.0.0.remove_if(&key, |_, notify| Arc::strong_count(notify) == 1);
        }
    }
}

impl Peer for Notifies {
    const NAME: &'static str = "notify";

    fn start() -> anyhow::Result<Self> {
        Ok(Notifies::default())
    }

    fn left(&self) -> usize {
        self.0.len()
    }
}

impl Waits for Notifies {
    async fn park<const K: usize>(&self, keys: [u64; K], timeout: Duration, request: Request) {
        let _leaves = Leaves(self, keys); // dropped last
        let notifies = keys.map(|key| self.0.entry(key).or_default().clone());
        let in_time = time::timeout(timeout, until_ready(&notifies, request)).await;
        request.over(in_time.is_ok());
    }

    fn event(&self, key: u64) {
        if let Some(notify) = self.0.get(&key) {
            notify.notify_waiters();
        }
    }
}
