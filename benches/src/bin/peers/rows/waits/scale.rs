//! `scale-…`: the cost of one more operation among many. A million requests wait under random keys
//! out of a tenth as many, each under one key or three. An operation completes a random request and
//! parks another in its place: by its id (`scale-id-…`), or by an event of one of its keys, which
//! also checks all others under that key (`scale-event-…`). One thread does that (`1t`).
//!
//! The figure is processor time of the whole process, its timers' threads included, for one
//! operation. Each contender counts how its requests ended, and a wrong count ends the run.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
};

use anyhow::{Context as _, ensure};
use dashmap::DashMap;
use fastrand::Rng;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, OperationId, Outcome, Purgatory};
use purgatory_benches::process_cpu_ns;
use smallvec::SmallVec;
use tokio::{
    runtime::Builder,
    time::{Sleep, sleep},
};

use super::arena::HOUR;
use crate::{contender::contenders, results::OURS, rows::row::Run};

/// The number of no request.
const NONE: u32 = 0;

/// The condition that the requests wait for, and counts of their ends. It has cache lines of its
/// own.
#[derive(Default)]
#[repr(align(128))]
struct Owner {
    /// The number of the request that the next check finds ready.
    ready: AtomicU32,
    completed: AtomicU64,
    given_up: AtomicU64,
}

/// A request of 16 bytes, which waits until its owner makes it ready.
#[derive(Clone, Copy)]
struct Request {
    owner: &'static Owner,
    /// The request's number, counted from 1.
    number: u32,
}

impl Request {
    fn is_ready(self) -> bool {
        self.owner.ready.load(Ordering::Acquire) == self.number
    }

    /// Ends the request: completed, or given up by timeout or for any other reason.
    fn end(self, completed: bool) {
        let count = if completed {
            &self.owner.completed
        } else {
            &self.owner.given_up
        };
        count.fetch_add(1, Ordering::Release);
    }
}

/// A contender in which requests wait under keys, to be completed by id or by an event.
trait Holds: Sized + Send + Sync {
    /// The name in the output.
    const NAME: &'static str = OURS;
    /// Names a request that waits.
    type Id: Send;

    /// Starts the contender inside a tokio runtime with its time driver.
    fn start() -> anyhow::Result<Self>;

    /// Parks a request that is not ready.
    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<Self::Id>;

    /// Completes a request, without a check.
    fn complete(&self, id: &Self::Id);

    /// Checks all requests under `key` and completes those that are ready.
    fn signal(&self, key: u32);

    /// Returns the number of waiting requests, each counted as often as the contender lists it.
    fn len(&self) -> usize;
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        self.is_ready()
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(outcome == Outcome::Completed);
    }
}

/// Ours: a purgatory with its defaults, in which each request is a callback.
impl Holds for Purgatory<u32, Request> {
    type Id = OperationId;

    fn start() -> anyhow::Result<Self> {
        Ok(Purgatory::new("scale")?)
    }

    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<OperationId> {
        let parked = self.try_complete_else_watch(request, keys, HOUR)?;
        parked.context("it is not ready")
    }

    fn complete(&self, id: &OperationId) {
        self.complete(*id);
    }

    fn signal(&self, key: u32) {
        self.check_and_complete(&key);
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// The hand-written map: lists by key in a `DashMap`, and tokio's `sleep` for each request, whose
/// waker expires it. A request that ends leaves all its lists and its timer, as in ours. An event
/// checks under the lock of the map's shard, which favours it: the check may use no other lock,
/// must be short, and may not call back into the map.
struct Hand(Arc<Lists>);

type Lists = DashMap<u32, Vec<Arc<Waiting>>, RandomState>;

/// A request that waits.
struct Waiting {
    request: Request,
    keys: SmallVec<[u32; 3]>,
    over: AtomicBool,
    timer: Mutex<Option<Pin<Box<Sleep>>>>,
    lists: Arc<Lists>,
}

impl Waiting {
    /// Ends the request once, and removes it from the lists. Called with no list locked.
    fn end(self: &Arc<Self>, completed: bool) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        // Drop the timer without the lock.
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

/// The timer's waker: the request's time is up.
impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.end(false);
    }
}

impl Holds for Hand {
    const NAME: &'static str = "dashmap-sleep";
    type Id = Arc<Waiting>;

    fn start() -> anyhow::Result<Self> {
        Ok(Hand(Arc::default()))
    }

