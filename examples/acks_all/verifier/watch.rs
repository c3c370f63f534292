//! The run while it goes on: progress on standard error, a line a second; and the metrics of this
//! example beside the purgatory's own.

use std::io::{self, Write};
use std::{fmt::Display, sync::Arc, time::Duration};

use anyhow::Result;
use indicatif::HumanCount;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use purgatory_live::{Live, Server};

use super::books::Counts;
use super::{FOLLOWER_STALLED, Stage, name};
use crate::partition::FOLLOWERS;

/// How many replicas a partition has.
const REPLICAS: usize = FOLLOWERS + 1;

const PRODUCED: &str = "acks_all_records_produced_total";
const ENDED: &str = "acks_all_records_ended_total";
const IN_SYNC: &str = "acks_all_in_sync_replicas";
const LAG: &str = "acks_all_follower_lag_records";

/// One look at a run. Other threads go on meanwhile, so the figures need not fit together to the
/// last record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Since when the run goes on.
    elapsed: Duration,
    /// Nobody produces any more.
    draining: bool,
    /// A follower does not fetch.
    stalled: bool,
    /// Records sent.
    pub(crate) produced: u64,
    ended: Counts,
    /// The smallest in-sync set of any partition, with the leader.
    pub(crate) in_sync_min: usize,
    /// How many records each follower is behind, over all partitions, as the leader knows it.
    pub(crate) lag: [u64; FOLLOWERS],
}

impl State {
    /// Looks at everything.
    pub(crate) fn take(stage: &Stage) -> Self {
        let (elapsed, partitions) = (stage.now(), &stage.leader.partitions);
        let ended = stage.books.counts();
        let lags = partitions.iter().map(|partition| partition.lag());
        let in_sync = partitions.iter().map(|partition| 1 + partition.in_sync().count());
        Self {
            elapsed,
            draining: elapsed >= stage.args.seconds,
            stalled: stage.args.stall_left(elapsed).is_some(),
            ended,
            produced: partitions.iter().map(|partition| partition.log_end()).sum(),
            in_sync_min: in_sync.min().unwrap_or(REPLICAS),
            lag: lags.fold([0; FOLLOWERS], |[one, two], lag| [one + lag[0], two + lag[1]]),
        }
    }

    /// Produces that have not ended.
    pub(crate) fn waiting(&self) -> u64 {
        self.produced.saturating_sub(self.ended.ended())
    }

    /// What holds up the produces, or lets them go on without a follower; empty when all is well.
    fn unusual(&self) -> String {
        let mut said = String::new();
        if self.stalled {
            said += &format!("{} stalled, ", name(FOLLOWER_STALLED));
        }
        if self.in_sync_min < REPLICAS {
            said += &format!("{} of {REPLICAS} replicas in sync, ", self.in_sync_min);
        }
        said + if self.draining { "draining, " } else { "" }
    }

    /// One line; the rate is over the time since the `last` one. What is unusual comes right after
    /// the time: a narrow terminal cuts the end.
    fn describe(&self, last: Option<State>) -> String {
        let Counts { completed, expired, .. } = self.ended;
        let last = last.map(|last| (last.elapsed, last.ended.completed));
        let (then, before) = last.unwrap_or_default();
        let span = self.elapsed.saturating_sub(then).as_secs_f64();
        let rate = if span > 0.0 { (completed - before) as f64 / span } else { 0.0 };
        let [one, two] = self.lag.map(HumanCount);
        format!(
            "{:5.1} s: {}{} completed/s, {} waiting, {} expired, {} completed, followers behind by {one} and {two}",
            self.elapsed.as_secs_f64(),
            self.unusual(),
            HumanCount(rate as u64),
            HumanCount(self.waiting()),
            HumanCount(expired),
            HumanCount(completed),
        )
    }

    /// Publishes the example's metrics.
    fn publish(&self) {
        counter!(PRODUCED).absolute(self.produced);
        let Counts { completed, expired, cancelled, .. } = self.ended;
        let outcomes = [("completed", completed), ("expired", expired), ("cancelled", cancelled)];
        for (outcome, count) in outcomes {
            counter!(ENDED, "outcome" => outcome).absolute(count);
        }
        gauge!(IN_SYNC).set(self.in_sync_min as f64);
        for (follower, lag) in self.lag.into_iter().enumerate() {
            gauge!(LAG, "follower" => (follower + 1).to_string()).set(lag as f64);
        }
    }
}

/// Shows the states of one run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Option<State>,
}

impl Progress {
    /// Shows where the run is, once a second.
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
    describe_metrics();
    Ok(server)
}

fn describe_metrics() {
    describe_counter!(PRODUCED, Unit::Count, "Records that the producers have sent");
    describe_counter!(ENDED, Unit::Count, "Records whose produce has ended, by outcome");
    describe_gauge!(IN_SYNC, Unit::Count, "Replicas in sync, in the partition that has the fewest");
    let lag = "Records that a follower is behind the leader, over all partitions";
    describe_gauge!(LAG, Unit::Count, lag);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn state() -> State {
        State {
            elapsed: Duration::from_millis(2500),
            draining: false,
            stalled: false,
            ended: Counts { completed: 12_000, expired: 40, cancelled: 5, ..Counts::default() },
            produced: 12_345,
            in_sync_min: REPLICAS,
            lag: [0, 1300],
        }
    }

    #[test]
    fn a_line_says_where_the_run_is_and_what_is_unusual() {
        let ended = Counts { completed: 4000, ..Counts::default() };
        let last = State { elapsed: Duration::from_millis(1500), ended, ..state() };
        let line = "  2.5 s: 8,000 completed/s, 300 waiting, 40 expired, 12,000 completed, \
                    followers behind by 0 and 1,300";
        assert_eq!(state().describe(Some(last)), line);
        let unusual = State { stalled: true, in_sync_min: 2, draining: true, ..state() };
        let line = "  2.5 s: follower 2 stalled, 2 of 3 replicas in sync, draining, 4,800 ";
        assert!(unusual.describe(None).starts_with(line));
    }

    #[test]
    fn every_metric_is_described_and_has_its_value() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe_metrics();
            state().publish();
        });
        let page = recorder.handle().render();
        for (name, sample) in [
            (PRODUCED, "acks_all_records_produced_total 12345"),
            (ENDED, "acks_all_records_ended_total{outcome=\"expired\"} 40"),
            (IN_SYNC, "acks_all_in_sync_replicas 3"),
            (LAG, "acks_all_follower_lag_records{follower=\"2\"} 1300"),
        ] {
            let described = page.contains(&format!("# HELP {name} "));
            assert!(described && page.contains(sample), "{sample} is not in\n{page}");
        }
    }
}
