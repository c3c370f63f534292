//! The future written by hand: for each partition a list of offsets and oneshot senders in a
//! `DashMap`, and tokio's `timeout`. A produce that times out takes itself off the list. The list
//! of a partition stays when it is empty, as the other peers' do.

use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time};

use super::produce::{Produce, Produces};
use crate::contender::Peer;

#[derive(Default)]
pub(crate) struct Oneshots(DashMap<usize, Vec<(u64, oneshot::Sender<()>)>, RandomState>);

/// A place on the list of a partition.
struct Registered<'a> {
    waits: &'a Oneshots,
    partition: usize,
    told: oneshot::Receiver<()>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.told.is_terminated() {
            self.told.close();
            if let Some(mut list) = self.waits.0.get_mut(&self.partition) {
                list.retain(|(_, tell)| !tell.is_closed());
            }
        }
    }
}

impl Peer for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn left(&self) -> usize {
        self.0.iter().map(|list| list.len()).sum()
    }
}

impl Produces for Oneshots {
    async fn park(&self, partition: usize, timeout: Duration, produce: Produce) {
        let (tell, told) = oneshot::channel();
        self.0.entry(partition).or_default().push((produce.offset, tell));
        let mut registered = Registered { waits: self, partition, told };
        let in_time = produce.is_ready()
            || time::timeout(timeout, &mut registered.told).await.is_ok_and(|told| told.is_ok());
        drop(registered);
        produce.over(in_time);
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        let Some(mut list) = self.0.get_mut(&partition) else { return };
        let reached = list.extract_if(.., |(offset, _)| *offset <= high_watermark);
        let reached: SmallVec<[_; 8]> = reached.collect();
        drop(list);
        reached.into_iter().for_each(|(_, tell)| _ = tell.send(()));
    }
}
