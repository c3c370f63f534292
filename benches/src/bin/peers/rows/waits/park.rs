//! `park-complete-…`: what a request costs that has to wait and is completed by an event, under one
//! key, three or twenty: random ones of a thousand, keys never used before or again (`fresh`), and
//! a thousand while a million others wait for other keys (`1m`).
//!
//! On two threads, per thread, each thread has keys of its own (`other-…`), both have the same
//! (`same-keys`), and of the same each completes half of the other's (`half-foreign`). `…-slowdown`
//! is their time in times of one thread's that is alone, measured in the same round: 1 is as good
//! as it gets, and 2 divided by it is how many times as much gets done. It takes two processors
//! that are free: where the threads must share one, all have a slowdown of 2, and nobody meets.
//!
//! `…-callback` compares what calls back, `…-future` what is awaited. The floor is a lock pair for
//! each key and one for the deadline, to put a request there, as many to take it off again, and
//! a clock read; of a future the allocation of what both sides share as well.
//!
//! At each contender stands a crew: threads that park requests and complete them when told to, all
//! at once, while others stay parked that nobody completes. When the crew goes home the others are
//! completed, and nothing may be left.
//!
//! Each thread has a runtime at hand for what tells the time. It parks a window of requests, makes
//! them ready, raises the event of each one's first key, and goes on when all have said that they
//! are over. One of several may park more windows before that, and does not sleep: it would be
//! woken on the worker of another, who does not yield. A future that pends is boxed, as it would be
//! in a task of its own.
//!
//! With `half_foreign` a thread leaves the events of half its window to the other one, and raises
//! those that are left to it.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, bail};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};
use tokio::{sync::oneshot, task::yield_now};

use super::room::{
    KEYS, Keys, Pending, Room, TIMEOUT, Task, all_completed, begin, complete_all, park_all,
    poll_once,
};
use crate::{
    floor,
    request::{Progress, Request},
    rows::{
        crew::{Crew, interleaved},
        row::Run,
    },
    waits::{Waits, waits},
};

/// How many requests a thread parks before it completes them.
const WINDOW: u64 = 64;
/// How many of its requests may be left to others before it waits for them. With a window's worth
/// two threads go in lockstep, and a third of what is measured is waiting.
const LEFT_MAX: u64 = 8 * WINDOW;
/// The first of the keys under which the others wait.
const OTHERS: u64 = 1 << 40;

/// Which keys the threads' requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All threads for the same.
    Same,
    /// Each thread for its own.
    Apart,
    /// Each request for its own.
    Fresh,
}

/// A crew to be made, for any waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hire {
    pub(super) threads: usize,
    /// How many keys a request waits for: one, three or twenty.
    pub(super) keys: usize,
    pub(super) share: Share,
    pub(super) half_foreign: bool,
    /// Requests that stay parked, under one key each.
    pub(super) others: usize,
}

/// Makes a crew.
pub(super) fn crew<W: Waits>(hire: Hire) -> anyhow::Result<Box<dyn Crew>> {
    Ok(match hire.keys {
        1 => Box::new(Team::<W, 1>::hire(hire)?),
        3 => Box::new(Team::<W, 3>::hire(hire)?),
        20 => Box::new(Team::<W, 20>::hire(hire)?),
        other => bail!("a crew for {other} keys"),
    })
}

struct Team<W, const K: usize> {
    hire: Hire,
    room: Room<W>,
    turns: u64,
    /// Tells the others to leave.
    leave: oneshot::Sender<()>,
    others: Task<anyhow::Result<()>>,
}

impl<W: Waits, const K: usize> Team<W, K> {
    fn hire(hire: Hire) -> anyhow::Result<Self> {
        let room = Room::<W>::open(hire.threads)?;
        let (waits, count) = (room.waits.clone(), hire.others);
        let (tell, parked) = std::sync::mpsc::channel();
        let (leave, left) = oneshot::channel();
        let others = room.spawn(async move {
            let request = Request { progress: Progress::leaked(), required: 1 };
            let mut pending = Pending::new();
            park_all::<W, 1>(&waits, request, OTHERS, &mut pending, count).await;
            tell.send(())?;
            left.await?;
            complete_all(&*waits, request, OTHERS, pending, count).await
        });
        parked.recv().context("the others")?;
        Ok(Team { hire, room, turns: 0, leave, others })
    }

    fn member(&self, thread: usize, swap: Option<Swap>) -> (Member<W, K>, Keys) {
        let seed = self.turns * 2 + thread as u64;
        let keys = match self.hire.share {
            Share::Same => Keys::Random(Rng::with_seed(seed), 0),
            Share::Apart => Keys::Random(Rng::with_seed(seed), thread as u64 * KEYS),
            Share::Fresh => Keys::Fresh(seed << 41), // far from each other and from OTHERS
        };
        let waits = self.room.waits.clone();
        let alone = self.hire.threads == 1;
        (Member { waits, progress: Progress::leaked(), parked: 0, alone, swap }, keys)
    }
}

