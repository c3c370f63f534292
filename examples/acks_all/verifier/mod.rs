//! The rest of the program: a whole run. It starts the [load], [watches](watch) it, drains or
//! cancels what still waits, closes the [books], and prints the [report].

pub(crate) mod args;
pub(crate) mod books;
pub(crate) mod load;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod watch;

use std::io::{self, Write};
use std::{process::ExitCode, sync::Arc, thread, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use example_support::{Stop, write_on_usr1};
use timer_core::{Clock, SystemClock};

use crate::Leader;
use crate::partition::FOLLOWERS;
use args::Args;
use books::{Books, PANICKED, STILL_PARKED};
use report::Report;
use text::Text;
use watch::{Progress, State};

/// The follower that can stall.
const FOLLOWER_STALLED: usize = 1;
/// How often the run is shown.
const WATCH: Duration = Duration::from_millis(250);
/// How often the drain is looked at.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// How many of the oldest produces SIGUSR1 shows.
const OLDEST: usize = 10;

/// How long after the last deadline everything must have ended.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// The name of a follower in messages.
fn name(follower: usize) -> String {
    format!("follower {}", follower + 1)
}

/// Does what the command line asks for.
pub(crate) fn main() -> ExitCode {
    start(Args::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn start(args: Args) -> Result<ExitCode> {
    let text = Text::load(args.input.as_deref())?;
    let (linger, interrupted) = (args.linger, Stop::on_signals()?);
    let stage = Stage::new(args)?;
    let server = watch::serve(&stage)?;
    eprintln!(
        "metrics: http://{0}/metrics\nlive page: http://{0}/",
        server.address()
    );
    let asked = Arc::clone(&stage);
    write_on_usr1(move || asked.leader.produces.snapshot(OLDEST).to_string())?;
    let mut progress = Progress::default();
    let report = stage.run(&text, &interrupted, &mut |state| progress.show(state));

    io::stdout()
        .write_all(report.to_string().as_bytes())
        .context("cannot write the table")?;
    for problem in &report.problems {
        eprintln!("wrong: {problem}");
    }
    interrupted.pause(linger);
    Ok(if report.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Everything that a run works with; metrics are read from it meanwhile.
#[derive(Debug)]
pub(crate) struct Stage {
    args: Args,
    leader: Leader,
    books: Books,
    clock: SystemClock,
}

impl Stage {
    /// Where nothing has happened yet, and the clock begins.
    fn new(args: Args) -> Result<Arc<Self>> {
        let leader = Leader::new(args.partitions).context("cannot start the purgatory")?;
        let books = Books::new(args.partitions, args.timeout);
        Ok(Arc::new(Self {
            args,
            leader,
            books,
            clock: SystemClock::new(),
        }))
    }

    /// The time since the beginning.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    /// Sends the lines of `text` until the time is up or `interrupted` is raised. `watch` is shown
    /// the state four times a second.
    fn run(
        self: &Arc<Self>,
        text: &Text,
        interrupted: &Stop,
        watch: &mut dyn FnMut(&State),
    ) -> Report {
        let (producing, replicating) = (&Stop::new(), &Stop::new());
        let produced_for = thread::scope(|threads| {
            for follower in 0..FOLLOWERS {
                threads.spawn(move || load::follow(follower, self, replicating));
            }
            let produce =
                |number| threads.spawn(move || load::produce(number, self, text, producing));
            let producers: Vec<_> = (0..self.args.producers).map(produce).collect();
            self.watch_until(self.args.seconds, WATCH, || false, interrupted, watch);
            producing.raise();
            for (number, producer) in producers.into_iter().enumerate() {
                producer.thread().unpark();
                let panicked = producer.join().is_err();
                self.books
                    .note(PANICKED, panicked.into(), || format!("producer {number}"));
            }
            let produced_for = self.now();
            self.drain(interrupted, watch);
            replicating.raise();
            produced_for
        });
        let problems = self.books.close(&self.leader);
        let produced = State::take(self).produced;
        Report {
            produced_for,
            produced,
            endings: self.books.totals(),
            problems,
        }
    }

    /// After the last record: waits until every produce has ended by itself, as each must soon
    /// after its timeout. On an interrupt, or when that fails, a shutdown ends the rest as
    /// cancelled.
    fn drain(&self, interrupted: &Stop, watch: &mut dyn FnMut(&State)) {
        let waiting = || State::take(self).waiting();
        let mut await_endings = |interrupted: &Stop, patience| {
            let end = self.now() + patience;
            self.watch_until(end, DRAIN_LOOK, || waiting() == 0, interrupted, watch);
        };
        await_endings(interrupted, self.args.timeout + DRAIN_MARGIN);
        if !interrupted.is_raised() {
            self.books.note(STILL_PARKED, waiting(), || {
                format!("{DRAIN_MARGIN:?} after it")
            });
        }
        self.leader.shut_down();
        await_endings(&Stop::new(), DRAIN_MARGIN);
    }

    /// Shows the run until `end`, until it is `over`, which is asked every `look`, or until it is
    /// interrupted.
    fn watch_until(
        &self,
        end: Duration,
        look: Duration,
        over: impl Fn() -> bool,
        interrupted: &Stop,
        watch: &mut dyn FnMut(&State),
    ) {
        let mut show_at = self.now();
        while let Some(left) = end.checked_sub(self.now()).filter(|_| !over()) {
            if self.now() >= show_at {
                watch(&State::take(self));
                show_at += WATCH;
            }
            if interrupted.pause(look.min(left)) {
                return;
            }
        }
    }
}
