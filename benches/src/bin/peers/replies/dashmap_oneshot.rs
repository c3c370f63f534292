//! Written by hand: oneshot senders by number in a `DashMap`, and tokio's `timeout`. A request that
//! is given up takes its sender off the map.

use dashmap::DashMap;
use foldhash::fast::RandomState;
use tokio::{sync::oneshot, time};

use super::asks::{Asks, TIMEOUT};

#[derive(Default)]
pub(crate) struct Oneshots(DashMap<u64, oneshot::Sender<u64>, RandomState>);

/// A place on the map.
struct Registered<'a> {
    oneshots: &'a Oneshots,
    number: u64,
    told: oneshot::Receiver<u64>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.told.is_terminated() {
            self.oneshots.0.remove(&self.number);
        }
    }
}

impl Asks for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let (tell, told) = oneshot::channel();
        self.0.insert(number, tell);
        let mut registered = Registered { oneshots: self, number, told };
        async move { time::timeout(TIMEOUT, &mut registered.told).await.ok()?.ok() }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.remove(&number).is_some_and(|(_, tell)| tell.send(reply).is_ok())
    }

    fn left(&self) -> usize {
        self.0.len()
    }
}
