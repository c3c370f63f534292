//! Progress while the run goes on, on standard error: a bar on a terminal, a line a second anywhere
//! else.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::in_sync::{REPLICAS, name};
use crate::snapshot::{Phase, Snapshot};

const LINE_EVERY: Duration = Duration::from_secs(1);

/// Shows one run's snapshots.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    line_due: Duration,
    last: Option<(Duration, u64)>,
}

impl Progress {
    /// A bar if standard error is a terminal, lines if not.
    pub fn new(duration: Duration) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(duration.as_millis() as u64);
            let style = ProgressStyle::with_template("{spinner} [{bar:16}] {wide_msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, line_due: LINE_EVERY, last: None }
    }

    /// Shows where the run is. The end is not shown: the table tells it.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let done = snapshot.phase == Phase::Done;
        if let Some(bar) = &self.bar {
            if done {
                bar.finish_and_clear();
                return;
            }
            bar.set_position(snapshot.elapsed.as_millis() as u64);
            bar.set_message(describe(snapshot, self.last));
        } else if snapshot.elapsed >= self.line_due && !done {
            self.line_due = Duration::from_secs(snapshot.elapsed.as_secs()) + LINE_EVERY;
            // Nobody may be listening; the run goes on all the same.
            let _ = writeln!(io::stderr(), "{}", describe(snapshot, self.last));
        } else {
            return;
        }
        self.last = Some((snapshot.elapsed, snapshot.state.ended.completed));
    }
}

/// One line; the rate is over the time since the `last` one. What is unusual comes right after the
/// time: a narrow terminal cuts the end.
fn describe(now: &Snapshot, last: Option<(Duration, u64)>) -> String {
    let state = &now.state;
    let ended = &state.ended;
    let (then, completed) = last.unwrap_or_default();
    let span = now.elapsed.saturating_sub(then).as_secs_f64();
    let rate = if span > 0.0 { (ended.completed - completed) as f64 / span } else { 0.0 };
    let [one, two] = state.lag.map(HumanCount);
    format!(
        "{:5.1} s: {}{} completed/s, {} waiting, {} expired, {} completed, followers behind by {one} and {two}",
        now.elapsed.as_secs_f64(),
        unusual(now),
        HumanCount(rate as u64),
        HumanCount(state.waiting()),
        HumanCount(ended.expired),
        HumanCount(ended.completed),
    )
}

/// What holds up the produces, or lets them go on without a follower; empty when all is well.
fn unusual(now: &Snapshot) -> String {
    let in_sync = now.state.in_sync_min;
    let mut said = String::new();
    if let Some(stalled) = now.stalled {
        said += &format!("{} stalled, ", name(stalled));
    }
    if in_sync < REPLICAS {
        said += &format!("{in_sync} of {REPLICAS} replicas in sync, ");
    }
    if now.phase == Phase::Draining {
        said += "draining, ";
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Counts;
    use crate::snapshot::State;

    fn snapshot() -> Snapshot {
        Snapshot {
            phase: Phase::Producing,
            elapsed: Duration::from_millis(2500),
            stalled: None,
            state: State {
                produced: 12_345,
                ended: Counts { completed: 12_000, expired: 40, cancelled: 5, bytes_completed: 0 },
                in_sync_min: 3,
                lag: [0, 1300],
            },
        }
    }

    #[test]
    fn a_line_says_where_the_run_is() {
        let expected = "  2.5 s: 8,000 completed/s, 300 waiting, 40 expired, 12,000 completed, \
                        followers behind by 0 and 1,300";
        let last = Some((Duration::from_millis(1500), 4000));
        assert_eq!(describe(&snapshot(), last), expected);
    }

    #[test]
    fn a_line_names_the_follower_that_stalls() {
        let stalled = Snapshot { stalled: Some(1), ..snapshot() };
        assert_eq!(unusual(&stalled), "follower 2 stalled, ");
        let left = State { in_sync_min: 2, ..stalled.state };
        let left = Snapshot { state: left, ..stalled };
        assert_eq!(unusual(&left), "follower 2 stalled, 2 of 3 replicas in sync, ");
        let back = Snapshot { stalled: None, phase: Phase::Draining, ..left };
        assert_eq!(unusual(&back), "2 of 3 replicas in sync, draining, ");
        assert!(describe(&left, None).starts_with("  2.5 s: follower 2 stalled, 2 of 3 "));
    }
}
