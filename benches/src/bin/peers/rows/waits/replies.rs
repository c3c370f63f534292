//! `replies-…`: a request that is answered, under a number never used before, with a time-out of 30
//! s; from the moment it is registered until its reply was taken, by the number of requests.
//!
//! On one thread (`1t`) 64 are asked, answered and awaited. On two (`2t`) one thread asks and
//! awaits, the other answers, at most 512 behind. Both give way while they have nothing to do, so
//! it takes two processors that are free. The floor is two lock pairs each to put a request there
//! and to take it off again, a clock read, and an allocation. `replies-bytes`: the heap in use
//! while a million are unanswered, by their number; a future counts in its box, as in a task of its
//! own, but without the task.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    task::Poll,
    time::Duration,
};

use anyhow::ensure;
use crossbeam_utils::Backoff;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use purgatory::Replies;
use timer_core::{Clock, SystemClock};
use tokio::{runtime::Builder, sync::oneshot, task::coop::unconstrained, time::timeout};

use super::{
    super::row::Run,
    room::{Room, poll_once},
};
use crate::{contender::contenders, floor, results::OURS};

/// Requests that are asked before the first is answered, on one thread.
const WINDOW: u64 = 64;
/// Requests that may be unanswered, on two.
const UNANSWERED_MAX: usize = 512;

/// The time-out of each request: none comes to it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where requests wait for replies, by number.
trait Asks: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;

    /// Inside a runtime with tokio's time.
    fn start() -> anyhow::Result<Self>;

    /// A reply to this request, which can be delivered from now on; `None` if none came in time.
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send;

    /// The reply has come. False when nobody waits for it.
    fn deliver(&self, number: u64, reply: u64) -> bool;

    /// How many requests are still held.
    fn left(&self) -> usize;
}

/// Ours: `Replies`.
struct Ours(Replies<u64, u64>);

impl Asks for Ours {
    const NAME: &'static str = OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Ours(Replies::new("replies")?))
    }

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

    fn left(&self) -> usize {
        self.0.expected()
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

impl Asks for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let (tell, told) = oneshot::channel();
        self.0.insert(number, tell);
        let mut registered = Registered { oneshots: self, number, told };
        async move { timeout(TIMEOUT, &mut registered.told).await.ok()?.ok() }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.remove(&number).is_some_and(|(_, tell)| tell.send(reply).is_ok())
    }

    fn left(&self) -> usize {
        self.0.len()
    }
}

type Pending<'a> = VecDeque<(u64, Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>)>;

/// A request and its reply.
fn reply_to(number: u64) -> u64 {
    !number
}

/// Asks, and has the future registered with its task.
async fn ask<'a, A: Asks>(asks: &'a A, number: u64, pending: &mut Pending<'a>) -> bool {
    let mut reply: Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>> =
        Box::pin(asks.ask(number));
    match poll_once(reply.as_mut()).await {
        Poll::Ready(reply) => reply == Some(reply_to(number)),
        Poll::Pending => {
            pending.push_back((number, reply));
            true
        }
    }
}

/// Nanoseconds for so many requests from `first` on; false if one was not answered right.
async fn alone<A: Asks>(asks: &A, first: u64, requests: u64) -> (bool, u64) {
    let (clock, mut pending, mut right) = (SystemClock::new(), Pending::new(), true);
    let end = first + requests;
    for window in (first..end).step_by(WINDOW as usize) {
        let numbers = window..end.min(window + WINDOW);
        for number in numbers.clone() {
            right &= ask(asks, number, &mut pending).await;
        }
        right &= numbers.fold(true, |all, number| all & asks.deliver(number, reply_to(number)));
        for (number, reply) in pending.drain(..) {
            right &= reply.await == Some(reply_to(number));
        }
    }
    (right, clock.now_ns())
}

