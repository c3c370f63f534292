//! The rest of the program. A run starts the [load], [watches](watch) it, drains or cancels the
//! produces that still wait, finishes the [audit], and prints the [report].

pub(crate) mod args;
pub(crate) mod audit;
pub(crate) mod load;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod watch;

use std::io::{self, Write};
use std::thread::{self, ScopedJoinHandle};
use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use example_support::{Stop, say, write_on_usr1};
use timer_core::{Clock, SystemClock};

use crate::AcksAll;
use crate::kafka::Kafka;
use crate::partition::{FOLLOWERS, Partition};
use crate::replica_sets::InSyncSets;
use args::{Args, By};
use audit::{Audit, CANCELLED, PANICKED, STILL_PARKED};
use report::Report;
use text::Text;
use watch::{Progress, State};

/// The follower that can stall and fall out.
const FOLLOWER_STALLED: usize = 1;
/// The time between two lines about the run.
const WATCH: Duration = Duration::from_millis(250);
/// The time between two looks at the drain.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// The number of oldest produces that SIGUSR1 shows.
const OLDEST: usize = 10;

/// The time after the last deadline within which every produce must end.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// Returns the name of a follower in messages.
fn name(follower: usize) -> String {
    format!("follower {}", follower + 1)
}

/// Does what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let args = Args::parse().checked().unwrap_or_else(|error| error.exit());
    match start(args) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> Result<ExitCode> {
    // Do everything that can fail before the first record.
    let text = Text::load(args.input.as_deref())?;
    let linger = args.linger;
    let interrupted = Stop::on_signals()?;
    let stage = Stage::new(args)?;
    let page = watch::page(&stage)?;
    let server = watch::serve(&stage, &page)?;
    let address = server.address();
    say(format_args!(
        "metrics: http://{address}/metrics\nlive page: http://{address}/"
    ));
    let shown = Arc::clone(&stage);
    write_on_usr1(move || shown.acks.snapshot(OLDEST))?;

    let mut progress = Progress::new(page);
    let report = stage.run(&text, &interrupted, &mut |state| progress.show(state));

    // Standard output gets the table only; faults go to standard error.
    let table = report.to_string();
    let written = io::stdout().write_all(table.as_bytes());
    written.context("cannot write the table")?;
    for problem in &report.problems {
        say(format_args!("wrong: {problem}"));
    }
    interrupted.pause(linger);
    if report.problems.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// The state of a run; the metrics are read from it meanwhile.
#[derive(Debug)]
pub(crate) struct Stage {
    args: Args,
    partitions: Vec<Partition>,
    acks: Box<dyn AcksAll>,
    audit: Audit,
    clock: SystemClock,
}

impl Stage {
    /// Makes a stage on which nothing has happened yet, and starts its clock.
    fn new(args: Args) -> Result<Arc<Self>> {
        let partitions: Vec<_> = (0..args.partitions).map(Partition::new).collect();
        let acks: Result<Box<dyn AcksAll>, _> = match args.by {
            By::Kafka => Kafka::new().map(|kafka| Box::new(kafka) as _),
            By::ReplicaSets => InSyncSets::new(&partitions).map(|sets| Box::new(sets) as _),
        };
        let acks = acks.context("cannot start the purgatory")?;
        let audit = Audit::new(args.partitions, args.timeout);
        Ok(Arc::new(Self {
            args,
            partitions,
            acks,
            audit,
            clock: SystemClock::new(),
        }))
    }

    /// Returns the time since the stage was made.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    /// Sends the lines of `text` until `--seconds` have passed or `interrupted` is raised. Calls
    /// `watch` with the state four times a second.
    fn run(
        self: &Arc<Self>,
        text: &Text,
        interrupted: &Stop,
        watch: &mut dyn FnMut(&State),
    ) -> Report {
        let producing = &Stop::new();
        let replicating = &Stop::new();
        let produced_for = thread::scope(|threads| {
            for follower in 0..FOLLOWERS {
                threads.spawn(move || load::follow(follower, self, replicating));
            }
            let mut producers = Vec::new();
            for number in 0..self.args.producers {
                producers.push(threads.spawn(move || load::produce(number, self, text, producing)));
            }
            self.watch_until(self.args.seconds, WATCH, || false, interrupted, watch);

            // Stop the producers first; the followers go on until the last produces have ended.
            producing.raise();
            self.join(producers);
            let produced_for = self.now();
            self.drain(interrupted, watch);
            replicating.raise();
            produced_for
        });
        let problems = self.audit.finish(&self.partitions);
        Report {
            produced_for,
            produced: State::take(self).produced,
            endings: self.audit.totals(),
            problems,
        }
    }

    /// Waits for the producers, and reports those that panicked.
    fn join(&self, producers: Vec<ScopedJoinHandle<'_, ()>>) {
        for (number, producer) in producers.into_iter().enumerate() {
            producer.thread().unpark();
            if producer.join().is_err() {
                self.audit
                    .report(PANICKED, 1, || format!("producer {number}"));
            }
        }
    }

    /// Waits, after the last record, until every produce has ended by itself, as each must soon
    /// after its timeout. If some do not, or on an interrupt, a shutdown cancels the rest.
    fn drain(&self, interrupted: &Stop, watch: &mut dyn FnMut(&State)) {
        let patience = self.args.timeout.saturating_add(DRAIN_MARGIN);
        self.await_endings(patience, interrupted, watch);
        if !interrupted.is_raised() {
            let waiting = State::take(self).waiting();
            let case = || format!("{DRAIN_MARGIN:?} after it");
            self.audit.report(STILL_PARKED, waiting, case);
        }
        self.acks.shut_down();
        self.await_endings(DRAIN_MARGIN, &Stop::new(), watch);
        if interrupted.is_raised() {
            self.audit.forgive(CANCELLED);
        }
    }

    /// Shows the run until no produce waits, for `patience` at most.
    fn await_endings(&self, patience: Duration, interrupted: &Stop, watch: &mut dyn FnMut(&State)) {
        let end = self.now().saturating_add(patience);
        let over = || State::take(self).waiting() == 0;
        self.watch_until(end, DRAIN_LOOK, over, interrupted, watch);
    }

    /// Shows the run until `end`, until it is `over`, or until it is interrupted. Calls `over`
    /// every `look`.
    fn watch_until(
        &self,
        end: Duration,
        look: Duration,
        over: impl Fn() -> bool,
        interrupted: &Stop,
        watch: &mut dyn FnMut(&State),
    ) {
        let mut show_at = self.now();
        while let Some(remaining) = end.checked_sub(self.now()) {
            if over() {
                return;
            }
            // Show the run four times a second, however often `over` is called.
            if self.now() >= show_at {
                watch(&State::take(self));
                show_at += WATCH;
            }
            if interrupted.pause(look.min(remaining)) {
                return;
            }
        }
    }
}
