//! Ours: `Watermarks`, which keeps the high watermark of each partition, too: its `park` (callback)
//! and its `wait_for` (future).

use std::{future::poll_fn, task::Poll, time::Duration};

use purgatory::{Outcome, Watermarks};

use super::produce::{Produce, Produces};
use crate::request::Wait;

const NAME: &str = "ours-watermarks";

pub(crate) struct Callback(Watermarks<u64>);

impl Produces for Callback {
    const NAME: &'static str = NAME;

    fn start() -> anyhow::Result<Self> {
        Ok(Callback(Watermarks::new("produce")?))
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

pub(crate) struct Awaited(Watermarks<u64>);

impl Produces for Awaited {
    const NAME: &'static str = NAME;

    fn start() -> anyhow::Result<Self> {
        Ok(Awaited(Watermarks::new("produce")?))
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