/// The thread that asks, on two.
async fn asker<A: Asks>(asks: &A, first: u64, requests: u64, asked: &AtomicU64) -> (bool, u64) {
    let (clock, mut pending, mut right) = (SystemClock::new(), Pending::new(), true);
    for number in first..first + requests {
        right &= ask(asks, number, &mut pending).await;
        asked.store(number + 1, Release);
        right &= until(&mut pending, UNANSWERED_MAX).await;
    }
    right &= until(&mut pending, 0).await;
    (right, clock.now_ns())
}

/// Takes replies until so many requests pend at most.
async fn until(pending: &mut Pending<'_>, may_pend: usize) -> bool {
    let (backoff, mut right) = (Backoff::new(), true);
    while pending.len() > may_pend {
        let (number, reply) = &mut pending[0];
        match poll_once(reply.as_mut()).await {
            Poll::Pending => backoff.snooze(),
            Poll::Ready(reply) => {
                right &= reply == Some(reply_to(*number));
                pending.pop_front();
                backoff.reset();
            }
        }
    }
    right
}

/// The thread that answers, on two.
fn answerer<A: Asks>(asks: &A, first: u64, requests: u64, asked: &AtomicU64) -> bool {
    let (mut next, mut right, backoff) = (first, true, Backoff::new());
    while next < first + requests {
        let end = asked.load(Acquire);
        if next >= end {
            backoff.snooze();
            continue;
        }
        backoff.reset();
        right &= (next..end).fold(true, |all, number| all & asks.deliver(number, reply_to(number)));
        next = end;
    }
    right
}

/// Nanoseconds a request, after a warm-up.
fn measure<A: Asks>((threads, requests): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<A>::with(A::NAME, 1, A::start)?;
    let mut took_ns = 0;
    let mut first = 0;
    for requests in [requests.div_ceil(8), requests] {
        let (waits, from) = (room.waits.clone(), first);
        let (right, ns) = if threads == 1 {
            room.join(room.spawn(async move { alone(&*waits, from, requests).await }))?
        } else {
            let (answers, asked) = (waits.clone(), Arc::new(AtomicU64::new(first)));
            let told = asked.clone();
            let asks = async move { asker(&*waits, from, requests, &told).await };
            let answers = async move { answerer(&*answers, from, requests, &asked) };
            let ((right, ns), all_right) = room.both(asks, answers)?;
            (right & all_right, ns)
        };
        nothing_lost(&*room.waits, right)?;
        took_ns = ns;
        first += requests;
    }
    Ok(took_ns as f64 / requests as f64)
}

fn nothing_lost<A: Asks>(asks: &A, right: bool) -> anyhow::Result<()> {
    let left = asks.left();
    ensure!(right && left == 0, "{}: a reply was lost, or {left} requests are held", A::NAME);
    Ok(())
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.ends_with("-2t") { 2 } else { 1 };
    let requests = run.sizes.operations;
    for round in 0..run.sizes.short_rounds {
        let contenders = contenders!(measure, Asks: Ours, Oneshots);
        run.each(id, "ns", round, &contenders, (threads, requests as u64))?;
        run.floor(id, "ns", floor::park_complete(1, requests) + floor::allocation(requests));
    }
    Ok(())
}

/// Bytes in use for each unanswered request, all of which are answered then.
fn bytes_each<A: Asks>(requests: u64) -> anyhow::Result<f64> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let asks = runtime.block_on(async { A::start() })?;
    let (mut pending, mut right) = (Pending::with_capacity(requests as usize), true);
    let counted = allocation_counter::measure(|| {
        runtime.block_on(unconstrained(async {
            for number in 0..requests {
                right &= ask(&asks, number, &mut pending).await;
            }
        }));
    });
    right &= (0..requests).fold(true, |all, number| all & asks.deliver(number, reply_to(number)));
    runtime.block_on(unconstrained(async { right &= until(&mut pending, 0).await }));
    nothing_lost(&asks, right)?;
    Ok(counted.bytes_current as f64 / requests as f64)
}

pub(in crate::rows) fn bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders = contenders!(bytes_each, Asks: Ours, Oneshots);
    run.each(id, "bytes", 0, &contenders, run.sizes.one_m as u64)
}