impl<W: Waits, const K: usize> Crew for Team<W, K> {
    fn work(&mut self, operations: usize) -> anyhow::Result<f64> {
        self.turns += 1;
        let together = Arc::new(Barrier::new(self.hire.threads));
        let left: [Arc<AtomicU64>; 2] = Default::default();
        let work = |thread: usize| {
            let swap = self.hire.half_foreign.then(|| Swap::new(thread, self.turns, &left));
            let (mut member, keys) = self.member(thread, swap);
            let together = together.clone();
            self.room.thread(async move {
                let clock = SystemClock::new();
                together.wait();
                let begin = clock.now_ns();
                member.work(operations as u64, keys).await;
                let took = clock.now_ns() - begin;
                all_completed::<W>(member.progress, operations as u64)?;
                anyhow::Ok(took as f64 / operations as f64)
            })
        };
        let members: Vec<_> = (0..self.hire.threads).map(work).collect();
        let spent = members.into_iter().map(|member| self.room.join(member)?);
        let spent: anyhow::Result<Vec<f64>> = spent.collect();
        Ok(spent?.into_iter().fold(0.0, f64::max))
    }

    fn go_home(self: Box<Self>) -> anyhow::Result<()> {
        self.leave.send(()).ok().context("the others have gone")?;
        self.room.join(self.others)??;
        self.room.nothing_left()
    }
}

/// What two threads leave to each other: requests whose keys both draw alike.
struct Swap {
    given: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    given_keys: Keys,
    received_keys: Keys,
    /// How many events I have raised for the other.
    raised: u64,
}

impl Swap {
    fn new(thread: usize, turn: u64, left: &[Arc<AtomicU64>; 2]) -> Self {
        let keys = |thread| Keys::Random(Rng::with_seed(!(turn * 2 + thread as u64)), 0);
        let other = 1 - thread;
        let (given, received) = (left[thread].clone(), left[other].clone());
        let (given_keys, received_keys) = (keys(thread), keys(other));
        Swap { given, received, given_keys, received_keys, raised: 0 }
    }
}

struct Member<W, const K: usize> {
    waits: Arc<W>,
    progress: &'static Progress,
    parked: u64,
    alone: bool,
    swap: Option<Swap>,
}

impl<W: Waits, const K: usize> Member<W, K> {
    async fn work(&mut self, operations: u64, mut keys: Keys) {
        let waits = self.waits.clone();
        let (mut pending, mut events) = (Pending::new(), Vec::with_capacity(WINDOW as usize));
        let may_stay = if self.alone { 0 } else { LEFT_MAX };
        while self.parked < operations {
            let window = WINDOW.min(operations - self.parked);
            let given = if self.swap.is_some() { window / 2 } else { 0 };
            for at in 0..window {
                let keys = match &mut self.swap {
                    Some(swap) if at < given => swap.given_keys.next::<K>(),
                    _ => keys.next::<K>(),
                };
                self.parked += 1;
                let request = Request { progress: self.progress, required: self.parked };
                begin(Box::pin(waits.park(keys, TIMEOUT, request)), &mut pending).await;
                events.extend((at >= given).then_some(keys[0]));
            }
            waits.settle().await;
            self.progress.reach(self.parked);
            if let Some(swap) = &self.swap {
                swap.given.fetch_add(given, Ordering::Release);
            }
            events.drain(..).for_each(|key| waits.event(key));
            self.until_over(&mut pending, may_stay).await;
        }
        self.until_over(&mut pending, 0).await;
        while let Some(swap) = &self.swap
            && swap.raised < swap.given.load(Ordering::Acquire)
        {
            self.raise_or_yield().await;
        }
    }

    /// Waits until no more than so many requests are not over.
    async fn until_over(&mut self, pending: &mut Pending<'_>, may_stay: u64) {
        while self.parked.saturating_sub(self.progress.ended()) > may_stay {
            match pending.pop_front() {
                Some(wait) if self.alone => wait.await,
                Some(mut wait) => {
                    if poll_once(wait.as_mut()).await.is_pending() {
                        pending.push_front(wait);
                        self.raise_or_yield().await;
                    }
                }
                None => self.raise_or_yield().await,
            }
        }
    }

    /// Raises the events that the other thread has left to this one.
    async fn raise_or_yield(&mut self) {
        if let Some(swap) = &mut self.swap {
            let received = swap.received.load(Ordering::Acquire);
            if swap.raised < received {
                for _ in swap.raised..received {
                    self.waits.event(swap.received_keys.next::<K>()[0]);
                }
                swap.raised = received;
                return;
            }
        }
        std::thread::yield_now(); // the other thread may have no processor
        yield_now().await;
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let count = run.sizes.operations;
    // Twenty keys take as long as many requests.
    let (keys, operations) = match id.rsplit('-').next() {
        Some("3keys") => (3, count),
        Some("20keys") => (20, count / 5),
        _ => (1, count),
    };
    let share = match id {
        _ if id.contains("-fresh-") => Share::Fresh,
        _ if id.contains("-2t-other-") => Share::Apart,
        _ => Share::Same,
    };
    let others = if id.contains("-1m-") { run.sizes.one_m } else { 0 };
    let alone = Hire { threads: 1, keys, share, half_foreign: false, others };
    let both = Hire { threads: 2, half_foreign: id.contains("-half-foreign"), ..alone };
    let on_two = [("", both), ("-slowdown", alone)];
    let hires = if id.contains("-2t-") { &on_two } else { &[("", alone)][..] };
    for (form, contenders) in waits!(crew) {
        interleaved(&format!("{id}-{form}"), run, &contenders, hires, operations, || {
            floor::park_complete(keys, count) + floor::of_form(form, count)
        })?;
    }
    Ok(())
}
