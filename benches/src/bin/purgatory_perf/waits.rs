//! Where requests wait: [`Waits`], and what is compared but for [`First`](crate::first::First).

use std::time::Duration;

use clap::ValueEnum;
use purgatory::{DelayedOperation, OperationId, Outcome, ParkResult, Purgatory, Timeout};
use purgatory_benches::delays::{AtEnd, Delays};
use serde::Serialize;
use timer_core::SystemClock;

use crate::{
    books::{Ending, Request},
    heap::Heap,
};

/// What times the requests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimerKind {
    /// This project's purgatory: the hierarchical timing wheel.
    Wheel,
    /// The same, with time-outs that may take up to half as long again.
    Tolerant,
    /// The same purgatory without its timer, and a delay heap beside it.
    Heap,
    /// The shape of Kafka's first purgatory: one heap, one lock, and completed requests kept until
    /// a purge.
    First,
}

/// A watch key.
pub(crate) type Key = u32;

/// Requests that wait until they are completed or their time runs out.
pub(crate) trait Waits: Send + Sync + Sized + 'static {
    /// What nobody completes ends, too.
    const EXPIRES: bool = true;

    /// Names a request that waits.
    type Ticket: Send + 'static;

    /// Parks a request under all keys.
    fn park(&self, request: Request) -> Self::Ticket;

    /// Completes requests, but for those whose time ran out.
    fn complete(&self, tickets: impl Iterator<Item = Self::Ticket>);
}

/// No purgatory at all: what the generator and the completing thread cost by themselves.
pub(crate) struct Nothing;

impl Waits for Nothing {
    const EXPIRES: bool = false;

    type Ticket = Request;

    fn park(&self, request: Request) -> Request {
        request
    }

    fn complete(&self, requests: impl Iterator<Item = Request>) {
        requests.for_each(|request| request.end(Ending::Completed));
    }
}

/// This project's purgatory, as its docs say. Requests are completed by name, as in Kafka's test.
pub(crate) struct Ours {
    purgatory: Purgatory<Key, Request>,
    keys: Vec<Key>,
    /// With it operations never time out by themselves: it cancels them. What was completed stays
    /// in it until its time.
    heap: Option<Delays<Heap<OperationId>>>,
    tolerance: Duration,
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(match outcome {
            Outcome::Completed => Ending::Completed,
            _ => Ending::Expired, // by the wheel, or cancelled by the heap
        });
    }
}

impl Ours {
    pub(crate) fn wheel(keys: Vec<Key>) -> anyhow::Result<Self> {
        Ours::new(keys, Duration::ZERO)
    }

    /// With `tolerance` on top of a request's time-out.
    pub(crate) fn new(keys: Vec<Key>, tolerance: Duration) -> anyhow::Result<Self> {
        Ok(Ours { purgatory: Purgatory::new("perf")?, keys, heap: None, tolerance })
    }

    pub(crate) fn heap(keys: Vec<Key>, clock: SystemClock) -> anyhow::Result<Self> {
        let ours = Ours::wheel(keys)?;
        let expires = ours.purgatory.clone();
        let heap = Delays::start(clock, AtEnd::Wait, move |ids| {
            ids.for_each(|id| _ = expires.cancel(id, "its time ran out"));
        })?;
        Ok(Ours { heap: Some(heap), ..ours })
    }
}

impl Waits for Ours {
    type Ticket = Option<OperationId>;

    fn park(&self, request: Request) -> Option<OperationId> {
        let (delay, tolerance) = (request.timeout, self.tolerance);
        let timeout = match &self.heap {
            Some(_) => Timeout::Never,
            None => Timeout::Within { delay, tolerance },
        };
        let parked = self.purgatory.try_complete_else_watch(request, &self.keys, timeout);
        let ParkResult::Parked(id) = parked.expect("no bound is set, and it is open") else {
            return None;
        };
        self.heap.iter().for_each(|heap| _ = heap.add(request.expires_ns(), id));
        Some(id)
    }

    fn complete(&self, ids: impl Iterator<Item = Option<OperationId>>) {
        let ids: Vec<OperationId> = ids.flatten().collect();
        self.purgatory.complete_each(&ids);
    }
}
