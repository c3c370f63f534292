//! Shows a run while it goes on: a line a second on standard error, and the metrics of this example
//! beside the purgatory's own.

use std::io::{self, Write};
use std::{fmt::Debug, fmt::Display, sync::Arc, time::Duration};

use anyhow::Result;
use indicatif::HumanCount;
use metrics::{Unit, counter, describe_counter};
use purgatory_live::{Live, Server};
use timer_core::Timer;

use super::Stage;
use super::audit::Counts;
use crate::kafka::Kafka;
use crate::replica_sets::InSyncSets;

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";

/// The longest time that a shutdown waits for answers that are being given.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// The state of a run at one look. Other threads go on meanwhile, so the figures need not fit
/// together to the last record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// The time since the run began.
    elapsed: Duration,
    /// A follower is stalled: it does not fetch.
    stalled: bool,
    /// Records sent.
    pub(crate) produced: u64,
    ended: Counts,
}

impl State {
    /// Reads the state of a run.
    pub(crate) fn take(stage: &Stage) -> Self {
        let elapsed = stage.now();
        // Count the endings first: a produce that ends meanwhile then counts as waiting, so the
        // number of waiting produces cannot fall below zero.
        let ended = stage.audit.counts();
        let mut produced = 0;
        for partition in &stage.partitions {
            produced += partition.produced();
        }
        Self {
            elapsed,
            stalled: stage.args.stall_remaining(elapsed).is_some(),
            produced,
            ended,
        }
    }

    /// Returns the number of produces that have not ended.
    pub(crate) fn waiting(&self) -> u64 {
        self.produced.saturating_sub(self.ended.ended())
    }

    /// Describes the run in one line; the rate is over the time since the `last` state.
    fn describe(&self, last: Option<State>) -> String {
        // The first line counts from the beginning.
        let since = last.map_or(Duration::ZERO, |last| last.elapsed);
        let before = last.map_or(0, |last| last.ended.completed);
        let seconds = self.elapsed.saturating_sub(since).as_secs_f64();
        let completed = self.ended.completed - before;
        let rate = if seconds > 0.0 {
            completed as f64 / seconds
        } else {
            0.0
        };
        let stalled = if self.stalled {
            "follower 2 stalled, "
        } else {
            ""
        };
        format!(
            "{:5.1} s: {}{} completed/s, {} waiting, {} expired, {} completed",
            self.elapsed.as_secs_f64(),
            stalled,
            HumanCount(rate as u64),
            HumanCount(self.waiting()),
            HumanCount(self.ended.expired),
            HumanCount(self.ended.completed),
        )
    }

    /// Publishes the example's metrics.
    fn publish(&self) {
        // Totals of one run in one process: `absolute` is right, as nothing else counts under these
        // names.
        counter!(PRODUCED).absolute(self.produced);
        counter!(ENDED, "outcome" => "completed").absolute(self.ended.completed);
        counter!(ENDED, "outcome" => "expired").absolute(self.ended.expired);
        counter!(ENDED, "outcome" => "cancelled").absolute(self.ended.cancelled);
    }
}

/// Shows the states of one run, a line a second, and keeps the page's history of it.
#[derive(Debug)]
pub(crate) struct Progress {
    page: Live,
    last: Option<State>,
}

impl Progress {
    pub(crate) fn new(page: Live) -> Self {
        Self { page, last: None }
    }

    pub(crate) fn show(&mut self, state: &State) {
        let shown_second = self.last.map_or(0, |last| last.elapsed.as_secs());
        if state.elapsed.as_secs() > shown_second {
            // Standard error may be closed; the run goes on all the same.
            let _ = writeln!(io::stderr(), "{}", state.describe(self.last));
            self.last = Some(*state);
            self.page.record();
        }
    }
}

/// Produces that wait, in either way: shows them and shuts them down.
pub(crate) trait Observed: Debug {
    /// Adds the produces to the page, which shows their keys by `Display`.
    fn show(&self, page: Live) -> Live;

    /// Describes the produces as a whole, and the `oldest` of them one by one.
    fn snapshot(&self, oldest: usize) -> String;

    /// Cancels the produces that still wait, and refuses later ones.
    fn shut_down(&self);
}

impl Observed for Kafka {
    fn show(&self, page: Live) -> Live {
        page.purgatory_with(&self.produces, Display::fmt)
    }

    fn snapshot(&self, oldest: usize) -> String {
        self.produces.snapshot(oldest).to_string()
    }

    fn shut_down(&self) {
        self.produces.shutdown(SHUTDOWN_WITHIN);
    }
}

impl Observed for InSyncSets {
    fn show(&self, page: Live) -> Live {
        page.replica_sets_with(&self.sets, Display::fmt)
    }

    fn snapshot(&self, oldest: usize) -> String {
        self.sets.waits().snapshot(oldest).to_string()
    }

    fn shut_down(&self) {
        self.sets.waits().shutdown(SHUTDOWN_WITHIN);
    }
}

/// Makes the live page of a run.
pub(crate) fn page(stage: &Stage) -> Result<Live> {
    Ok(stage.acks.show(Live::new()).timer(&Timer::shared()?))
}

/// Serves the metrics, and the live page.
pub(crate) fn serve(stage: &Arc<Stage>, page: &Live) -> Result<Server> {
    let timer = Timer::shared()?;
    let published = Arc::clone(stage);
    let publish = move || {
        timer.publish(); // with the purgatories on it
        State::take(&published).publish();
    };
    let server = example_support::serve(stage.args.metrics_addr, page, publish)?;
    // Descriptions need the recorder, which `serve` has installed.
    describe_counter!(
        PRODUCED,
        Unit::Count,
        "Records that the producers have sent"
    );
    describe_counter!(
        ENDED,
        Unit::Count,
        "Records whose produce has ended, by outcome"
    );
    Ok(server)
}
