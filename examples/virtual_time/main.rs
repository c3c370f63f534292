//! How to test operations of your own: the real wheel and the real purgatory under a clock that you
//! turn.
//!
//! The operation here is a quorum write: it is parked until two of three replicas have answered, or
//! its time is up. A small cluster answers after random delays, or not at all; each seed makes one
//! story, always the same. The expected end of each write follows from the delays alone. A seed
//! with another end is printed with the command that tells its story again, message by message.
//!
//! `cargo run --release --example virtual_time -- --help`

use std::io::{self, Write};
use std::{fmt, mem, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Result;
use clap::Parser;
use fastrand::Rng;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory};
use timer_core::{Clock, ManualTimer, Timer};

const REPLICAS: usize = 3;
const QUORUM: usize = 2;
const WRITES: usize = 50;

/// Many small clusters, each with its own seed, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "virtual_time", version)]
struct Args {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 2000)]
    seeds: u64,

    /// One seed, told message by message
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Makes a mistake: an answer that came twice is counted twice
    #[arg(long)]
    count_twice: bool,
}

/// The operation to be tested: a write that waits for its quorum.
struct QuorumWrite {
    /// Which replicas have answered.
    answers: Answers,
    count_twice: bool,
    told: Box<dyn FnOnce(Outcome) + Send>,
}

type Answers = Arc<Mutex<Vec<usize>>>;

impl DelayedOperation for QuorumWrite {
    fn try_complete(&mut self) -> bool {
        let mut answers = self.answers.lock();
        if !self.count_twice {
            answers.sort_unstable();
            answers.dedup();
        }
        answers.len() >= QUORUM
    }

    fn on_complete(self, outcome: Outcome) {
        (self.told)(outcome);
    }
}

/// What one replica does with one write: when its answers arrive, in milliseconds. None, one, or
/// the same twice.
type Arrivals = Vec<u64>;

/// A story: for each write when it begins, how long it may wait, and what the replicas do.
struct Story(Vec<(u64, u64, [Arrivals; REPLICAS])>);

impl Story {
    fn of(seed: u64) -> Story {
        let mut rng = Rng::with_seed(seed);
        let mut arrivals = || match rng.u32(..10) {
            0 => vec![],
            1 => vec![rng.u64(..100), rng.u64(..100)],
            _ => vec![rng.u64(..100)],
        };
        let replicas: Vec<_> = (0..WRITES)
            .map(|_| [(); REPLICAS].map(|()| arrivals()))
            .collect();
        let write = |replicas| (rng.u64(..500), rng.u64(1..120), replicas);
        Story(replicas.into_iter().map(write).collect())
    }

    /// What must happen to each write, and when: worked out without a purgatory.
    fn expected(&self) -> Vec<Ended> {
        let ended = |(begin, timeout, replicas): &(u64, u64, [Arrivals; REPLICAS])| {
            let mut first: Vec<_> = replicas.iter().filter_map(|at| at.iter().min()).collect();
            first.sort_unstable();
            match first.get(QUORUM - 1) {
                Some(&&at) if at <= *timeout => Ended(begin + at, Outcome::Completed),
                _ => Ended(begin + timeout, Outcome::Expired),
            }
        };
        self.0.iter().map(ended).collect()
    }

    /// What does happen, told message by message if `aloud`.
    fn told(&self, count_twice: bool, aloud: bool) -> Result<Vec<Ended>> {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("writes").timer(&timer).build()?;
        let ends = Mutex::new(vec![Ended(u64::MAX, Outcome::Expired); self.0.len()]);
        let cluster = Arc::new(Cluster {
            timer,
            purgatory,
            count_twice,
            aloud,
            ends,
        });
        for (number, (begin, timeout, replicas)) in self.0.iter().cloned().enumerate() {
            let (cluster, timeout) = (Arc::clone(&cluster), Duration::from_millis(timeout));
            let timer = cluster.timer.clone();
            let start = move || cluster.start(number, timeout, replicas);
            timer
                .schedule(Duration::from_millis(begin), start)
                .map_err(|refused| refused.reason)?;
        }
        while cluster.timer.advance_to_next() {}
        cluster.timer.shutdown(Duration::MAX);
        Ok(mem::take(&mut *cluster.ends.lock()))
    }
}

