//! Ours: `Purgatory` with the request as its operation (callback), and `Purgatory::wait` with the
//! request's check as its condition (future).

use std::{future::poll_fn, task::Poll, time::Duration};

use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory};

use timer_core::{SystemClock, SystemTimer};

use super::wait::Waits;
use crate::{
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

pub(crate) struct OursCallback(Purgatory<u64, Request>);

impl Waits for OursCallback {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursCallback(Purgatory::new("callback")?))
    }

    fn start_on(clock: SystemClock) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(clock).build()?;
        Ok(OursCallback(Purgatory::builder("callback").timer(&timer).build()?))
    }

    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        _ = self.0.try_complete_else_watch(request, &keys, limit).expect("room");
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, key: u64) {
        self.0.check_and_complete(&key);
    }

    fn left(&self) -> usize {
        self.0.len() + self.0.keys()
    }
}

pub(crate) struct OursAwaited(Purgatory<u64, BoxedOperation>);

impl Waits for OursAwaited {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursAwaited(Purgatory::new("future")?))
    }

    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait {
        let condition = move || request.is_ready().then_some(());
        let wait = self.0.wait(&keys, limit, condition);
        async move { request.over(wait.await.is_ok()) }
    }

    fn event(&self, key: u64) {
        self.0.check_and_complete(&key);
    }

    fn left(&self) -> usize {
        self.0.len() + self.0.keys()
    }
}
