//! The run while it goes on: a line a second on standard error, and the metrics of this example
//! beside the purgatory's own.

use std::io::{self, Write};
use std::{fmt::Display, sync::Arc, time::Duration};

use anyhow::Result;
use indicatif::HumanCount;
use metrics::{Unit, counter, describe_counter};
use purgatory_live::{Live, Server};

use super::Stage;
use super::books::Counts;

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";

/// One look at a run. Other threads go on meanwhile, so the figures need not fit together to the
/// last record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Since when the run goes on.
    elapsed: Duration,
    /// A follower does not fetch.
    stalled: bool,
    /// Records sent.
    pub(crate) produced: u64,
    ended: Counts,
}

impl State {
    /// Looks at everything.
    pub(crate) fn take(stage: &Stage) -> Self {
        let (elapsed, partitions) = (stage.now(), &stage.leader.partitions);
        let ended = stage.books.counts();
        Self {
            elapsed,
            stalled: stage.args.stall_left(elapsed).is_some(),
            ended,
            produced: partitions.iter().map(|partition| partition.log.end()).sum(),
        }
    }

    /// Produces that have not ended.
    pub(crate) fn waiting(&self) -> u64 {
        self.produced.saturating_sub(self.ended.ended())
    }

    /// One line; the rate is over the time since the `last` one.
    fn describe(&self, last: Option<State>) -> String {
        let Counts {
            completed, expired, ..
        } = self.ended;
        let last = last.map(|last| (last.elapsed, last.ended.completed));
        let (then, before) = last.unwrap_or_default();
        let span = self.elapsed.saturating_sub(then).as_secs_f64();
        let stalled = if self.stalled {
            "follower 2 stalled, "
        } else {
            ""
        };
        let rate = if span > 0.0 {
            (completed - before) as f64 / span
        } else {
            0.0
        };
        format!(
            "{:5.1} s: {}{} completed/s, {} waiting, {} expired, {} completed",
            self.elapsed.as_secs_f64(),
            stalled,
            HumanCount(rate as u64),
            HumanCount(self.waiting()),
            HumanCount(expired),
            HumanCount(completed),
        )
    }

    /// Publishes the example's metrics.
    fn publish(&self) {
        counter!(PRODUCED).absolute(self.produced);
        let Counts {
            completed,
            expired,
            cancelled,
            ..
        } = self.ended;
        let outcomes = [
            ("completed", completed),
            ("expired", expired),
            ("cancelled", cancelled),
        ];
        for (outcome, count) in outcomes {
            counter!(ENDED, "outcome" => outcome).absolute(count);
        }
    }
}

/// Shows the states of one run, a line a second.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Option<State>,
}

impl Progress {
    pub(crate) fn show(&mut self, state: &State) {
        if state.elapsed.as_secs() > self.last.map_or(0, |last| last.elapsed.as_secs()) {
            // Nobody may be listening; the run goes on all the same.
            let _ = writeln!(io::stderr(), "{}", state.describe(self.last));
            self.last = Some(*state);
        }
    }
}

/// Serves the metrics, and the live page.
pub(crate) fn serve(stage: &Arc<Stage>) -> Result<Server> {
    let live = Live::new().purgatory_with(&stage.leader.produces, Display::fmt);
    let looked_at = Arc::clone(stage);
    let server = example_support::serve(stage.args.metrics_addr, &live, move || {
        looked_at.leader.produces.publish();
        State::take(&looked_at).publish();
    })?;
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
