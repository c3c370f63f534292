//! Ours: `Purgatory` with the request as its operation (callback), and `Purgatory::wait` with the
//! request's check as its condition (future).

use std::{future::poll_fn, task::Poll, time::Duration};

use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory};
use timer_core::{SystemClock, SystemTimer};

use super::wait::Waits;
use crate::{
    contender::Peer,
    request::{Request, Wait},
    results::OURS,
};

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
    fn start_on(clock: SystemClock) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(clock).build()?;
        Ok(Purgatory::builder("ours").timer(&timer).build()?)
    }

    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        _ = self.try_complete_else_watch(request, &keys, limit).expect("room");
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
