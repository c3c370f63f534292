//! Ours: one `Purgatory`, each produce under one watermark watch in the form that is counted down,
//! as an operation (callback) and by `Purgatory::wait` (future). And `Watermarks`, which keeps the
//! high watermark of each partition, too: its `park` (callback) and its `wait_for` (future).

use std::{future::poll_fn, task::Poll, time::Duration};

use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, Watches, Watermarks};

use super::produce::{Produce, Produces};
use crate::{contender::Peer, request::Wait};

impl DelayedOperation for Produce {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.over(outcome == Outcome::Completed);
    }
}

impl Produces for Purgatory<u64, Produce> {
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let until = [(partition as u64, produce.offset)];
        _ = self.try_complete_else_watch(produce, Watches::up_to(&until), timeout).expect("room");
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.complete_up_to(&(partition as u64), high_watermark);
    }
}

impl Produces for Purgatory<u64, BoxedOperation> {
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let until = [(partition as u64, produce.offset)];
        let condition = move || produce.is_ready().then_some(());
        let wait = self.wait(Watches::up_to(&until), timeout, condition);
        async move { produce.over(wait.await.is_ok()) }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.complete_up_to(&(partition as u64), high_watermark);
    }
}

pub(crate) struct OursWatermarks<const AWAITED: bool>(Watermarks<u64>);

impl<const AWAITED: bool> Peer for OursWatermarks<AWAITED> {
    const NAME: &'static str = "ours-watermarks";

    fn start() -> anyhow::Result<Self> {
        Ok(OursWatermarks(Watermarks::new("produce")?))
    }

    fn left(&self) -> usize {
        self.0.waiting()
    }
}

impl Produces for OursWatermarks<false> {
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let over = move |outcome| produce.over(outcome == Outcome::Completed);
        _ = self.0.park(&(partition as u64), produce.offset, timeout, over).expect("room");
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.raise(&(partition as u64), high_watermark).expect("no limit");
    }
}

impl Produces for OursWatermarks<true> {
    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let wait = self.0.wait_for(&(partition as u64), produce.offset, timeout);
        async move { produce.over(wait.await.is_ok()) }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.raise(&(partition as u64), high_watermark).expect("no limit");
    }
}