/// When a write ended, and how.
#[derive(Clone, Debug, PartialEq)]
struct Ended(u64, Outcome);

/// Where a story happens.
struct Cluster {
    timer: ManualTimer,
    purgatory: Purgatory<usize, QuorumWrite>,
    count_twice: bool,
    aloud: bool,
    ends: Mutex<Vec<Ended>>,
}

impl Cluster {
    /// In milliseconds.
    fn now(&self) -> u64 {
        self.timer.clock().now_ns() / 1_000_000
    }

    fn say(&self, number: usize, what: impl fmt::Display) {
        if self.aloud {
            let _ = writeln!(
                io::stdout(),
                "{:>5} ms  write {number:>2}: {what}",
                self.now()
            );
        }
    }

    fn start(self: Arc<Self>, number: usize, timeout: Duration, replicas: [Arrivals; REPLICAS]) {
        let (answers, cluster) = (Answers::default(), Arc::clone(&self));
        let told = Box::new(move |outcome: Outcome| {
            cluster.say(number, &outcome);
            cluster.ends.lock()[number] = Ended(cluster.now(), outcome);
        });
        let (answered, count_twice) = (answers.clone(), self.count_twice);
        let write = QuorumWrite {
            answers: answered,
            count_twice,
            told,
        };
        let parked = self
            .purgatory
            .try_complete_else_watch(write, &[number], timeout);
        self.say(number, format_args!("may wait {timeout:?}"));
        assert!(
            matches!(parked, Ok(ParkResult::Parked(_))),
            "nobody has answered yet"
        );
        for (replica, arrivals) in replicas.into_iter().enumerate() {
            for after in arrivals {
                let (cluster, answers) = (Arc::clone(&self), answers.clone());
                let arrival = move || {
                    cluster.say(number, format_args!("replica {replica} answers"));
                    answers.lock().push(replica);
                    cluster.purgatory.check_and_complete(&number);
                };
                let _ = self.timer.schedule(Duration::from_millis(after), arrival);
            }
        }
    }
}

/// The first write of a seed's story that ended otherwise than expected.
fn fault(seed: u64, count_twice: bool, aloud: bool) -> Result<Option<String>> {
    let story = Story::of(seed);
    let (expected, told) = (story.expected(), story.told(count_twice, aloud)?);
    let wrong = (0..)
        .zip(expected.iter().zip(&told))
        .find(|(_, (expected, told))| expected != told);
    Ok(wrong.map(|(number, (Ended(due, outcome), Ended(at, instead)))| {
        format!("seed {seed}: write {number} ended at {at} ms as {instead}, expected {due} ms, {outcome}")
    }))
}

fn run(args: &Args) -> Result<ExitCode> {
    let seeds = args
        .seed
        .map_or(0..args.seeds, |seed| seed..seed.saturating_add(1));
    let count = seeds.end - seeds.start;
    for seed in seeds {
        if let Some(fault) = fault(seed, args.count_twice, args.seed.is_some())? {
            let again = if args.count_twice {
                " --count-twice"
            } else {
                ""
            };
            eprintln!(
                "{fault}\ntell it again: cargo run --release --example virtual_time -- --seed {seed}{again}"
            );
            return Ok(ExitCode::FAILURE);
        }
    }
    writeln!(
        io::stdout(),
        "{count} seeds, {WRITES} writes each: every one ended as it must, to the millisecond"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("virtual_time: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_hundred_stories_end_as_they_must() {
        for seed in 0..100 {
            assert_eq!(fault(seed, false, false).unwrap(), None);
        }
    }

    #[test]
    fn a_mistake_is_found_and_found_again_under_its_seed() {
        let faults = |seed| fault(seed, true, false).unwrap();
        let (seed, first) = (0..).find_map(|seed| Some((seed, faults(seed)?))).unwrap();
        assert_eq!(faults(seed), Some(first));
    }
}
