//! Progress while the run goes on, on standard error: a bar on a terminal, a line a second anywhere
//! else.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::in_sync::REPLICAS;
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

    /// Shows where the run is.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let done = snapshot.phase == Phase::Done;
        if let Some(bar) = &self.bar {
            bar.set_position(snapshot.elapsed.min(snapshot.duration).as_millis() as u64);
            bar.set_message(describe(snapshot, self.last));
            if done {
                bar.finish_and_clear();
            }
        } else if snapshot.elapsed >= self.line_due || done {
            self.line_due = Duration::from_secs(snapshot.elapsed.as_secs()) + LINE_EVERY;
            // Nobody may be listening; the run goes on all the same.
            let _ = writeln!(io::stderr(), "{}", describe(snapshot, self.last));
        } else {
            return;
        }
        self.last = Some((snapshot.elapsed, snapshot.state.completed));
    }
}

/// One line; the rate is over the time since the `last` one, and at the end over the whole run.
fn describe(now: &Snapshot, last: Option<(Duration, u64)>) -> String {
    let state = &now.state;
    let last = last.filter(|_| now.phase != Phase::Done);
    let (then, completed) = last.unwrap_or_default();
    let span = now.elapsed.saturating_sub(then).as_secs_f64();
    let rate =
        if span > 0.0 { state.completed.saturating_sub(completed) as f64 / span } else { 0.0 };
    let phase = match now.phase {
        Phase::Producing => "",
        Phase::Draining => ", draining",
        Phase::Done => ", done",
    };
    let [one, two] = state.lag.map(HumanCount);
    format!(
        "{:5.1} s: {}/s, {} completed, {} expired, {} waiting, in sync {}/{REPLICAS}, behind {one} and {two}{phase}",
        now.elapsed.as_secs_f64(),
        HumanCount(rate as u64),
        HumanCount(state.completed),
        HumanCount(state.expired),
        HumanCount(state.waiting()),
        state.in_sync_min,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::State;

    #[test]
    fn a_line_says_where_the_run_is() {
        let snapshot = Snapshot {
            phase: Phase::Draining,
            elapsed: Duration::from_millis(2500),
            duration: Duration::from_secs(2),
            state: State {
                produced: 12_345,
                completed: 12_000,
                expired: 40,
                cancelled: 5,
                in_sync_min: 2,
                lag: [0, 1300],
            },
        };
        let expected = "  2.5 s: 8,000/s, 12,000 completed, 40 expired, 300 waiting, in sync 2/3, \
                        behind 0 and 1,300, draining";
        let last = Some((Duration::from_millis(1500), 4000));
        assert_eq!(describe(&snapshot, last), expected);
        let done = Snapshot { phase: Phase::Done, ..snapshot };
        assert!(describe(&done, last).contains(" 4,800/s, "), "12,000 in 2.5 s");
    }
}
