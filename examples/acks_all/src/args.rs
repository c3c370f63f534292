//! The command line, and what is wrong with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use example_support::between;
use humantime::format_duration;

use crate::in_sync::FOLLOWERS;

const EXAMPLES: &str = "\
Examples:
  acks_all                                            ten seconds, everyone healthy
  acks_all --stall-for 3s                             a follower stalls: produces expire
  acks_all --stall-for 3s --isr-shrink-after 500ms    it leaves the in-sync set, and returns
  acks_all --input README.md --rate 20000             another text, at a fixed rate

A follower that stalls stays in the in-sync set, so no produce completes until it is back, unless
--isr-shrink-after takes it out of the set.
Durations carry a unit: 250us, 5ms, 1s, 1m 30s.
Ctrl-C ends the run with its table; a second Ctrl-C aborts it.
The exit code is 0 when the books are right, 1 when something is wrong or cannot run,
2 for a bad command line.";

/// Producers with acks=all against a leader and two followers, all in one process: each produce
/// waits in the purgatory until every in-sync replica has its record, or until its time runs out.
#[derive(Debug, Clone, Parser)]
#[command(name = "acks_all", version, after_help = EXAMPLES)]
pub struct Args {
    /// Text whose lines are the records, or `-` for standard input [default: a text from the
    /// repository]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// How long to produce
    #[arg(
        long, value_name = "SECONDS", default_value = "10",
        value_parser = seconds, allow_negative_numbers = true
    )]
    pub seconds: Duration,

    /// Producers, each a thread
    #[arg(
        long, value_name = "N", default_value = "4",
        value_parser = RangedU64ValueParser::<u16>::new().range(1..=256)
    )]
    pub producers: u16,

    /// Partitions, each with a log on the leader and on both followers
    #[arg(
        long, value_name = "N", default_value = "8",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096)
    )]
    pub partitions: u32,

    /// How long a produce waits for its acknowledgement before it expires
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = between("1ms", "1h"))]
    pub timeout: Duration,

    /// Records that each producer lets wait at once
    #[arg(
        long, value_name = "N", default_value = "1000",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=100_000)
    )]
    pub in_flight: u32,

    /// Records a second, all producers together; 0 is as many as go
    #[arg(
        long, value_name = "N", default_value = "0",
        value_parser = clap::value_parser!(u64).range(..=100_000_000)
    )]
    pub rate: u64,

    /// Pause of a follower between two rounds of fetches: one for both, or two with a comma
    #[arg(
        long, value_name = "DURATION", default_value = "1ms", value_delimiter = ',',
        value_parser = between("100us", "1m")
    )]
    pub follower_lag: Vec<Duration>,

    /// The follower that stalls
    #[arg(
        long, value_name = "1|2", default_value = "2", requires = "stall_for",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=FOLLOWERS as u64)
    )]
    pub stall_follower: usize,

    /// When it stops fetching, counted from the start [default: after a third of the run]
    #[arg(
        long, value_name = "DURATION", value_parser = between("0s", "1day"), requires = "stall_for"
    )]
    pub stall_from: Option<Duration>,

    /// For how long it does not fetch [default: no stall]
    #[arg(long, value_name = "DURATION", value_parser = between("1ms", "1day"))]
    pub stall_for: Option<Duration>,

    /// Take a follower that was not caught up for so long out of the in-sync set; without this the
    /// set is fixed
    #[arg(long, value_name = "DURATION", value_parser = between("10ms", "1h"))]
    pub isr_shrink_after: Option<Duration>,

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub metrics_addr: SocketAddr,

    /// How long to go on serving them after the table
    #[arg(
        long, value_name = "DURATION", default_value = "0s", value_parser = between("0s", "1day")
    )]
    pub linger: Duration,
}

/// A part of the run in which one follower does not fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The follower.
    pub follower: usize,
    /// From when, counted from the start of the run.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

impl Stall {
    /// How much of the stall is left at `now`; none when it has not begun or is over.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        (self.from..self.until).contains(&now).then(|| self.until - now)
    }
}

impl Args {
    /// The stall that is asked for.
    pub fn stall(&self) -> Option<Stall> {
        let length = self.stall_for?;
        let from = self.stall_from.unwrap_or(self.seconds / 3);
        Some(Stall { follower: self.stall_follower - 1, from, until: from + length })
    }

