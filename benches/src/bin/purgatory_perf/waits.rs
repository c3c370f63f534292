//! Requests, their endings, and the two purgatories, behind [`Waits`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
    vec::Drain,
};

use foldhash::HashMap;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, OperationId, Outcome, Purgatory};
use purgatory_benches::delays::{Delays, Heap};
use timer_core::{Clock, SystemClock};

/// The timeout of a request.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);
/// The longest lateness that is recorded exactly.
const HOUR_NS: u64 = 3_600_000_000_000;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Expired,
}

/// The shared state of a run's requests: the keys under which they wait, a clock, and for each kind
/// of ending how late the ends were, in nanoseconds. Each kind has its own lock, so that completing
/// and expiring threads do not contend.
pub(crate) struct Books {
    pub(crate) clock: SystemClock,
    keys: Vec<u32>,
    late: [Mutex<Histogram<u64>>; 2],
}

/// A request: when it began, and how long it may take.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) books: &'static Books,
    pub(crate) began_ns: u64,
    pub(crate) latency: Duration,
}

impl Books {
    pub(crate) fn new(keys: Vec<u32>) -> Self {
        let late = || Mutex::new(Histogram::new_with_max(HOUR_NS, 3).expect("these are legal"));
        Books {
            clock: SystemClock::new(),
            keys,
            late: [late(), late()],
        }
    }

    pub(crate) fn ended_as(&self, ending: Ending) -> u64 {
        self.late[ending as usize].lock().len()
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended_as(Ending::Completed) + self.ended_as(Ending::Expired)
    }

    /// Returns the 99th percentile of lateness, for one kind of ending.
    pub(crate) fn late_ms(&self, ending: Ending) -> f64 {
        let late = self.late[ending as usize].lock();
        late.value_at_quantile(0.99) as f64 / 1e6
    }
}

impl Request {
    /// Records the request's end, and how late it is.
    pub(crate) fn end(&self, ending: Ending) {
        let waited = self.books.clock.now_ns().saturating_sub(self.began_ns);
        // Lateness is the time waited beyond the latency, or beyond the timeout.
        let due = match ending {
            Ending::Completed => self.latency,
            Ending::Expired => TIMEOUT,
        };
        let late_ns = waited.saturating_sub(due.as_nanos() as u64);
        self.books.late[ending as usize]
            .lock()
            .saturating_record(late_ns);
    }
}

/// The number of requests that *first* parks between two purges: the default of Kafka's first
/// purgatory.
const PURGE: u32 = 10_000;

/// A purgatory in which requests wait until they are completed or expire.
pub(crate) trait Waits: Send + Sync + Sized + 'static {
    /// Names a waiting request.
    type Ticket: Send + 'static;

    fn new(clock: SystemClock) -> anyhow::Result<Self>;

    /// Parks a request under all keys.
    fn park(&self, request: Request) -> Self::Ticket;

    /// Completes a request, unless it has expired.
    fn complete(&self, ticket: Self::Ticket);
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.end(Ending::Completed),
            _ => self.end(Ending::Expired),
        }
    }
}

/// This project's purgatory, with its hierarchical timing wheel. Requests are completed by id, as
/// in Kafka's test.
impl Waits for Purgatory<u32, Request> {
    type Ticket = OperationId;

    fn new(_: SystemClock) -> anyhow::Result<Self> {
        Ok(Purgatory::new("perf")?)
    }

    fn park(&self, request: Request) -> OperationId {
        let parked = self.try_complete_else_watch(request, &request.books.keys, TIMEOUT);
        let id = parked.expect("no bound is set, and it is open");
        id.expect("its check is never true")
    }

    fn complete(&self, id: OperationId) {
        self.complete(id); // a request that expired meanwhile has ended
    }
}

/// A purgatory built like Kafka's first: one delay heap, and one lock for all watch lists.
/// Completed requests stay in both until a purge, which walks everything under those locks once
/// enough requests were parked since the last purge.
pub(crate) struct First {
    lists: Mutex<Lists>,
    delays: Delays<Heap<Arc<Waiting>>>,
}

#[derive(Default)]
struct Lists {
    watchers: HashMap<u32, Vec<Arc<Waiting>>>,
    since_purge: u32,
}

/// A request on several lists and in the heap.
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
}

impl First {
    /// Removes ended requests from the lists and the heap. O(requests).
    fn purge(&self, lists: &mut Lists) {
        // Purge the lists, then the heap.
        for list in lists.watchers.values_mut() {
            list.retain(|waiting| !waiting.over.load(SeqCst));
        }
        self.delays
            .with(|heap| heap.retain(|waiting| !waiting.over.load(SeqCst)));
        lists.since_purge = 0;
    }
}

impl Waits for First {
    type Ticket = Arc<Waiting>;

    fn new(clock: SystemClock) -> anyhow::Result<Self> {
        // The heap's thread expires due requests.
        let delays = Delays::start(clock, |waiting: Drain<'_, Arc<Waiting>>| {
            for waiting in waiting {
                waiting.end(Ending::Expired);
            }
        })?;
        Ok(First {
            lists: Mutex::default(),
            delays,
        })
    }

    fn park(&self, request: Request) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting {
            request,
            over: AtomicBool::new(false),
        });
        // Fill the heap under the lists' lock, so that a purge finds a request in both.
        let mut lists = self.lists.lock();
        for &key in &request.books.keys {
            lists.watchers.entry(key).or_default().push(waiting.clone());
        }
        let expires_ns = request.began_ns + TIMEOUT.as_nanos() as u64;
        self.delays.add(expires_ns, waiting.clone());
        lists.since_purge += 1;
        if lists.since_purge >= PURGE {
            self.purge(&mut lists);
        }
        waiting
    }

    fn complete(&self, waiting: Arc<Waiting>) {
        waiting.end(Ending::Completed);
    }
}
