//! How to test operations of your own: the real wheel and the real purgatory under a clock that you
//! advance.
//!
//! The operation here is a quorum write: it is parked until two of three replicas have answered, or
//! until its timeout fires. A small cluster answers after random delays, or not at all; each seed
//! makes one story, always the same. The expected end of each write follows from the delays alone.
//! If a write ends otherwise, the program prints the seed, and the command that prints its story
//! message by message.
//!
//! `cargo run --release --example virtual_time -- --help`

use std::io::{self, Write};
use std::{fmt, mem, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Result;
use clap::Parser;
use fastrand::Rng;
use parking_lot::Mutex;
use purgatory::{DelayedOperation, Outcome, Purgatory};
use timer_core::{Clock, ManualTimer, TimerError};

const REPLICAS: usize = 3;
const QUORUM: usize = 2;
const WRITES: usize = 50;

const EXIT_CODES: &str = "\
The exit code is 0 when every write ended as it must, 1 when one did not, 2 when an argument is wrong.";

/// Many small clusters, each with its own seed, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "virtual_time", version, after_help = EXIT_CODES, allow_negative_numbers = true)]
struct Args {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = at_least_one)]
    seeds: u64,

    /// One seed, printed message by message
    #[arg(long, value_name = "SEED", conflicts_with = "seeds", value_parser = any_seed)]
    seed: Option<u64>,

    /// Makes a mistake: an answer that came twice is counted twice
    #[arg(long)]
    count_twice: bool,
}

fn at_least_one(value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("expected a number from 1 to {}", u64::MAX)),
    }
}

fn any_seed(value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("expected a number from 0 to {}", u64::MAX))
}

/// How stories are run.
#[derive(Clone, Copy, Default)]
struct Mode {
    /// Makes the mistake: an answer that came twice is counted twice.
    count_twice: bool,
    /// Prints each message.
    verbose: bool,
}

/// The operation under test: a write that waits for its quorum.
struct QuorumWrite {
    /// The replicas that have answered.
    answers: Answers,
    count_twice: bool,
    callback: Box<dyn FnOnce(Outcome) + Send>,
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
        (self.callback)(outcome);
    }
}

/// The times at which one replica's answers to one write arrive, in milliseconds: no answer, one,
/// or the same one twice.
type Arrivals = Vec<u64>;

/// One write of a story: when it begins, its timeout, and the answers to it.
#[derive(Clone)]
struct PlannedWrite {
    begin_ms: u64,
    timeout_ms: u64,
    replicas: [Arrivals; REPLICAS],
}

impl PlannedWrite {
    fn random(rng: &mut Rng) -> PlannedWrite {
        // One in ten replicas never answers, one in ten answers twice.
        let replicas = [(); REPLICAS].map(|()| random_arrivals(rng));
        PlannedWrite {
            begin_ms: rng.u64(..500),
            timeout_ms: rng.u64(1..120),
            replicas,
        }
    }

    /// Computes how and when the write must end, without a purgatory.
    fn expected(&self) -> Ended {
        // The quorum is reached by the first answer of the second replica to answer.
        let mut first_answers: Vec<u64> = Vec::new();
        for arrivals in &self.replicas {
            first_answers.extend(arrivals.iter().min());
        }
        first_answers.sort_unstable();
        match first_answers.get(QUORUM - 1) {
            Some(&at_ms) if at_ms <= self.timeout_ms => Ended {
                at_ms: self.begin_ms + at_ms,
                outcome: Outcome::Completed,
            },
            _ => Ended {
                at_ms: self.begin_ms + self.timeout_ms,
                outcome: Outcome::Expired,
            },
        }
    }
}

fn random_arrivals(rng: &mut Rng) -> Arrivals {
    match rng.u32(..10) {
        0 => vec![],
        1 => vec![rng.u64(..100), rng.u64(..100)],
        _ => vec![rng.u64(..100)],
    }
}

/// The end of a write, and its time.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    at_ms: u64,
    outcome: Outcome,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms", self.outcome, self.at_ms)
    }
}

/// The cluster of a story: a timer, a purgatory, and the ends of the writes.
struct Cluster {
    timer: ManualTimer,
    purgatory: Purgatory<usize, QuorumWrite>,
    mode: Mode,
    /// The end of each write, by its number; `None` while the write waits.
    ends: Mutex<Vec<Option<Ended>>>,
}

impl Cluster {
    fn now_ms(&self) -> u64 {
        self.timer.clock().now_ns() / 1_000_000
    }

    fn say(&self, number: usize, what: impl fmt::Display) {
        if self.mode.verbose {
            let now_ms = self.now_ms();
            // Standard output may be closed; the story is checked all the same.
            let _ = writeln!(io::stdout(), "{now_ms:>5} ms  write {number:>2}: {what}");
        }
    }

    /// Parks a write, and schedules the replicas' answers to it.
    fn start(self: Arc<Self>, number: usize, write: PlannedWrite) {
        let answers = Answers::default();
        let timeout = Duration::from_millis(write.timeout_ms);
        self.park(number, &answers, timeout);
        self.say(number, format_args!("may wait {timeout:?}"));
        // The answers come later, each as a task of the timer.
        for (replica, arrivals) in write.replicas.into_iter().enumerate() {
            for after_ms in arrivals {
                let cluster = Arc::clone(&self);
                let answers = answers.clone();
                let arrival = move || cluster.answer(number, replica, &answers);
                // The timer refuses a task only after its shutdown, when the story is over.
                let _ = self
                    .timer
                    .schedule(Duration::from_millis(after_ms), arrival);
            }
        }
    }