    /// The pause of each follower.
    pub fn follower_lags(&self) -> [Duration; FOLLOWERS] {
        [self.follower_lag[0], self.follower_lag[self.follower_lag.len() - 1]]
    }

    /// What does not fit together.
    pub fn check(&self) -> Result<(), String> {
        const WAITING_MAX: u64 = 2_000_000;
        let Args { in_flight, producers, .. } = self;
        let waiting = u64::from(*producers) * u64::from(*in_flight);
        if waiting > WAITING_MAX {
            return Err(format!(
                "--in-flight {in_flight} with --producers {producers} lets {waiting} records wait at once: at most {WAITING_MAX} may"
            ));
        }
        let lags = self.follower_lag.len();
        if lags > FOLLOWERS {
            return Err(format!("--follower-lag takes one or {FOLLOWERS} durations, not {lags}"));
        }
        match self.stall() {
            Some(Stall { from, .. }) if from >= self.seconds => {
                let (from, run) = (format_duration(from), format_duration(self.seconds));
                Err(format!("--stall-from {from} is not within the run of {run}"))
            }
            _ => Ok(()),
        }
    }
}

fn seconds(value: &str) -> Result<Duration, String> {
    let seconds: f64 =
        value.parse().map_err(|_| "expected a number of seconds, like 10 or 0.5".to_owned())?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("must be from 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("acks_all").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        args.check().map(|()| args)
    }

    #[test]
    fn a_stall_covers_a_part_of_the_run() {
        let ms = Duration::from_millis;
        let stall = |line| parse(line).map(|args| args.stall());
        assert_eq!(stall(""), Ok(None));
        let third = Stall { follower: 1, from: ms(3000), until: ms(4000) };
        assert_eq!(stall("--stall-for 1s --seconds 9"), Ok(Some(third)));
        let asked = Stall { follower: 0, from: ms(100), until: ms(60_100) };
        let line = "--seconds 0.5 --stall-follower 1 --stall-from 100ms --stall-for 1m";
        assert_eq!(stall(line), Ok(Some(asked)));
        let left = [99, 100, 60_000, 60_100].map(|at| asked.left(ms(at)));
        assert_eq!(left, [None, Some(ms(60_000)), Some(ms(100)), None]);
    }

    #[test]
    fn one_lag_is_for_both_followers() {
        let lags = |line| parse(line).map(|args| args.follower_lags());
        let ms = Duration::from_millis;
        assert_eq!(lags("--follower-lag 2ms"), Ok([ms(2); 2]));
        assert_eq!(lags("--follower-lag 2ms,500us"), Ok([ms(2), Duration::from_micros(500)]));
    }

    #[test]
    fn a_bad_value_is_named_with_its_bound() {
        for (line, value, bound) in [
            ("--seconds 0", "'0'", "from 0.1 to 86400"),
            ("--seconds -3", "'-3'", "from 0.1 to 86400"),
            ("--seconds NaN", "'NaN'", "from 0.1 to 86400"),
            ("--seconds soon", "'soon'", "a number of seconds"),
            ("--producers 0", "0", "1..=256"),
            ("--partitions 5000", "5000", "1..=4096"),
            ("--in-flight 0", "0", "1..=100000"),
            ("--timeout 2h", "'2h'", "from 1ms to 1h"),
            ("--timeout 5", "'5'", "unit"),
            ("--follower-lag 1ns", "'1ns'", "from 100us to 1m"),
            ("--follower-lag 1ms,2ms,3ms", "3", "one or 2"),
            ("--stall-follower 3 --stall-for 1s", "3", "1..=2"),
            ("--stall-for 1s --stall-from 11s", "11s", "10s"),
            ("--stall-from 1s", "--stall-for", "required"),
            ("--stall-follower 1", "--stall-for", "required"),
            ("--isr-shrink-after 1us", "'1us'", "from 10ms to 1h"),
            ("--in-flight 100000 --producers 256", "25600000", "2000000"),
            ("--metrics-addr here", "'here'", "socket address"),
        ] {
            let said = parse(line).unwrap_err();
            assert!(said.contains(value) && said.contains(bound), "{line}: {said}");
        }
    }
}
