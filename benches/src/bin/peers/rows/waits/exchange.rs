//! What goes to one who waits for it, with a time-out of 30 s: the reply to a request, and the job
//! of a queue.
//!
//! `replies-…`: a request that is answered, under a number never used before, from the moment it is
//! registered until its reply was taken, by the number of requests. On one thread (`1t`) 64 are
//! asked, answered and awaited. On two (`2t`) one thread asks and awaits, the other answers, at
//! most 512 behind. Both give way while they have nothing to do, so it takes two processors that
//! are free. The floor is two lock pairs each to put a request there and to take it off again, a
//! clock read, and an allocation. `replies-bytes`: the heap in use while a million are unanswered,
//! by their number; a future counts in its box, as in a task of its own, but without the task.
//!
//! `queue-…`: a job of a queue that a consumer waits for, from the wait until it was taken, by the
//! number of jobs. On one thread 64 consumers wait, 64 jobs are put, and the consumers take them.
//! On two one thread puts jobs, at most 512 ahead, and the other takes them one after the other,
//! and waits when there is none.

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use anyhow::ensure;
use crossbeam_utils::Backoff;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use purgatory::{Monitor, Replies};
use timer_core::{Clock, SystemClock};
use tokio::{
    runtime::Builder,
    sync::{Notify, oneshot},
    task::coop::unconstrained,
    time::timeout,
};

use super::room::{Room, TIMEOUT, nothing_left, poll_once, warmed_up};
use crate::{
    contender::{Peer, contenders},
    floor,
    results::OURS,
    rows::row::Run,
};

/// Requests that are asked before the first is answered, and consumers, on one thread.
const WINDOW: u64 = 64;
/// Requests that may be unanswered, and jobs that may lie in the queue, on two.
const AHEAD_MAX: u64 = 512;
/// The one key of our queue.
const JOBS: u8 = 0;

/// Where requests wait for replies, by number.
trait Asks: Peer {
    /// A reply to this request, which can be delivered from now on; `None` if none came in time.
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send;

    /// The reply has come. False when nobody waits for it.
    fn deliver(&self, number: u64, reply: u64) -> bool;
}

/// Ours: `Replies`.
struct OursReplies(Replies<u64, u64>);

impl Peer for OursReplies {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursReplies(Replies::new("replies")?))
    }

    fn left(&self) -> usize {
        self.0.expected()
    }
}

impl Asks for OursReplies {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let mut reply = self.0.expect(number, TIMEOUT).ok();
        poll_fn(move |context| match &mut reply {
            Some(reply) => Pin::new(reply).poll(context).map(Result::ok),
            None => Poll::Ready(None), // a number that is expected already
        })
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.deliver(&number, reply).is_ok()
    }
}

/// Written by hand: oneshot senders by number in a `DashMap`, and tokio's `timeout`. A request that
/// is given up takes its sender off the map.
#[derive(Default)]
struct Oneshots(DashMap<u64, oneshot::Sender<u64>, RandomState>);

/// A place on the map.
struct Registered<'a> {
    oneshots: &'a Oneshots,
    number: u64,
    told: oneshot::Receiver<u64>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.told.is_terminated() {
            self.oneshots.0.remove(&self.number);
        }
    }
}

impl Peer for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn left(&self) -> usize {
        self.0.len()
    }
}

impl Asks for Oneshots {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let (tell, told) = oneshot::channel();
        self.0.insert(number, tell);
        let mut registered = Registered { oneshots: self, number, told };
        async move { timeout(TIMEOUT, &mut registered.told).await.ok()?.ok() }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.remove(&number).is_some_and(|(_, tell)| tell.send(reply).is_ok())
    }
}

type Reply<'a> = Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>;
type Pending<'a> = VecDeque<(u64, Reply<'a>)>;

/// A request and its reply.
fn reply_to(number: u64) -> u64 {
    !number
}

/// Asks, and has the future registered with its task.
async fn ask<'a, A: Asks>(asks: &'a A, number: u64, pending: &mut Pending<'a>) {
    let mut reply: Reply<'a> = Box::pin(asks.ask(number));
    match poll_once(reply.as_mut()).await {
        Poll::Ready(reply) => assert_eq!(reply, Some(reply_to(number))),
        Poll::Pending => pending.push_back((number, reply)),
    }
}

fn answer<A: Asks>(asks: &A, mut numbers: Range<u64>) {
    let all = numbers.all(|number| asks.deliver(number, reply_to(number)));
    assert!(all, "nobody waited for a reply");
}

