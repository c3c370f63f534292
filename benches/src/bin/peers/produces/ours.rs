//! Ours: one `Purgatory`, each produce under one watermark watch in the form that is counted down,
//! as an operation (callback) and by `Purgatory::wait` (future). And `Watermarks`, which keeps the
//! high watermark of each partition, too: its `park` (callback) and its `wait_for` (future).

use std::{future::poll_fn, task::Poll, time::Duration};

use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, Watches, Watermarks};

use super::produce::{Produce, Produces};
use crate::{request::Wait, results::OURS};

const WATERMARKS: &str = "ours-watermarks";

impl DelayedOperation for Produce {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.over(outcome == Outcome::Completed);
    }
}

pub(crate) struct OursCallback(Purgatory<u64, Produce>);

impl Produces for OursCallback {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursCallback(Purgatory::new("produce")?))
    }

    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let until = [(partition as u64, produce.offset)];
        _ = self.0.try_complete_else_watch(produce, Watches::up_to(&until), timeout).expect("room");
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.complete_up_to(&(partition as u64), high_watermark);
    }

    fn left(&self) -> usize {
        self.0.len() + self.0.keys()
    }
}

pub(crate) struct OursAwaited(Purgatory<u64, BoxedOperation>);

impl Produces for OursAwaited {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursAwaited(Purgatory::new("produce")?))
    }

    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let until = [(partition as u64, produce.offset)];
        let condition = move || produce.is_ready().then_some(());
        let wait = self.0.wait(Watches::up_to(&until), timeout, condition);
        async move { produce.over(wait.await.is_ok()) }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.complete_up_to(&(partition as u64), high_watermark);
    }

    fn left(&self) -> usize {
        self.0.len() + self.0.keys()
    }
}

pub(crate) struct WatermarksCallback(Watermarks<u64>);

impl Produces for WatermarksCallback {
    const NAME: &'static str = WATERMARKS;

    fn start() -> anyhow::Result<Self> {
        Ok(WatermarksCallback(Watermarks::new("produce")?))
    }

    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let over = move |outcome| produce.over(outcome == Outcome::Completed);
        _ = self.0.park(&(partition as u64), produce.offset, timeout, over).expect("room");
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.raise(&(partition as u64), high_watermark).expect("no limit");
    }

    fn left(&self) -> usize {
        self.0.waiting()
    }
}

pub(crate) struct WatermarksAwaited(Watermarks<u64>);

impl Produces for WatermarksAwaited {
    const NAME: &'static str = WATERMARKS;

    fn start() -> anyhow::Result<Self> {
        Ok(WatermarksAwaited(Watermarks::new("produce")?))
    }

    fn park(&self, partition: usize, timeout: Duration, produce: Produce) -> impl Wait {
        let wait = self.0.wait_for(&(partition as u64), produce.offset, timeout);
        async move { produce.over(wait.await.is_ok()) }
    }

    fn raise(&self, partition: usize, high_watermark: u64) {
        self.0.raise(&(partition as u64), high_watermark).expect("no limit");
    }

    fn left(&self) -> usize {
        self.0.waiting()
    }
}
