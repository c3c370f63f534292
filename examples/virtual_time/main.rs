//! How to test operations of your own: the real wheel and the real purgatory under a clock that you
//! turn.
//!
//! The operation here is a quorum write: it is parked until two of three replicas have answered, or
//! its time is up. A small cluster answers after random delays, or not at all; each seed is another
//! story, and the same one each time it is told. What must come of a story is worked out beside it,
//! from the delays alone; a seed for which something else happens is printed with the line that
//! tells it again, message by message.
//!
//! `cargo run --release --example virtual_time -- --help`

use std::{
    fmt,
    io::{self, Write as _},
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use clap::Parser;
use fastrand::Rng;
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
        let Ok(mut answers) = self.answers.lock() else { return false };
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
        let replicas: Vec<_> = (0..WRITES).map(|_| [(); REPLICAS].map(|()| arrivals())).collect();
        Story(
            replicas
                .into_iter()
                .map(|replicas| (rng.u64(..500), rng.u64(1..120), replicas))
                .collect(),
        )
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

    /// What does happen.
    fn told(&self, count_twice: bool, log: &Log) -> Result<Vec<Ended>> {
        let timer = ManualTimer::new();
        let purgatory = Purgatory::builder("writes").timer(&timer).build()?;
        let ends: Arc<Mutex<Vec<Option<Ended>>>> = Arc::new(Mutex::new(vec![None; self.0.len()]));
        for (number, (begin, timeout, replicas)) in self.0.iter().enumerate() {
            let (timeout, replicas) = (Duration::from_millis(*timeout), replicas.clone());
            let write = Write {
                number,
                timer: timer.clone(),
                purgatory: purgatory.clone(),
                log: log.clone(),
            };
            let ends = ends.clone();
            let start = move || write.start(timeout, replicas, count_twice, ends);
            timer
                .schedule(Duration::from_millis(*begin), start)
                .map_err(|refused| refused.reason)?;
        }
        while timer.advance_to_next() {}
        timer.shutdown();
        let ends =
            std::mem::take(&mut *ends.lock().map_err(|_| anyhow::anyhow!("a write panicked"))?);
        Ok(ends.into_iter().map(|end| end.unwrap_or(Ended(u64::MAX, Outcome::Expired))).collect())
    }
}

/// Told message by message, when somebody wants to know.
#[derive(Clone)]
struct Log(bool);

impl Log {
    fn say(&self, at: u64, number: usize, what: impl fmt::Display) {
        if self.0 {
            let _ = writeln!(io::stdout(), "{at:>5} ms  write {number:>2}: {what}");
        }
    }
}

/// When a write ended, and how.
#[derive(Clone, Debug, PartialEq)]
struct Ended(u64, Outcome);

/// One write of the story.
struct Write {
    number: usize,
    timer: ManualTimer,
    purgatory: Purgatory<usize, QuorumWrite>,
    log: Log,
}

impl Write {
    fn start(
        self,
        timeout: Duration,
        replicas: [Arrivals; REPLICAS],
        count_twice: bool,
        ends: Arc<Mutex<Vec<Option<Ended>>>>,
    ) {
        let Write { number, timer, purgatory, log } = self;
        let clock = timer.clock();
        let now = move || clock.now_ns() / 1_000_000;
        let (answers, at, told) = (Answers::default(), now.clone(), log.clone());
        let told = Box::new(move |outcome: Outcome| {
            told.say(at(), number, &outcome);
            if let Ok(mut ends) = ends.lock() {
                ends[number] = Some(Ended(at(), outcome));
            }
        });
        let write = QuorumWrite { answers: answers.clone(), count_twice, told };
        let parked = purgatory.try_complete_else_watch(write, &[number], timeout);
        log.say(now(), number, format_args!("may wait {timeout:?}"));
        assert!(matches!(parked, Ok(ParkResult::Parked(_))), "nobody has answered yet");
        for (replica, arrivals) in replicas.into_iter().enumerate() {
            for after in arrivals {
                let (purgatory, answers) = (purgatory.clone(), answers.clone());
                let (log, now) = (log.clone(), now.clone());
                let arrival = move || {
                    log.say(now(), number, format_args!("replica {replica} answers"));
                    if let Ok(mut answers) = answers.lock() {
                        answers.push(replica);
                    }
                    purgatory.check_and_complete(&number);
                };
                let _ = timer.schedule(Duration::from_millis(after), arrival);
            }
        }
    }
}

/// What is wrong with a seed's story, if anything.
fn fault(seed: u64, count_twice: bool, log: &Log) -> Result<Option<String>> {
    let story = Story::of(seed);
    let (expected, told) = (story.expected(), story.told(count_twice, log)?);
    let wrong =
        (0..).zip(expected.iter().zip(&told)).find(|(_, (expected, told))| expected != told);
    Ok(wrong.map(|(number, (Ended(due, outcome), Ended(at, instead)))| {
        format!("seed {seed}: write {number} ended at {at} ms as {instead}, expected {due} ms, {outcome}")
    }))
}

fn run(args: &Args) -> Result<ExitCode> {
    let seeds = args.seed.map_or(0..args.seeds, |seed| seed..seed.saturating_add(1));
    let log = Log(args.seed.is_some());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        if let Some(fault) = fault(seed, args.count_twice, &log)? {
            let again = if args.count_twice { " --count-twice" } else { "" };
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

    use purgatory::{BoxedOperation, WaitError};

    use super::*;

    #[test]
    fn a_hundred_stories_end_as_they_must() {
        for seed in 0..100 {
            assert_eq!(fault(seed, false, &Log(false)).unwrap(), None);
        }
    }

    #[test]
    fn a_mistake_is_found_and_found_again_under_its_seed() {
        let faults = |seed| fault(seed, true, &Log(false)).unwrap();
        let (seed, first) = (0..).find_map(|seed| Some((seed, faults(seed)?))).unwrap();
        assert_eq!(faults(seed), Some(first));
    }

    /// With tokio's paused clock: it turns the timer, so both show the same time, and time flies
    /// when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn under_tokios_paused_clock() {
        let timer = ManualTimer::new();
        let turned = timer.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            tick.tick().await;
            loop {
                tick.tick().await;
                turned.advance(Duration::from_millis(1));
            }
        });
        let orders: Purgatory<&str, BoxedOperation> =
            Purgatory::builder("orders").timer(&timer).build().unwrap();
        let begin = tokio::time::Instant::now();
        let waited = orders.wait(&["paid"], Duration::from_secs(30), || None::<()>).await;
        assert_eq!(waited, Err(WaitError::Expired));
        assert_eq!(begin.elapsed(), Duration::from_secs(30));
    }
}