    fn park(self: &Arc<Self>, number: usize, answers: &Answers, timeout: Duration) {
        let cluster = Arc::clone(self);
        // The callback notes the end in virtual time, to the millisecond.
        let callback = move |outcome: Outcome| {
            cluster.say(number, &outcome);
            let at_ms = cluster.now_ms();
            cluster.ends.lock()[number] = Some(Ended { at_ms, outcome });
        };
        let write = QuorumWrite {
            answers: answers.clone(),
            count_twice: self.mode.count_twice,
            callback: Box::new(callback),
        };
        let parked = self
            .purgatory
            .try_complete_else_watch(write, &[number], timeout);
        // The write is parked, since no replica has answered yet.
        assert!(matches!(parked, Ok(Some(_))));
    }

    /// Notes the answer of a replica, then signals the key of the write.
    fn answer(&self, number: usize, replica: usize, answers: &Answers) {
        self.say(number, format_args!("replica {replica} answers"));
        // The condition first, then its event.
        answers.lock().push(replica);
        self.purgatory.check_and_complete(&number);
    }
}

/// Runs the story of these writes. Returns when and how each write ended.
fn run_story(writes: &[PlannedWrite], mode: Mode) -> Result<Vec<Option<Ended>>> {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::builder("writes").timer(&timer).build()?;
    let cluster = Arc::new(Cluster {
        timer,
        purgatory,
        mode,
        ends: Mutex::new(vec![None; writes.len()]),
    });

    // Schedule the beginning of each write.
    for (number, write) in writes.iter().cloned().enumerate() {
        let begin = Duration::from_millis(write.begin_ms);
        let starting = Arc::clone(&cluster);
        let start = move || starting.start(number, write);
        let scheduled = cluster.timer.schedule(begin, start);
        scheduled.map_err(TimerError::from)?;
    }

    // Time jumps from one task or deadline to the next, until none is left.
    while cluster.timer.advance_to_next() {}
    cluster.timer.shutdown(Duration::MAX);
    let ends = mem::take(&mut *cluster.ends.lock());
    Ok(ends)
}

/// Finds the first write of a seed's story that did not end as expected, and describes it.
fn fault(seed: u64, mode: Mode) -> Result<Option<String>> {
    let mut rng = Rng::with_seed(seed);
    let writes: Vec<_> = (0..WRITES)
        .map(|_| PlannedWrite::random(&mut rng))
        .collect();
    let ends = run_story(&writes, mode)?;
    // The expected end is computed separately, from the delays.
    for (number, (write, ended)) in writes.iter().zip(&ends).enumerate() {
        let expected = write.expected();
        if ended.as_ref() != Some(&expected) {
            let ended = match ended {
                Some(ended) => ended.to_string(),
                None => "never ended".to_owned(),
            };
            let fault = format!("seed {seed}: write {number}: {ended}, expected: {expected}");
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

/// Writes a line to standard error, which may be closed.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn run(args: &Args) -> Result<ExitCode> {
    // A single seed is a range of one, and its messages are printed.
    let seeds = match args.seed {
        Some(seed) => seed..=seed,
        None => 0..=args.seeds - 1,
    };
    let mode = Mode {
        count_twice: args.count_twice,
        verbose: args.seed.is_some(),
    };
    for seed in seeds.clone() {
        if let Some(fault) = fault(seed, mode)? {
            let mistake = if args.count_twice {
                " --count-twice"
            } else {
                ""
            };
            let program = "cargo run --release --example virtual_time --";
            say(&format!(
                "{fault}\nonce more: {program} --seed {seed}{mistake}"
            ));
            return Ok(ExitCode::FAILURE);
        }
    }
    // All writes ended as expected.
    let which = match args.seed {
        Some(seed) => format!("seed {seed}"),
        None => format!("{} seeds", args.seeds),
    };
    writeln!(
        io::stdout(),
        "{which}, {WRITES} writes each: every one ended as it must, to the millisecond"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("virtual_time: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_hundred_stories_end_as_they_must() {
        for seed in 0..100 {
            assert_eq!(fault(seed, Mode::default()).unwrap(), None);
        }
    }

    #[test]
    fn mistake_is_found_again_under_its_seed() {
        let mistaken = Mode {
            count_twice: true,
            verbose: false,
        };
        let mut seed = 0;
        let first = loop {
            if let Some(fault) = fault(seed, mistaken).unwrap() {
                break fault;
            }
            seed += 1;
        };
        assert_eq!(fault(seed, mistaken).unwrap(), Some(first));
    }

    #[test]
    fn last_seed_is_run_and_bad_ones_are_refused() {
        let last = u64::MAX.to_string();
        let args = Args::try_parse_from(["virtual_time", "--seed", &last]).unwrap();
        assert_eq!(fault(args.seed.unwrap(), Mode::default()).unwrap(), None);
        for [flag, value] in [
            ["--seeds", "0"],
            ["--seeds", "-1"],
            ["--seed", "18446744073709551616"],
        ] {
            let refused = Args::try_parse_from(["virtual_time", &format!("{flag}={value}")]);
            let refused = refused.unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            assert!(refused.to_string().contains(value), "{refused}");
        }
    }
}