/// Nanoseconds for so many requests from `first` on.
async fn ask_alone<A: Asks>(asks: &A, first: u64, requests: u64) -> u64 {
    let (clock, mut pending) = (SystemClock::new(), Pending::new());
    let end = first + requests;
    for window in (first..end).step_by(WINDOW as usize) {
        let numbers = window..end.min(window + WINDOW);
        for number in numbers.clone() {
            ask(asks, number, &mut pending).await;
        }
        answer(asks, numbers);
        for (number, reply) in pending.drain(..) {
            assert_eq!(reply.await, Some(reply_to(number)));
        }
    }
    clock.now_ns()
}

/// The thread that asks, on two.
async fn asker<A: Asks>(asks: &A, first: u64, requests: u64, asked: &AtomicU64) -> u64 {
    let (clock, mut pending) = (SystemClock::new(), Pending::new());
    for number in first..first + requests {
        ask(asks, number, &mut pending).await;
        asked.store(number + 1, Ordering::Release);
        until(&mut pending, AHEAD_MAX as usize).await;
    }
    until(&mut pending, 0).await;
    clock.now_ns()
}

/// Takes replies until so many requests pend at most.
async fn until(pending: &mut Pending<'_>, may_pend: usize) {
    let backoff = Backoff::new();
    while pending.len() > may_pend {
        let (number, reply) = &mut pending[0];
        match poll_once(reply.as_mut()).await {
            Poll::Pending => backoff.snooze(),
            Poll::Ready(reply) => {
                assert_eq!(reply, Some(reply_to(*number)));
                pending.pop_front();
                backoff.reset();
            }
        }
    }
}

/// The thread that answers, on two.
fn answerer<A: Asks>(asks: &A, first: u64, requests: u64, asked: &AtomicU64) {
    let (mut next, backoff) = (first, Backoff::new());
    while next < first + requests {
        let end = asked.load(Ordering::Acquire);
        if next >= end {
            backoff.snooze();
            continue;
        }
        backoff.reset();
        answer(asks, next..end);
        next = end;
    }
}

/// Nanoseconds a request.
fn replies_each<A: Asks>((threads, requests): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<A>::open(1)?;
    warmed_up(requests, |first, requests| {
        let waits = room.waits.clone();
        let ns = if threads == 1 {
            room.join(room.spawn(async move { ask_alone(&*waits, first, requests).await }))?
        } else {
            let (answers, asked) = (waits.clone(), Arc::new(AtomicU64::new(first)));
            let told = asked.clone();
            let asks = async move { asker(&*waits, first, requests, &told).await };
            let answers = async move { answerer(&*answers, first, requests, &asked) };
            room.both(asks, answers)?.0
        };
        room.nothing_left()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn replies(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.ends_with("-2t") { 2 } else { 1 };
    let requests = run.sizes.operations;
    for round in 0..run.sizes.short_rounds {
        let contenders = contenders!(replies_each, Peer: OursReplies, Oneshots);
        run.each(id, "ns", round, &contenders, (threads, requests as u64))?;
        run.floor(id, "ns", floor::park_complete(1, requests) + floor::allocation(requests));
    }
    Ok(())
}

/// Bytes in use for each unanswered request, all of which are answered then.
fn bytes_each<A: Asks>(requests: u64) -> anyhow::Result<f64> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let asks = runtime.block_on(async { A::start() })?;
    let mut pending = Pending::with_capacity(requests as usize);
    let counted = allocation_counter::measure(|| {
        runtime.block_on(unconstrained(async {
            for number in 0..requests {
                ask(&asks, number, &mut pending).await;
            }
        }));
    });
    answer(&asks, 0..requests);
    runtime.block_on(unconstrained(until(&mut pending, 0)));
    nothing_left(&asks)?;
    Ok(counted.bytes_current as f64 / requests as f64)
}

pub(in crate::rows) fn replies_bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(bytes_each, Peer: OursReplies, Oneshots);
    run.each(id, "bytes", 0, &contenders, run.sizes.one_m as u64)
}

/// A queue whose consumers wait for its jobs.
trait Queue: Peer {
    /// A job that is there or comes; `None` if none came in time.
    fn take(&self) -> impl Future<Output = Option<u64>> + Send;

    fn put(&self, job: u64);
}

/// Ours: `Monitor`, with one key.
struct OursQueue(Monitor<u8, VecDeque<u64>>);

impl Peer for OursQueue {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(OursQueue(Monitor::new("queue", VecDeque::new())?))
    }

    fn left(&self) -> usize {
        self.0.read(|jobs| jobs.len()) + self.0.waiting()
    }
}

