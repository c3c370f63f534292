//! `replies-…`: the time of a request under a fresh number, from its registration until its reply
//! is taken. On one thread (`1t`) 64 requests are made, answered and awaited in turn. On two (`2t`)
//! one thread asks and awaits; the other answers, 64 at a time and at most 512 requests behind.
//! Each request is a task, polled again only once its reply wakes it; a thread sleeps while it has
//! nothing to do. The row needs two free processors.

use std::{
    future::poll_fn,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    task::Poll,
};

use crossbeam_utils::Backoff;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use purgatory::Replies;
use timer_core::{Clock, SystemClock};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    arena::{Arena, Pending, TIMEOUT, begin, poll_once, warmed_up},
    slots::Slots,
    tasks::{Tasks, run_until, run_woken},
};
use crate::{
    contender::{Peer, contenders},
    rows::row::Run,
};

/// The number of requests made before the first is answered.
const WINDOW: u64 = 64;
/// The maximum number of unanswered requests, on two threads.
const AHEAD_MAX: usize = 512;

/// A contender in which requests wait for replies, by number.
pub(super) trait Asks: Peer {
    /// Registers a request, whose reply may be delivered from now on. The future yields the reply,
    /// or `None` if none came in time.
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send;

    /// Delivers a reply; false when no request waits for it.
    fn deliver(&self, number: u64, reply: u64) -> bool;
}

impl Peer for Replies<u64, u64> {
    fn start() -> anyhow::Result<Self> {
        Ok(Replies::new("replies")?)
    }

    fn remaining(&self) -> usize {
        self.waits().len()
    }
}

impl Asks for Replies<u64, u64> {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let mut reply = self.expect(number, TIMEOUT).ok();
        poll_fn(move |context| match &mut reply {
            Some(reply) => Pin::new(reply).poll(context).map(Result::ok),
            None => Poll::Ready(None), // the number was expected already
        })
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.deliver(&number, reply).is_ok()
    }
}

/// The hand-written version: oneshot senders by number in a `DashMap`, and tokio's `timeout`. A
/// request that is given up removes its sender.
#[derive(Default)]
struct Oneshots(DashMap<u64, oneshot::Sender<u64>, RandomState>);

/// An entry of the map.
struct Registered<'a> {
    oneshots: &'a Oneshots,
    number: u64,
    reply: oneshot::Receiver<u64>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.reply.is_terminated() {
            self.oneshots.0.remove(&self.number);
        }
    }
}

impl Peer for Oneshots {
    const NAME: &'static str = "dashmap-oneshot";

    fn start() -> anyhow::Result<Self> {
        Ok(Oneshots::default())
    }

    fn remaining(&self) -> usize {
        self.0.len()
    }
}

impl Asks for Oneshots {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let (sender, reply) = oneshot::channel();
        self.0.insert(number, sender);
        let mut registered = Registered {
            oneshots: self,
            number,
            reply,
        };
        async move { timeout(TIMEOUT, &mut registered.reply).await.ok()?.ok() }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0
            .remove(&number)
            .is_some_and(|(_, sender)| sender.send(reply).is_ok())
    }
}

/// Waiting requests in the order of their numbers; `next` is the number of the first.
struct Asked<'a> {
    replies: Pending<'a, Option<u64>>,
    next: u64,
}

impl<'a> Asked<'a> {
    fn new(first: u64) -> Self {
        Asked {
            replies: Pending::new(),
            next: first,
        }
    }

    /// Makes a request, and registers its future with the task.
    async fn ask<A: Asks>(&mut self, asks: &'a A, number: u64) {
        begin(Box::pin(asks.ask(number)), &mut self.replies).await;
    }

    /// Takes replies until at most `pending_max` requests are pending.
    async fn until(&mut self, pending_max: usize) {
        let backoff = Backoff::new();
        while self.replies.len() > pending_max {
            match poll_once(self.replies[0].as_mut()).await {
                Poll::Pending => backoff.snooze(),
                // Replies come in the order of the numbers, each to its own request.
                Poll::Ready(reply) => {
                    assert_eq!(reply, Some(!self.next), "a wrong reply");
                    self.next += 1;
                    self.replies.pop_front();
                    backoff.reset();
                }
            }
        }
    }
}

