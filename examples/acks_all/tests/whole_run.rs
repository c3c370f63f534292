//! Whole runs, short ones: what must come out of them whatever the machine is doing.

use std::time::Duration;

use acks_all_example::args::Args;
use acks_all_example::report::Report;
use acks_all_example::run::{Stage, run};
use acks_all_example::snapshot::{Phase, Snapshot};
use acks_all_example::text::Text;
use clap::Parser;
use example_support::Stop;

/// Follower 2 never fetches.
const STALLED: &str = "--stall-from 0s --stall-for 1h";

/// A short run with a timeout that is never reached, but for what `line` says.
fn args(line: &str) -> Args {
    let base = "acks_all --seconds 0.3 --partitions 2 --timeout 1h";
    let args = Args::parse_from(base.split(' ').chain(line.split_whitespace()));
    args.check().expect("the options fit together");
    args
}

/// Runs it; the books must be right, and every record must be accounted for.
fn run_well(args: &Args, interrupted: &Stop, watch: &mut dyn FnMut(&Snapshot)) -> Report {
    let text = Text::load(None).expect("the text in the repository can be read");
    let stage = Stage::new(args).expect("the purgatory starts");
    let report = run(args, stage, text, interrupted, watch);
    assert_eq!(report.problems, []);
    assert_eq!(report.lost(), 0);
    assert!(report.produced > 0);
    assert_eq!(report.endings.counts.ended(), report.produced);
    report
}

#[test]
fn with_everyone_healthy_every_record_is_acknowledged() {
    let mut phases = Vec::new();
    let report = run_well(&args(""), &Stop::new(), &mut |snapshot| phases.push(snapshot.phase));
    assert_eq!(report.endings.counts.completed, report.produced);
    assert!(report.produced_for >= Duration::from_millis(300));
    assert_eq!(report.endings.wait.len(), report.produced);
    assert_eq!((phases.first(), phases.last()), (Some(&Phase::Producing), Some(&Phase::Done)));
}

#[test]
fn a_stalled_follower_in_a_fixed_set_makes_every_produce_expire() {
    let args = Args { timeout: Duration::from_millis(20), ..args(STALLED) };
    let report = run_well(&args, &Stop::new(), &mut |_| {});
    assert_eq!(report.endings.counts.expired, report.produced);
    assert_eq!(report.endings.lateness.len(), report.produced);
}

#[test]
fn a_stalled_follower_that_leaves_the_set_holds_up_nobody_for_good() {
    let args = args(&format!("{STALLED} --isr-shrink-after 20ms"));
    let mut last = None;
    let report = run_well(&args, &Stop::new(), &mut |snapshot| last = Some(*snapshot));
    assert_eq!(report.endings.counts.completed, report.produced);
    let last = last.expect("a run shows its end");
    assert!(last.state.in_sync_min < 3);
    assert_eq!(last.state.lag[1], report.produced, "follower 2 has nothing");
}

#[test]
fn an_interrupt_cancels_what_waits() {
    let args = Args { seconds: Duration::from_secs(3600), ..args(STALLED) };
    let interrupted = Stop::new();
    let report = run_well(&args, &interrupted, &mut |snapshot| {
        if snapshot.state.waiting() > 0 {
            interrupted.raise();
        }
    });
    assert_eq!(report.endings.counts.cancelled, report.produced);
}

#[test]
fn whoever_is_slow_every_record_is_acknowledged() {
    for line in [
        "--stall-follower 1 --stall-from 50ms --stall-for 100ms --isr-shrink-after 20ms",
        "--rate 200",
        "--producers 1 --in-flight 1",
    ] {
        let args = args(line);
        let report = run_well(&args, &Stop::new(), &mut |_| {});
        assert_eq!(report.endings.counts.completed, report.produced, "{line}");
        let most = args.rate as f64 * report.produced_for.as_secs_f64() + 5.0;
        assert!(args.rate == 0 || report.produced as f64 <= most, "{most}");
    }
}