impl Queue for OursQueue {
    fn take(&self) -> impl Future<Output = Option<u64>> + Send {
        let job = self.0.wait(&[JOBS], TIMEOUT, |jobs| jobs.pop_front());
        async { job.await.ok() }
    }

    fn put(&self, job: u64) {
        self.0.update_one(&JOBS, |jobs| jobs.push_back(job));
    }
}

/// Written by hand: a queue in a mutex, tokio's `Notify`, which keeps one wake-up for the next that
/// comes, and its `timeout`.
#[derive(Default)]
struct Notified {
    jobs: Mutex<VecDeque<u64>>,
    put: Notify,
}

impl Peer for Notified {
    const NAME: &'static str = "mutex-notify";

    fn start() -> anyhow::Result<Self> {
        Ok(Notified::default())
    }

    fn left(&self) -> usize {
        self.jobs.lock().len()
    }
}

impl Queue for Notified {
    async fn take(&self) -> Option<u64> {
        let job = async {
            loop {
                if let Some(job) = self.jobs.lock().pop_front() {
                    return job;
                }
                self.put.notified().await;
            }
        };
        timeout(TIMEOUT, job).await.ok()
    }

    fn put(&self, job: u64) {
        self.jobs.lock().push_back(job);
        self.put.notify_one();
    }
}

/// The sum of so many jobs.
fn sum_of(jobs: u64) -> u64 {
    jobs * (jobs - 1) / 2
}

/// The sum of the jobs that were taken, and nanoseconds; zero jobs if a wait was no wait.
async fn take_alone<Q: Queue>(queue: &Q, jobs: u64) -> (u64, u64) {
    let (clock, mut sum, mut waits) = (SystemClock::new(), 0, Vec::with_capacity(WINDOW as usize));
    for first in (0..jobs).step_by(WINDOW as usize) {
        let window = first..jobs.min(first + WINDOW);
        for _ in window.clone() {
            let mut take: Reply<'_> = Box::pin(queue.take());
            if poll_once(take.as_mut()).await != Poll::Pending {
                return (0, 0);
            }
            waits.push(take);
        }
        window.for_each(|job| queue.put(job));
        for take in waits.drain(..) {
            sum += take.await.unwrap_or_default();
        }
    }
    (sum, clock.now_ns())
}

async fn consumer<Q: Queue>(queue: &Q, jobs: u64, taken: &AtomicU64) -> (u64, u64) {
    let (clock, mut sum) = (SystemClock::new(), 0);
    for job in 0..jobs {
        sum += queue.take().await.unwrap_or_default();
        taken.store(job + 1, Ordering::Release);
    }
    (sum, clock.now_ns())
}

fn producer<Q: Queue>(queue: &Q, jobs: u64, taken: &AtomicU64) {
    let backoff = Backoff::new();
    for job in 0..jobs {
        while job - taken.load(Ordering::Acquire) > AHEAD_MAX {
            backoff.snooze();
        }
        backoff.reset();
        queue.put(job);
    }
}

/// Nanoseconds a job.
fn jobs_each<Q: Queue>((threads, jobs): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<Q>::open(1)?;
    warmed_up(jobs, |_, jobs| {
        let queue = room.waits.clone();
        let (sum, ns) = if threads == 1 {
            room.join(room.spawn(async move { take_alone(&*queue, jobs).await }))?
        } else {
            let (puts, taken) = (queue.clone(), Arc::new(AtomicU64::new(0)));
            let told = taken.clone();
            let takes = async move { consumer(&*queue, jobs, &told).await };
            room.both(takes, async move { producer(&*puts, jobs, &taken) })?.0
        };
        ensure!(sum == sum_of(jobs), "{}: a job was lost", Q::NAME);
        room.nothing_left()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn queue(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.ends_with("-2t") { 2 } else { 1 };
    let jobs = run.sizes.operations as u64;
    for round in 0..run.sizes.short_rounds {
        let contenders = contenders!(jobs_each, Peer: OursQueue, Notified);
        run.each(id, "ns", round, &contenders, (threads, jobs))?;
    }
    Ok(())
}
