//! A whole run: starts the threads, watches over them, drains or cancels what still waits, and
//! closes the books.

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_utils::sync::Parker;

use crate::audit::Audit;
use crate::books::Books;
use crate::faults::Fault;
use crate::follower::Follower;
use crate::in_sync::Replica;
use crate::leader::Leader;
use crate::pacer::Pacer;
use crate::partition::{Cluster, PartitionKey};
use crate::plan::Plan;
use crate::produce::{ProducePurgatory, Session};
use crate::producer::Producer;
use crate::report::Report;
use crate::slots::Slots;
use crate::snapshot::{Phase, Snapshot, State};
use crate::stop::Stop;
use crate::text::Text;
use crate::time::Clock;

/// How often the watcher is told.
const WATCH: Duration = Duration::from_millis(250);
/// How often the drain is looked at.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// How long after the last deadline everything must have ended.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// Runs `plan` over the lines of `text` until its time is up or `interrupted` is raised. `watch` is
/// shown the state of the run four times a second, and once at the end.
pub fn run(
    plan: &Plan,
    stage: Stage,
    text: Text,
    interrupted: &Stop,
    watch: &mut dyn FnMut(&Snapshot),
) -> Result<Report> {
    Run { plan, stage, clock: Clock::start(), interrupted, watch }.run(Arc::new(text))
}

/// What a run is about, and others may look at meanwhile.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The leader and its followers.
    pub cluster: Arc<Cluster>,
    /// What happened to each record.
    pub books: Arc<Books>,
    /// Where the produces wait.
    pub purgatory: ProducePurgatory,
}

impl Stage {
    /// Where nothing has happened yet.
    ///
    /// # Errors
    /// When the purgatory's timer gets no thread.
    pub fn new(plan: &Plan) -> Result<Self> {
        let purgatory = ProducePurgatory::new("produce").context("cannot start the purgatory")?;
        let cluster = Cluster::new(plan.partitions, plan.isr_shrink_after, Duration::ZERO);
        let books = Books::new(plan.producers, plan.partitions);
        Ok(Self { cluster: Arc::new(cluster), books: Arc::new(books), purgatory })
    }
}

struct Run<'run> {
    plan: &'run Plan,
    stage: Stage,
    clock: Clock,
    interrupted: &'run Stop,
    watch: &'run mut dyn FnMut(&Snapshot),
}

