//! The command line, and what is wrong with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use humantime::format_duration;

use crate::in_sync::{FOLLOWERS, Replica};
use crate::plan::{Plan, Stall};

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

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one, `off` serves
    /// none
    #[arg(
        long, value_name = "IP:PORT|off", default_value = "127.0.0.1:0", value_parser = metrics_addr
    )]
    pub metrics_addr: MetricsAddr,

    /// How long to go on serving them after the table
    #[arg(
        long, value_name = "DURATION", default_value = "0s", value_parser = between("0s", "1day")
    )]
    pub linger: Duration,
}

/// Where to serve metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAddr {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl Args {
    /// The run that is asked for, or what does not fit together.
    pub fn plan(&self) -> Result<Plan, String> {
        Ok(Plan {
            duration: self.seconds,
            producers: self.producers,
            partitions: self.partitions,
            timeout: self.timeout,
            in_flight: self.checked_in_flight()?,
            rate: (self.rate > 0).then_some(self.rate),
            follower_lag: self.checked_follower_lag()?,
            stall: self.checked_stall()?,
            isr_shrink_after: self.isr_shrink_after,
        })
    }

    fn checked_in_flight(&self) -> Result<usize, String> {
        const WAITING_MAX: u64 = 2_000_000;
        let waiting = u64::from(self.producers) * u64::from(self.in_flight);
        if waiting > WAITING_MAX {
            return Err(format!(
                "--in-flight {} with --producers {} lets {waiting} records wait at once: at most {WAITING_MAX} may",
                self.in_flight, self.producers
            ));
        }
        Ok(self.in_flight as usize)
    }

    fn checked_follower_lag(&self) -> Result<[Duration; FOLLOWERS], String> {
        match self.follower_lag[..] {
            [both] => Ok([both; FOLLOWERS]),
            [one, two] => Ok([one, two]),
            _ => Err(format!(
                "--follower-lag takes one or {FOLLOWERS} durations, not {}",
                self.follower_lag.len()
            )),
        }
    }

    fn checked_stall(&self) -> Result<Option<Stall>, String> {
        let Some(length) = self.stall_for else {
            return Ok(None);
        };
        let from = self.stall_from.unwrap_or(self.seconds / 3);
        if from >= self.seconds {
            let (from, run) = (format_duration(from), format_duration(self.seconds));
            return Err(format!("--stall-from {from} is not within the run of {run}"));
        }
        Ok(Some(Stall {
            follower: Replica::follower(self.stall_follower),
            from,
            until: from + length,
        }))
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

/// A duration with a unit, within bounds that are written the same way.
fn between(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |value| {
        let duration = |text| humantime::parse_duration(text).map_err(|error| error.to_string());
        let given = duration(value)?;
        match (duration(least)?..=duration(most)?).contains(&given) {
            true => Ok(given),
            false => Err(format!("must be from {least} to {most}")),
        }
    }
}

fn metrics_addr(value: &str) -> Result<MetricsAddr, String> {
    if value == "off" {
        return Ok(MetricsAddr::Off);
    }
    let address =
        value.parse().map_err(|_| "expected IP:PORT, like 127.0.0.1:9100, or `off`".to_owned())?;
    Ok(MetricsAddr::At(address))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("acks_all").chain(line.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn plan(line: &str) -> Result<Plan, String> {
        parse(line)?.plan()
    }

    #[test]
    fn the_definition_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_the_default_plan() {
        assert_eq!(plan(""), Ok(Plan::default()));
        assert_eq!(parse("").map(|args| (args.input, args.linger)), Ok((None, Duration::ZERO)));
    }

    #[test]
    fn options_reach_the_plan() {
        let line = "--seconds 0.5 --producers 2 --partitions 3 --timeout 250ms --in-flight 7 --rate 100 \
                    --follower-lag 2ms,500us --stall-follower 1 --stall-from 100ms --stall-for 1m \
                    --isr-shrink-after 30ms";
        let ms = Duration::from_millis;
        let stall = Stall { follower: Replica::follower(1), from: ms(100), until: ms(60_100) };
        let expected = Plan {
            duration: ms(500),
            producers: 2,
            partitions: 3,
            timeout: ms(250),
            in_flight: 7,
            rate: Some(100),
            follower_lag: [ms(2), Duration::from_micros(500)],
            stall: Some(stall),
            isr_shrink_after: Some(ms(30)),
        };
        assert_eq!(plan(line), Ok(expected));
        assert_eq!(
            plan("--stall-for 1s --seconds 9").map(|p| p.stall.map(|s| s.from)),
            Ok(Some(ms(3000)))
        );
    }

    #[test]
    fn metrics_addresses() {
        let at = |line: &str| parse(line).map(|args| args.metrics_addr);
        assert_eq!(at(""), Ok(MetricsAddr::At(([127, 0, 0, 1], 0).into())));
        assert_eq!(at("--metrics-addr off"), Ok(MetricsAddr::Off));
        assert!(at("--metrics-addr [::1]:9100").is_ok());
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
            ("--metrics-addr here", "'here'", "IP:PORT"),
        ] {
            let said = plan(line).unwrap_err();
            assert!(said.contains(value) && said.contains(bound), "{line}: {said}");
        }
    }
}
