//! A whole run: starts the threads, watches over them, drains or cancels what still waits, and
//! closes the books.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_utils::sync::Parker;

use crate::args::Args;
use crate::audit::Audit;
use crate::books::{Books, Fault};
use crate::follower::Follower;
use crate::leader;
use crate::pacer::Pacer;
use crate::partition::Cluster;
use crate::produce::{ProducePurgatory, Session};
use crate::producer::Producer;
use crate::report::Report;
use crate::slots::Slots;
use crate::snapshot::{Phase, Snapshot, State};
use crate::text::Text;
use crate::time::Clock;
use example_support::Stop;

/// How often the watcher is told.
const WATCH: Duration = Duration::from_millis(250);
/// How often the drain is looked at.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// How long after the last deadline everything must have ended.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// Runs what `args` ask for over the lines of `text` until its time is up or `interrupted` is
/// raised. `watch` is shown the state of the run four times a second, and once at the end.
pub fn run(
    args: &Args,
    stage: Stage,
    text: Text,
    interrupted: &Stop,
    watch: &mut dyn FnMut(&Snapshot),
) -> Report {
    Run { args, stage, clock: Clock::start(), interrupted, watch }.run(&Arc::new(text))
}

/// What a run is about, and others may look at meanwhile.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The leader and its followers.
    pub cluster: Arc<Cluster>,
    /// How the operations ended.
    pub books: Arc<Books>,
    /// Where the produces wait.
    pub purgatory: ProducePurgatory,
}

impl Stage {
    /// Where nothing has happened yet.
    ///
    /// # Errors
    /// When the purgatory's timer gets no thread.
    pub fn new(args: &Args) -> Result<Self> {
        let purgatory = ProducePurgatory::new("produce").context("cannot start the purgatory")?;
        let cluster = Arc::new(Cluster::new(args.partitions, args.isr_shrink_after));
        Ok(Self { cluster, books: Arc::new(Books::new(args.partitions)), purgatory })
    }
}

struct Run<'run> {
    args: &'run Args,
    stage: Stage,
    clock: Clock,
    interrupted: &'run Stop,
    watch: &'run mut dyn FnMut(&Snapshot),
}

impl Run<'_> {
    fn run(&mut self, text: &Arc<Text>) -> Report {
        let (producing, replicating) = (&Stop::new(), &Stop::new());
        let (args, clock, stall) = (self.args, self.clock, self.args.stall());
        let Stage { cluster, books, purgatory } = &self.stage.clone();
        let mut audit = Audit::new(books);

        let produced_for = thread::scope(|replicas| {
            // However a scope is left, its threads are told to end: it cannot hang on a panic.
            let _end_replicating = Defer(|| _ = replicating.raise());
            let shrink_after = args.isr_shrink_after;
            let audit = &mut audit;
            replicas.spawn(move || {
                leader::run(cluster, clock, shrink_after, purgatory, audit, replicating);
            });
            for (number, lag) in args.follower_lags().into_iter().enumerate() {
                let follower = Follower { number, cluster, clock, lag, stall };
                replicas.spawn(|| follower.run(purgatory, replicating));
            }
            let producers: Vec<_> = (0..args.producers).map(|n| self.producer(n, text)).collect();
            let sessions: Vec<_> = producers.iter().map(|one| Arc::clone(&one.session)).collect();
            thread::scope(|scope| {
                let _end_producing = Defer(|| {
                    producing.raise();
                    sessions.iter().for_each(|session| session.slots.wake());
                });
                for producer in producers {
                    scope.spawn(|| producer.run(purgatory, producing));
                }
                self.watch_until(args.seconds);
            });
            let produced_for = clock.now();
            self.drain();
            produced_for
        });

        audit.last_pass(cluster);
        let problems = books.close(cluster);
        self.show(Phase::Done);
        Report { produced_for, produced: cluster.produced(), endings: books.totals(), problems }
    }

    fn producer(&self, number: u16, text: &Arc<Text>) -> Producer {
        let parker = Parker::new();
        let session = Session {
            cluster: Arc::clone(&self.stage.cluster),
            books: Arc::clone(&self.stage.books),
            slots: Slots::new(self.args.in_flight as usize, &parker),
            clock: self.clock,
            timeout: self.args.timeout,
        };
        let Args { producers, rate, .. } = *self.args;
        let pacer = Pacer::new((rate > 0).then_some(rate), number, producers);
        let (session, text) = (Arc::new(session), Arc::clone(text));
        Producer { number, producers, session, text, pacer, parker }
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
        self.await_endings(self.interrupted, self.args.timeout + DRAIN_MARGIN);
        let left = self.waiting();
        if left > 0 && !self.interrupted.is_raised() {
            let faults = &self.stage.books.faults;
            faults.note(Fault::StillParked, left, || format!("{DRAIN_MARGIN:?} after it"));
        }
        self.stage.purgatory.shutdown();
        self.await_endings(&Stop::new(), DRAIN_MARGIN);
    }

    fn await_endings(&mut self, interrupted: &Stop, patience: Duration) {
        let give_up = self.clock.now() + patience;
        let mut show_at = self.clock.now() + WATCH;
        while self.waiting() > 0 && self.clock.now() < give_up && !interrupted.pause(DRAIN_LOOK) {
            if self.clock.now() >= show_at {
                self.show(Phase::Draining);
                show_at += WATCH;
            }
        }
    }

    fn waiting(&self) -> u64 {
        let Stage { cluster, books, .. } = &self.stage;
        cluster.produced().saturating_sub(books.counts().ended())
    }

    fn show(&mut self, phase: Phase) {
        let state = State::take(&self.stage.cluster, &self.stage.books);
        let elapsed = self.clock.now();
        let stall = self.args.stall().filter(|stall| stall.left(elapsed).is_some());
        let stalled = stall.map(|stall| stall.follower);
        (self.watch)(&Snapshot { phase, elapsed, stalled, state });
    }
}

/// Calls its function when it is dropped.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