impl Run<'_> {
    fn run(&mut self, text: Arc<Text>) -> Result<Report> {
        let (producing, replicating) = (Stop::new(), Stop::new());
        let producers = self.producers(text);
        let sessions: Vec<_> =
            producers.iter().map(|producer| Arc::clone(&producer.session)).collect();
        let end_producing = || {
            producing.raise();
            sessions.iter().for_each(|session| session.slots.wake());
        };
        let Stage { cluster, books, purgatory } = self.stage.clone();

        let (produced_for, audit) = thread::scope(|scope| {
            // However this scope is left, its threads are told to end: it cannot hang on an error
            // half-way.
            let _end_all = Defer(|| {
                end_producing();
                replicating.raise();
            });
            let leader = self.leader(&cluster, &books);
            let leader =
                spawn(scope, "leader".to_owned(), || leader.run(&purgatory, &replicating))?;
            let mut followers = Vec::new();
            for follower in self.followers(&cluster) {
                let (name, purgatory, stop) = (follower.replica.name(), &purgatory, &replicating);
                followers.push(spawn(scope, name, move || follower.run(purgatory, stop))?);
            }
            let mut running = Vec::new();
            for producer in producers {
                let (name, purgatory, stop) =
                    (format!("producer {}", producer.number), &purgatory, &producing);
                running.push(spawn(scope, name, move || producer.run(purgatory, stop))?);
            }

            self.watch_until(self.plan.duration);
            end_producing();
            for producer in running {
                join(producer, &books);
            }
            let produced_for = self.clock.now();
            self.drain();
            replicating.raise();
            for follower in followers {
                join(follower, &books);
            }
            anyhow::Ok((produced_for, join(leader, &books)))
        })?;

        audit.unwrap_or_else(|| Audit::new(&cluster)).last_pass(&cluster, &books);
        let problems =
            books.close(|partition| cluster.partition(PartitionKey(partition)).members());
        self.show(Phase::Done);
        Ok(Report { produced_for, produced: books.produced(), endings: books.totals(), problems })
    }

    fn producers(&self, text: Arc<Text>) -> Vec<Producer> {
        let producer = |number| {
            let parker = Parker::new();
            let session = Session {
                cluster: Arc::clone(&self.stage.cluster),
                books: Arc::clone(&self.stage.books),
                slots: Slots::new(self.plan.in_flight, &parker),
                clock: self.clock,
                timeout: self.plan.timeout,
            };
            Producer {
                number,
                producers: self.plan.producers,
                session: Arc::new(session),
                text: Arc::clone(&text),
                pacer: Pacer::new(self.plan.rate, number, self.plan.producers),
                parker,
            }
        };
        (0..self.plan.producers).map(producer).collect()
    }

    fn leader<'a>(&self, cluster: &'a Cluster, books: &'a Books) -> Leader<'a> {
        Leader { cluster, books, clock: self.clock, isr_shrink_after: self.plan.isr_shrink_after }
    }

    fn followers<'a>(&self, cluster: &'a Cluster) -> Vec<Follower<'a>> {
        let (clock, stall) = (self.clock, self.plan.stall);
        let follower = |(replica, lag)| Follower { replica, cluster, clock, lag, stall };
        Replica::followers().zip(self.plan.follower_lag).map(follower).collect()
    }

    /// Shows the run to the watcher until `end`, or until it is interrupted.
    fn watch_until(&mut self, end: Duration) {
        loop {
            self.show(Phase::Producing);
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() || self.interrupted.pause(left.min(WATCH)) {
                return;
            }
        }
    }

    /// After the last record: waits until every operation has ended by itself, as each must soon
    /// after its timeout. On an interrupt, or when that fails, a shutdown of the purgatory ends the
    /// rest as cancelled.
    fn drain(&mut self) {
        let give_up = self.clock.now() + self.plan.timeout + DRAIN_MARGIN;
        self.await_endings(Some(self.interrupted), give_up);
        let left = self.waiting();
        if left > 0 && !self.interrupted.is_raised() {
            let faults = &self.stage.books.faults;
            faults.note_many(Fault::StillParked, left, || format!("{DRAIN_MARGIN:?} after it"));
        }
        self.stage.purgatory.shutdown();
        self.await_endings(None, self.clock.now() + DRAIN_MARGIN);
    }

    fn await_endings(&mut self, interrupted: Option<&Stop>, give_up: Duration) {
        let never = Stop::new();
        let bell = interrupted.unwrap_or(&never);
        let mut show_at = self.clock.now() + WATCH;
        while self.waiting() > 0 && self.clock.now() < give_up && !bell.pause(DRAIN_LOOK) {
            if self.clock.now() >= show_at {
                self.show(Phase::Draining);
                show_at += WATCH;
            }
        }
    }

    fn waiting(&self) -> u64 {
        let books = &self.stage.books;
        books.produced().saturating_sub(books.counts().ended())
    }

    fn show(&mut self, phase: Phase) {
        let state = State::take(&self.stage.cluster, &self.stage.books);
        let (elapsed, duration) = (self.clock.now(), self.plan.duration);
        let stall = self.plan.stall.filter(|stall| stall.left(elapsed).is_some());
        let stalled = stall.map(|stall| stall.follower);
        (self.watch)(&Snapshot { phase, elapsed, duration, stalled, state });
    }
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let context = format!("cannot start the thread of {name}");
    thread::Builder::new().name(name).spawn_scoped(scope, work).context(context)
}

/// What the thread returned; a panic goes into the books.
fn join<T>(handle: ScopedJoinHandle<'_, T>, books: &Books) -> Option<T> {
    let name = handle.thread().name().unwrap_or("a thread").to_owned();
    let said = |panic: Box<dyn Any + Send>| {
        books.faults.note(Fault::Panicked, || format!("{name}: {}", message(panic.as_ref())))
    };
    handle.join().map_err(said).ok()
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Calls its function when it is dropped.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panicked_thread_is_in_the_books_with_its_message() {
        let books = Books::new(1, 1);
        thread::scope(|scope| {
            let name = "follower 9".to_owned();
            let handle = spawn(scope, name, || panic!("out of {}", "ink")).unwrap();
            let returned: Option<()> = join(handle, &books);
            assert_eq!(returned, None);
        });
        assert_eq!(books.faults.problems()[0].first, "follower 9: out of ink");
    }
}
