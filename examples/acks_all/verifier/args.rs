//! The command line.

use std::{net::SocketAddr, ops::Range, path::PathBuf, time::Duration};

use clap::{CommandFactory, Parser, ValueEnum, error::ErrorKind};
use example_support::{between, number};

const EXAMPLES: &str = "\
Examples:
  acks_all                                   ten seconds, all followers healthy
  acks_all --stall-for 3s                    follower 2 stalls: produces expire
  acks_all --stall-for 500ms --drop-follower follower 2 falls out: produces go on without it
  acks_all --stall-for 500ms --drop-follower --join-follower
                                             and joins again, once it has caught up
  acks_all --truncate                        follower 1 takes over: records are taken back
  acks_all --by replica-sets                 the other way to wait
  acks_all --input README.md --rate 20000    another text, at a fixed rate

Durations carry a unit: 250us, 5ms, 1s, 1m 30s.
Ctrl-C ends the run with its table; a second Ctrl-C aborts it.
The exit code is 0 when the self-check passed, 1 when something is wrong or it cannot run, 2 when an
argument is wrong, 130 after a second Ctrl-C.";

/// Producers with acks=all against a leader and two followers, all in one process: each produce
/// waits in the purgatory until every in-sync replica has its record, or until its timeout fires.
#[derive(Debug, Clone, Parser)]
#[command(name = "acks_all", version, after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    /// How produces wait for their replicas
    #[arg(long, value_enum, value_name = "WAY", default_value_t = By::Kafka)]
    pub(crate) by: By,

    /// Text whose lines are the records, or `-` for standard input [default: a text from the
    /// repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// How many seconds to produce
    #[arg(long, default_value = "10", allow_hyphen_values = true, value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// Producers, each a thread
    #[arg(long, default_value_t = 4, value_parser = number::<u32>(1..=64))]
    pub(crate) producers: u32,

    /// Partitions, each with a log on the leader and on both followers
    #[arg(long, default_value_t = 8, value_parser = number::<u32>(1..=256))]
    pub(crate) partitions: u32,

    /// How long a produce waits for its acknowledgement before it expires
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    #[arg(allow_hyphen_values = true, value_parser = between("1ms", "1h"))]
    pub(crate) timeout: Duration,

    /// Records that each producer lets wait at once
    #[arg(long, default_value_t = 1000, value_parser = number::<u32>(1..=10_000))]
    pub(crate) in_flight: u32,

    /// Records a second, all producers together; 0 is as many as go
    #[arg(long, default_value_t = 0, value_parser = number::<u32>(0..=100_000_000))]
    pub(crate) rate: u32,

    /// Pause of a follower between two rounds of fetches
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    #[arg(allow_hyphen_values = true, value_parser = between("100us", "1m"))]
    pub(crate) follower_lag: Duration,

    /// When follower 2 stops fetching, counted from the start [default: after a third of the run]
    #[arg(long, value_name = "DURATION", requires = "stall_for")]
    #[arg(allow_hyphen_values = true, value_parser = between("0s", "1day"))]
    pub(crate) stall_from: Option<Duration>,

    /// How long follower 2 does not fetch; the stall begins during the run [default: no stall]
    #[arg(long, value_name = "DURATION")]
    #[arg(allow_hyphen_values = true, value_parser = between("1ms", "1day"))]
    pub(crate) stall_for: Option<Duration>,

    /// At the end of its stall, which is during the run, follower 2 falls out of the in-sync set
    /// instead of fetching again: the produces that wait for it go on with the replicas that are
    /// left
    #[arg(long, requires = "stall_for")]
    pub(crate) drop_follower: bool,

    /// Once it has fallen out, follower 2 fetches again, and joins the in-sync set when it has
    /// caught up
    #[arg(long, requires = "drop_follower")]
    pub(crate) join_follower: bool,

    /// After two thirds of the run follower 1 becomes the leader; what it lacks is taken back, of
    /// which nothing may have been acknowledged
    #[arg(long)]
    pub(crate) truncate: bool,

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) metrics_addr: SocketAddr,

    /// How long to go on serving them after the table
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    #[arg(allow_hyphen_values = true, value_parser = between("0s", "1day"))]
    pub(crate) linger: Duration,
}

/// A way to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Operations under the key of their partition, checked when the high watermark has moved
    Kafka,
    /// Futures of the watermark that follows from the in-sync set and what its members have
    ReplicaSets,
}

impl Args {
    /// Returns the arguments; an error if they ask for something after the end of the run.
    pub(crate) fn checked(self) -> Result<Self, clap::Error> {
        let refused = |what: &str, at: Duration| {
            let end = self.seconds;
            let message =
                format!("{what} at {at:.1?}, expected before the end of the run, {end:.1?}");
            Args::command().error(ErrorKind::ValueValidation, message)
        };
        // A follower reads the time once a lag; the next leader then fetches once more.
        let lag = self.follower_lag;
        let takes_over = self.seconds * 2 / 3 + 2 * lag;
        // The run has to reach the start of a stall, and the end of a stall that drops a follower.
        match self.stall() {
            Some(stall) if stall.start >= self.seconds => {
                Err(refused("--stall-from: follower 2 would stall", stall.start))
            }
            Some(stall) if self.drop_follower && stall.end + lag >= self.seconds => Err(refused(
                "--drop-follower: follower 2 would fall out",
                stall.end + lag,
            )),
            _ if self.truncate && takes_over >= self.seconds => Err(refused(
                "--truncate: follower 1 would become the leader",
                takes_over,
            )),
            _ => Ok(self),
        }
    }

    /// Returns how much of the stall remains at `now`; `None` when it has not begun or is over.
    pub(crate) fn stall_remaining(&self, now: Duration) -> Option<Duration> {
        let stall = self.stall()?;
        if stall.contains(&now) {
            Some(stall.end - now)
        } else {
            None
        }
    }

    /// Returns true if follower 2 has to be out of the in-sync set at `now`.
    pub(crate) fn is_dropped(&self, now: Duration) -> bool {
        self.drop_follower && self.stall().is_some_and(|stall| now >= stall.end)
    }

    /// Returns true if follower 1 has to be the leader at `now`.
    pub(crate) fn is_truncated(&self, now: Duration) -> bool {
        self.truncate && now >= self.seconds * 2 / 3
    }

    /// Returns the start and end of the stall; `None` without `--stall-for`.
    fn stall(&self) -> Option<Range<Duration>> {
        // By default the stall starts after a third of the run.
        let from = self.stall_from.unwrap_or(self.seconds / 3);
        Some(from..from.saturating_add(self.stall_for?))
    }
}

/// Parses the length of a run.
fn seconds(value: &str) -> Result<Duration, String> {
    let seconds = number(0.1..=86_400.0)(value)?;
    Ok(Duration::from_secs_f64(seconds))
}