/// Answers requests; the reply to a request is its number's complement.
fn answer<A: Asks>(asks: &A, mut numbers: Range<u64>) {
    let all = numbers.all(|number| asks.deliver(number, !number));
    assert!(all, "no request waited for a reply");
}

/// Makes, answers and awaits `requests` requests from number `first` on; returns how long that
/// took, in nanoseconds.
async fn ask_alone<A: Asks>(asks: Arc<A>, first: u64, requests: u64) -> u64 {
    let clock = SystemClock::new();
    let mut asked = Asked::new(first);
    let end = first + requests;
    for window in (first..end).step_by(WINDOW as usize) {
        let numbers = window..end.min(window + WINDOW);
        // Ask a window of requests, answer it, and await it.
        for number in numbers.clone() {
            asked.ask(&*asks, number).await;
        }
        answer(&*asks, numbers);
        asked.until(0).await;
    }
    clock.now_ns()
}

/// Makes a request, counts it and checks its reply: a task of the asking thread.
async fn request<A: Asks>(asks: &A, number: u64, registered: &AtomicU64) {
    let reply = asks.ask(number);
    registered.fetch_add(1, Relaxed);
    assert_eq!(reply.await, Some(!number), "a wrong reply");
}

/// Makes and awaits the requests, on the asking thread, and sends the numbers of each waiting
/// window to the other thread. Returns how long that took, in nanoseconds.
async fn asker<A: Asks>(
    asks: Arc<A>,
    first: u64,
    requests: u64,
    waiting: mpsc::Sender<Range<u64>>,
) -> u64 {
    let clock = SystemClock::new();
    let registered = AtomicU64::new(first);
    let mut tasks = Tasks::new();
    let end = first + requests;
    for window in (first..end).step_by(WINDOW as usize) {
        let numbers = window..end.min(window + WINDOW);
        for number in numbers.clone() {
            tasks.push(request(&*asks, number, &registered));
        }
        // A task registers its request when it is first polled; then it may be answered. One run
        // polls as many tasks as there are, and some of these may be woken ones instead of new
        // ones.
        while registered.load(Relaxed) < numbers.end {
            run_woken(&mut tasks).await;
        }
        waiting.send(numbers).expect("the other thread answers");
        run_until(&mut tasks, AHEAD_MAX).await;
    }
    run_until(&mut tasks, 0).await;
    clock.now_ns()
}

/// Measures nanoseconds per request, for this many requests on one thread or on two.
fn time_each<A: Asks>((requests, threads): (u64, usize)) -> anyhow::Result<f64> {
    let arena = Arena::<A>::open(1)?;
    warmed_up(requests, |first, requests| {
        // On two threads, the asking thread sends the numbers that wait; the other sleeps while
        // none do.
        let asks = arena.waits.clone();
        let ns = if threads == 1 {
            arena.join(arena.spawn(ask_alone(asks, first, requests)))?
        } else {
            let (asked, waiting) = mpsc::channel();
            let answering = asks.clone();
            let answers = arena.thread(async move {
                for numbers in waiting {
                    answer(&*answering, numbers);
                }
            });
            let ns = arena.join(arena.thread(asker(asks, first, requests, asked)))?;
            arena.join(answers)?;
            ns
        };
        arena.check_empty()?;
        Ok(ns)
    })
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.ends_with("-2t") { 2 } else { 1 };
    let asking = (run.sizes.operations as u64, threads);
    // Rounds are short: do twice as many.
    for _ in 0..2 * run.sizes.rounds {
        let contenders =
            contenders!(time_each, Peer: Replies<u64, u64>, Oneshots, Slots<()>, Slots<Instant>);
        run.each(id, "ns", &contenders, asking)?;
    }
    Ok(())
}
