//! `schedule-cancel-…` and `random-replace-1m`: what a timeout costs that does not come to pass,
//! with the clock read that a delay needs, on one thread and on two. `sleep-…`: the same with
//! futures, each made, polled and dropped, and a time-out around one that is ready.
//!
//! At each contender stands a crew: threads that keep its timer full of pending ones and work on it
//! when told to, all at once. The pending timers belong to the threads that work, an hour or two
//! away; when the crew goes home it cancels them, and checks that each was still there.

use std::{
    sync::{Arc, Barrier, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use crate::{
    contender::Contender,
    floor,
    rows::{
        crew::{Crew, interleaved},
        row::Run,
    },
    sink::Sink,
    timers::{Timer, TokioSleep, timers},
};

/// The delay of a timeout that is cancelled at once.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a crew does to its timer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    ScheduleCancel,
    Replace,
    TimeoutReady,
}

/// A crew to be made, for any timer.
#[derive(Clone, Copy)]
pub(super) struct Hire {
    pub(super) threads: usize,
    /// Pending timers, of all threads together.
    pub(super) pending: usize,
    pub(super) work: Work,
}

struct Team<T> {
    timer: Arc<T>,
    sink: &'static Sink,
    threads: Vec<Member>,
}

struct Member {
    orders: mpsc::Sender<usize>,
    spent: mpsc::Receiver<f64>,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// One to two hours.
fn far(random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(3_600_000_000..7_200_000_000))
}

/// Makes a crew.
pub(super) fn crew<T: Timer>(hire: Hire) -> anyhow::Result<Box<dyn Crew>> {
    let sink = Sink::for_none();
    let timer = Arc::new(T::start(sink)?);
    let together = Arc::new(Barrier::new(hire.threads));
    let share = hire.pending / hire.threads;
    let member = |number: usize| {
        let (timer, together) = (timer.clone(), together.clone());
        let (orders, ordered) = mpsc::channel();
        let (tell, spent) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let random = Rng::with_seed(number as u64);
            T::inside(timer.clone(), move || {
                member::<T>(&timer, share, random, hire.work, &together, &ordered, &tell)
            })
        });
        Member { orders, spent, thread }
    };
    let threads: Vec<_> = (0..hire.threads).map(member).collect();
    for member in &threads {
        member.spent.recv().context("a thread ended while it filled the timer")?;
    }
    if let Some(pending) = timer.pending() {
        ensure!(pending == share * hire.threads, "{pending} pending");
    }
    Ok(Box::new(Team { timer, sink, threads }))
}

fn member<T: Timer>(
    timer: &T,
    share: usize,
    mut random: Rng,
    work: Work,
    together: &Barrier,
    orders: &mpsc::Receiver<usize>,
    spent: &mpsc::Sender<f64>,
) -> anyhow::Result<()> {
    let clock = SystemClock::new();
    let mut local = timer.local();
    let mut pending: Vec<_> =
        (0..share).map(|_| T::schedule(&mut local, far(&mut random))).collect();
    T::settle(&mut local);
    spent.send(0.0)?;
    while let Ok(operations) = orders.recv() {
        together.wait();
        let begin = clock.now_ns();
        let mut cancelled = 0;
        for _ in 0..operations {
            cancelled += usize::from(match work {
                Work::ScheduleCancel => T::schedule_cancel(&mut local, TIMEOUT),
                Work::TimeoutReady => T::timeout_ready(&mut local, TIMEOUT),
                Work::Replace => {
                    let place = random.usize(0..share);
                    T::replace(&mut local, &mut pending[place], far(&mut random))
                }
            });
        }
        T::settle(&mut local);
        let took = clock.now_ns() - begin;
        ensure!(cancelled == operations, "{cancelled} of {operations} were cancelled");
        spent.send(took as f64 / operations as f64)?;
    }
    let left = pending.len();
    let cancelled = pending.into_iter().filter_map(|one| T::cancel(&mut local, one).then_some(()));
    ensure!(cancelled.count() == left, "a pending timer had gone");
    T::settle(&mut local);
    Ok(())
}

impl<T: Timer> Crew for Team<T> {
    fn work(&mut self, operations: usize) -> anyhow::Result<f64> {
        for member in &self.threads {
            member.orders.send(operations).ok().context("a thread of the crew is gone")?;
        }
        let spent = self.threads.iter().map(|member| member.spent.recv());
        let spent: Result<Vec<f64>, _> = spent.collect();
        Ok(spent.context("a thread of the crew failed")?.into_iter().fold(0.0, f64::max))
    }

    fn go_home(self: Box<Self>) -> anyhow::Result<()> {
        for Member { orders, thread, .. } in self.threads {
            drop(orders);
            thread.join().ok().context("a thread of the crew panicked")??;
        }
        let (pending, fired) = (self.timer.pending().unwrap_or(0), self.sink.count());
        ensure!(pending == 0, "{pending} are pending after all were cancelled");
        ensure!(fired == 0, "{fired} fired that were an hour away");
        Ok(())
    }
}

pub(crate) fn timers(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    measure(id, run, &timers!(crew, with_closure))
}

pub(crate) fn sleeps(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let mut contenders = timers!(crew, sleeps);
    contenders.retain(|one| cfg!(tokio_unstable) || one.name != TokioSleep::<true>::NAME);
    measure(id, run, &contenders)
}

fn measure(
    id: &'static str,
    run: &mut Run<'_>,
    contenders: &[Contender<Hire, Box<dyn Crew>>],
) -> anyhow::Result<()> {
    let (one_m, operations) = (run.sizes.one_m, run.sizes.operations);
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = match id.rsplit('-').next() {
        Some("100k") => run.sizes.hundred_k,
        Some("1m") => one_m,
        _ => 0,
    };
    let (work, nodes) = match id {
        "random-replace-1m" => (Work::Replace, one_m),
        _ if id.contains("-timeout-") => (Work::TimeoutReady, 0),
        _ => (Work::ScheduleCancel, 0),
    };
    let hire = Hire { threads, pending, work };
    interleaved(id, run, contenders, &[("", hire)], operations, || {
        let random = if nodes > 0 { floor::random_node(nodes, operations) } else { 0.0 };
        floor::schedule_cancel(operations) + random
    })
}
