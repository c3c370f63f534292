//! The command line, and what is wrong with it.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, value_parser};
use example_support::between;
use humantime::format_duration;

const EXAMPLES: &str = "\
Examples:
  acks_all                                            ten seconds, everyone healthy
  acks_all --stall-for 3s                             a follower stalls: produces expire
  acks_all --stall-for 3s --isr-shrink-after 500ms    it leaves the in-sync set, and returns
  acks_all --input README.md --rate 20000             another text, at a fixed rate

Follower 2 is the one that stalls. It stays in the in-sync set, so no produce completes until it is
back, unless --isr-shrink-after takes it out of the set.
Durations carry a unit: 250us, 5ms, 1s, 1m 30s.
Ctrl-C ends the run with its table; a second Ctrl-C aborts it.
The exit code is 0 when the books are right, 1 when something is wrong or cannot run,
2 for a bad command line.";

/// Producers with acks=all against a leader and two followers, all in one process: each produce
/// waits in the purgatory until every in-sync replica has its record, or until its time runs out.
#[derive(Debug, Clone, Parser)]
#[command(name = "acks_all", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Text whose lines are the records, or `-` for standard input [default: a text from the
    /// repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// How many seconds to produce
    #[arg(long, default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: Duration,

    /// Producers, each a thread
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) producers: u32,

    /// Partitions, each with a log on the leader and on both followers
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..=4096))]
    pub(crate) partitions: u32,

    /// How long a produce waits for its acknowledgement before it expires
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = between("1ms", "1h"))]
    pub(crate) timeout: Duration,

    /// Records that each producer lets wait at once
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) in_flight: u32,

    /// Records a second, all producers together; 0 is as many as go
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(..=100_000_000))]
    pub(crate) rate: u32,

    /// Pause of a follower between two rounds of fetches
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = between("100us", "1m"))]
    pub(crate) follower_lag: Duration,

    /// When follower 2 stops fetching, counted from the start [default: after a third of the run]
    #[arg(long, value_name = "DURATION", value_parser = between("0s", "1day"), requires = "stall_for")]
    pub(crate) stall_from: Option<Duration>,

    /// For how long it does not fetch [default: no stall]
    #[arg(long, value_name = "DURATION", value_parser = between("1ms", "1day"))]
    pub(crate) stall_for: Option<Duration>,

    /// Take a follower that has not fetched for so long out of the in-sync set; without this the
    /// set is fixed
    #[arg(long, value_name = "DURATION", value_parser = between("10ms", "1h"))]
    pub(crate) isr_shrink_after: Option<Duration>,

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) metrics_addr: SocketAddr,

    /// How long to go on serving them after the table
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = between("0s", "1day"))]
    pub(crate) linger: Duration,
}

impl Args {
    /// How much of the stall is left at `now`; none when it has not begun or is over.
    pub(crate) fn stall_left(&self, now: Duration) -> Option<Duration> {
        let from = self.stall_from.unwrap_or(self.seconds / 3);
        let until = from + self.stall_for?;
        (from..until).contains(&now).then(|| until - now)
    }

    /// What does not fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        const WAITING_MAX: u32 = 2_000_000;
        let Args { in_flight, producers, seconds, .. } = self;
        let waiting = producers * in_flight;
        if waiting > WAITING_MAX {
            return Err(format!(
                "--in-flight {in_flight} with --producers {producers} lets {waiting} records wait at once: at most {WAITING_MAX} may"
            ));
        }
        match self.stall_from {
            Some(from) if from >= *seconds => {
                let (from, run) = (format_duration(from), format_duration(*seconds));
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
        for (line, at, left) in [
            ("", 4000, None),
            ("--stall-for 1s --seconds 9", 3500, Some(500)),
            ("--stall-from 100ms --stall-for 1m", 99, None),
            ("--stall-from 100ms --stall-for 1m", 100, Some(60_000)),
            ("--stall-from 100ms --stall-for 1m", 60_100, None),
        ] {
            assert_eq!(parse(line).unwrap().stall_left(ms(at)), left.map(ms), "{line} at {at}");
        }
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
            ("--stall-for 1s --stall-from 11s", "11s", "10s"),
            ("--stall-from 1s", "--stall-for", "required"),
            ("--isr-shrink-after 1us", "'1us'", "from 10ms to 1h"),
            ("--in-flight 100000 --producers 256", "25600000", "2000000"),
            ("--metrics-addr here", "'here'", "socket address"),
        ] {
            let said = parse(line).unwrap_err();
            assert!(said.contains(value) && said.contains(bound), "{line}: {said}");
        }
    }
}
