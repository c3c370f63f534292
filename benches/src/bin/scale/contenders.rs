//! The contenders: where requests wait under keys, to be completed by id or by an event.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use anyhow::Context as _;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, OperationId, Outcome, ParkResult, Purgatory};
use smallvec::SmallVec;
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Sleep, sleep},
};

use crate::request::Request;

/// The timeout of every request: none expires.
const HOUR: Duration = Duration::from_secs(3600);

/// A contender in which requests wait.
pub(crate) trait Waits: Send + Sync {
    /// Names a request that waits.
    type Id: Send;

    /// Enters the contender: a thread holds the guard while it works.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        None
    }

    /// Parks a request that is not ready.
    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<Self::Id>;

    /// Completes a request, without a check.
    fn complete(&self, id: &Self::Id);

    /// Checks all requests under `key` and completes those that are ready.
    fn signal(&self, key: u32);

    /// Returns how many requests wait.
    fn len(&self) -> usize;
}

/// Ours: a purgatory with its defaults, each request a callback.
pub(crate) struct Ours(Purgatory<u32, Request>);

impl Ours {
    pub(crate) const NAME: &'static str = "ours";

    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Ours(Purgatory::new("scale")?))
    }
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(outcome == Outcome::Completed);
    }
}

impl Waits for Ours {
    type Id = OperationId;

    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<OperationId> {
        match self.0.try_complete_else_watch(request, keys, HOUR)? {
            ParkResult::Parked(id) => Some(id),
            _ => None,
        }
        .context("it is not ready")
    }

    fn complete(&self, id: &OperationId) {
        self.0.complete(*id);
    }

    fn signal(&self, key: u32) {
        self.0.check_and_complete(&key);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The hand-written map: lists by key in a `DashMap`, and tokio's `sleep` for each request, whose
/// waker expires it. What ends leaves all its lists and its timer, as with ours. An event checks
/// under the lock of the map's shard, which favours it: the check may use no other lock, must be
/// short, and may not call back into the map.
pub(crate) struct Hand {
    lists: Arc<Lists>,
    runtime: Runtime,
}

type Lists = DashMap<u32, Vec<Arc<Waiting>>, RandomState>;

/// A request that waits.
pub(crate) struct Waiting {
    request: Request,
    keys: SmallVec<[u32; 3]>,
    over: AtomicBool,
    timer: Mutex<Option<Pin<Box<Sleep>>>>,
    lists: Arc<Lists>,
}

impl Hand {
    pub(crate) const NAME: &'static str = "dashmap-sleep";

    pub(crate) fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()?;
        let lists = Arc::default();
        Ok(Hand { lists, runtime })
    }
}

impl Waiting {
    /// Ends the request once, and removes what is kept of it. Called with no list locked.
    fn end(self: &Arc<Self>, completed: bool) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        // Stop the timer without the lock.
        let timer = self.timer.lock().take();
        drop(timer);
        // A key goes with its last request.
        for key in &self.keys {
            self.lists.remove_if_mut(key, |_, list| {
                if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, self)) {
                    list.swap_remove(at);
                }
                list.is_empty()
            });
        }
        self.request.end(completed);
    }
}

/// The timer's waker: the time is up.
impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.end(false);
    }
}

impl Waits for Hand {
    type Id = Arc<Waiting>;

    /// The timers belong to the runtime.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        Some(self.runtime.enter())
    }

    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<Arc<Waiting>> {
        let waiting = Arc::new(Waiting {
            request,
            keys: keys.into(),
            over: AtomicBool::new(false),
            timer: Mutex::default(),
            lists: self.lists.clone(),
        });
        // Start the timer, which the first poll does.
        let mut timer = Box::pin(sleep(HOUR));
        let waker = Waker::from(waiting.clone());
        let over = timer.as_mut().poll(&mut Context::from_waker(&waker));
        anyhow::ensure!(over.is_pending(), "an hour is over");
        *waiting.timer.lock() = Some(timer);

        // List it. An event before that has not seen it: check again.
        for &key in keys {
            self.lists.entry(key).or_default().push(waiting.clone());
        }
        if request.is_ready() {
            waiting.end(true);
        }
        Ok(waiting)
    }

    fn complete(&self, id: &Arc<Waiting>) {
        id.end(true);
    }

    fn signal(&self, key: u32) {
        // Check under the lock, end without it.
        let mut ready = SmallVec::<[Arc<Waiting>; 4]>::new();
        if let Some(list) = self.lists.get(&key) {
            let found = list.iter().filter(|waiting| waiting.request.is_ready());
            ready.extend(found.cloned());
        }
        for waiting in ready {
            waiting.end(true);
        }
    }

    /// Requests under several keys count once for each.
    fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }
}

/// Requests and timers refer to each other: what still waits is let go.
impl Drop for Hand {
    fn drop(&mut self) {
        let mut timers = Vec::new();
        for list in self.lists.iter() {
            for waiting in list.iter() {
                timers.extend(waiting.timer.lock().take());
            }
        }
        drop(timers);
        self.lists.clear();
    }
}