    fn park(&self, request: Request, keys: &[u32]) -> anyhow::Result<Arc<Waiting>> {
        let waiting = Arc::new(Waiting {
            request,
            keys: keys.into(),
            over: AtomicBool::new(false),
            timer: Mutex::default(),
            lists: self.0.clone(),
        });
        // Start the timer: the first poll does that.
        let mut timer = Box::pin(sleep(HOUR));
        let waker = Waker::from(waiting.clone());
        let over = timer.as_mut().poll(&mut Context::from_waker(&waker));
        ensure!(over.is_pending(), "an hour is over");
        *waiting.timer.lock() = Some(timer);

        // List the request. An event before that has not seen it: check again.
        for &key in keys {
            self.0.entry(key).or_default().push(waiting.clone());
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
        if let Some(list) = self.0.get(&key) {
            let found = list.iter().filter(|waiting| waiting.request.is_ready());
            ready.extend(found.cloned());
        }
        for waiting in ready {
            waiting.end(true);
        }
    }

    fn len(&self) -> usize {
        self.0.iter().map(|list| list.len()).sum()
    }
}

/// Drops the timers, since requests and timers refer to each other.
impl Drop for Hand {
    fn drop(&mut self) {
        let mut timers = Vec::new();
        for list in self.0.iter() {
            for waiting in list.iter() {
                timers.extend(waiting.timer.lock().take());
            }
        }
        self.0.clear();
    }
}

/// The work of a row.
#[derive(Clone, Copy)]
struct Work {
    by_event: bool,
    /// The number of keys under which a request waits: one or three.
    keys: usize,
    /// The number of requests that wait, and of operations in a round.
    parked: usize,
    operations: usize,
}

/// A contender and the requests that wait in it.
struct Member<H: Holds> {
    parked: Vec<Parked<H::Id>>,
    holds: H,
    work: Work,
    owner: &'static Owner,
    random: Rng,
}

/// A parked request.
struct Parked<I> {
    id: I,
    keys: [u32; 3],
}

impl<H: Holds> Member<H> {
    /// Parks all requests. The owner is never freed, since requests refer to it.
    fn new(work: Work) -> anyhow::Result<Self> {
        let mut member = Member {
            parked: Vec::new(),
            holds: H::start()?,
            work,
            owner: Box::leak(Box::default()),
            random: Rng::with_seed(0),
        };
        for number in 0..work.parked {
            let parked = member.park(number)?;
            member.parked.push(parked);
        }
        Ok(member)
    }

    /// Completes a random request and parks another in its place, again and again.
    fn work(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.work.operations {
            let number = self.random.usize(0..self.parked.len());
            self.complete(number)?;
            self.parked[number] = self.park(number)?;
        }
        Ok(())
    }

    /// Parks a request under random keys.
    fn park(&mut self, number: usize) -> anyhow::Result<Parked<H::Id>> {
        let key_count = (self.work.parked / 10) as u32;
        let keys = std::array::from_fn(|_| self.random.u32(0..key_count));
        let request = Request {
            owner: self.owner,
            number: number as u32 + 1,
        };
        let id = self.holds.park(request, &keys[..self.work.keys])?;
        Ok(Parked { id, keys })
    }

    /// Completes a request.
    fn complete(&mut self, number: usize) -> anyhow::Result<()> {
        let owner = self.owner;
        let due = owner.completed.load(Ordering::Acquire) + 1;
        let parked = &self.parked[number];
        if self.work.by_event {
            owner.ready.store(number as u32 + 1, Ordering::Release);
            let key = parked.keys[self.random.usize(0..self.work.keys)];
            self.holds.signal(key);
        } else {
            self.holds.complete(&parked.id);
        }
        owner.ready.store(NONE, Ordering::Release);
        // The request must have ended once, and no other request with it.
        let completed = owner.completed.load(Ordering::Acquire);
        let given_up = owner.given_up.load(Ordering::Relaxed);
        ensure!(given_up == 0, "{}: {given_up} were given up", H::NAME);
        ensure!(completed == due, "{}: not {due} but {completed}", H::NAME);
        Ok(())
    }
}

/// Measures nanoseconds of processor time per operation.
fn replace<H: Holds>(work: Work) -> anyhow::Result<f64> {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_time().build()?;
    let _entered = runtime.enter();
    let mut member = Member::<H>::new(work)?;

    // The first round warms up.
    let waiting = member.holds.len();
    let mut spent_ns = 0;
    for _ in 0..2 {
        let begin_ns = process_cpu_ns();
        member.work()?;
        spent_ns = process_cpu_ns() - begin_ns;
        // Each completed request was parked again.
        let now = member.holds.len();
        ensure!(now == waiting, "{}: {now} wait, {waiting} did", H::NAME);
    }
    Ok(spent_ns as f64 / work.operations as f64)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // The row's name states its work.
    let contenders = contenders!(replace, Holds: Purgatory<u32, Request>, Hand);
    // A round parks all requests again: do half as many.
    for _ in 0..run.sizes.rounds.div_ceil(2) {
        for keys in [1, 3] {
            let work = Work {
                by_event: id.ends_with("-event"),
                keys,
                parked: run.sizes.one_m,
                operations: run.sizes.operations,
            };
            let plural = if keys == 1 { "" } else { "s" };
            let id = format!("{id}-{keys}key{plural}-1t");
            run.each(&id, "ns of CPU", &contenders, work)?;
        }
    }
    Ok(())
}
