//! Where requests wait: [`Waits`], and what is compared.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    vec::Drain,
};

use clap::ValueEnum;
use foldhash::HashMap;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, OperationId, Outcome, ParkResult, Purgatory, Timeout};
use purgatory_benches::delays::{Delays, Queue};
use serde::Serialize;
use timer_core::SystemClock;

use crate::books::{Ending, Request};

/// What times the requests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimerKind {
    /// This project's purgatory: the hierarchical timing wheel.
    Wheel,
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
    pub(crate) fn new(keys: Vec<Key>) -> anyhow::Result<Self> {
        Ok(Ours { purgatory: Purgatory::new("perf")?, keys, heap: None })
    }

    pub(crate) fn heap(keys: Vec<Key>, clock: SystemClock) -> anyhow::Result<Self> {
        let ours = Ours::new(keys)?;
        let expires = ours.purgatory.clone();
        let heap = Delays::start(clock, move |ids| {
            ids.for_each(|id| _ = expires.cancel(id, "its time ran out"));
        })?;
        Ok(Ours { heap: Some(heap), ..ours })
    }
}

impl Waits for Ours {
    type Ticket = Option<OperationId>;

    fn park(&self, request: Request) -> Option<OperationId> {
        let timeout = match &self.heap {
            Some(_) => Timeout::Never,
            None => Timeout::After(request.timeout),
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

/// The shape of Kafka's first purgatory: one delay heap, one lock for all watch lists, and requests
/// that were completed kept in both until a purge, which walks everything under those locks once
/// enough were parked since the last.
pub(crate) struct First {
    keys: Vec<Key>,
    /// So many are parked between two purges.
    purge: u32,
    lists: Mutex<Lists>,
    delays: Delays<Heap<Arc<Waiting>>>,
}

#[derive(Default)]
struct Lists {
    watchers: HashMap<Key, Vec<Arc<Waiting>>>,
    since_purge: u32,
}

/// A request, which may be on several lists and in the heap.
pub(crate) struct Waiting {
    request: Request,
    over: AtomicBool,
}

impl Waiting {
    fn end(&self, ending: Ending) {
        if !self.over.swap(true, SeqCst) {
            self.request.end(ending);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

impl First {
    pub(crate) fn new(keys: Vec<Key>, purge: u32, clock: SystemClock) -> anyhow::Result<Self> {
        let delays = Delays::start(clock, |waiting: Drain<'_, Arc<Waiting>>| {
            waiting.for_each(|waiting| waiting.end(Ending::Expired));
        })?;
        Ok(First { keys, purge, lists: Mutex::default(), delays })
    }

    fn purge(&self, lists: &mut Lists) {
        for list in lists.watchers.values_mut() {
            list.retain(|waiting| !waiting.is_over());
        }
        self.delays.with(|heap| heap.retain(|waiting| !waiting.is_over()));
        lists.since_purge = 0;
    }
}

impl Waits for First {
    type Ticket = Arc<Waiting>;

    fn park(&self, request: Request) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting { request, over: AtomicBool::new(false) });
        let mut lists = self.lists.lock();
        for &key in &self.keys {
            lists.watchers.entry(key).or_default().push(waiting.clone());
        }
        self.delays.add(request.expires_ns(), waiting.clone());
        lists.since_purge += 1;
        if lists.since_purge >= self.purge {
            self.purge(&mut lists);
        }
        waiting
    }

    fn complete(&self, waiting: impl Iterator<Item = Arc<Waiting>>) {
        waiting.for_each(|waiting| waiting.end(Ending::Completed));
    }
}

/// A plain heap of what is due: what completes the requests at their latency, and what a purgatory
/// over a heap expires them with.
pub(crate) struct Heap<T>(BinaryHeap<Reverse<Due<T>>>);

struct Due<T> {
    at_ns: u64,
    number: u64,
    item: T,
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Due<T> {}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap(BinaryHeap::new())
    }
}

impl<T> Heap<T> {
    /// Keeps the items that `keep` is true for. O(items).
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.0.retain(|due| keep(&due.0.item));
    }
}

impl<T: Send + 'static> Queue for Heap<T> {
    type Item = T;

    fn insert(&mut self, at_ns: u64, number: u64, item: T) {
        self.0.push(Reverse(Due { at_ns, number, item }));
    }

    fn next_due(&mut self) -> Option<u64> {
        self.0.peek().map(|first| first.0.at_ns)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop().map(|due| due.0.item)
    }
}
