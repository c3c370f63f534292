//! Whole runs, short ones: what must come out of them whatever the machine is doing.

use std::time::Duration;

use acks_all_example::in_sync::Replica;
use acks_all_example::plan::{Plan, Stall};
use acks_all_example::report::Report;
use acks_all_example::run::{Stage, run};
use acks_all_example::snapshot::{Phase, Snapshot};
use acks_all_example::stop::Stop;
use acks_all_example::text::Text;

const LONG: Duration = Duration::from_secs(3600);

fn plan() -> Plan {
    Plan {
        duration: Duration::from_millis(300),
        producers: 3,
        partitions: 2,
        timeout: LONG,
        in_flight: 50,
        ..Plan::default()
    }
}

/// Follower 2 never fetches.
fn stalled() -> Plan {
    let stall = Stall { follower: Replica::follower(2), from: Duration::ZERO, until: LONG };
    Plan { stall: Some(stall), ..plan() }
}

/// Runs the plan; the books must be right, and every record must be accounted for.
fn run_well(plan: &Plan, interrupted: &Stop, watch: &mut dyn FnMut(&Snapshot)) -> Report {
    let text = Text::load(None).expect("the text in the repository can be read");
    let stage = Stage::new(plan).expect("the purgatory starts");
    let report = run(plan, stage, text, interrupted, watch).expect("the run starts");
    assert_eq!(report.problems, []);
    assert_eq!(report.lost(), 0);
    assert!(report.produced > 0);
    assert_eq!(report.endings.ended(), report.produced);
    report
}

#[test]
fn with_everyone_healthy_every_record_is_acknowledged() {
    let mut phases = Vec::new();
    let report = run_well(&plan(), &Stop::new(), &mut |snapshot| phases.push(snapshot.phase));
    assert_eq!(report.endings.completed, report.produced);
    assert!(report.produced_for >= plan().duration);
    assert!(report.endings.wait.quantiles().is_some());
    assert_eq!((phases.first(), phases.last()), (Some(&Phase::Producing), Some(&Phase::Done)));
}

#[test]
fn a_stalled_follower_in_a_fixed_set_makes_every_produce_expire() {
    let plan = Plan { timeout: Duration::from_millis(20), ..stalled() };
    let report = run_well(&plan, &Stop::new(), &mut |_| {});
    assert_eq!(report.endings.expired, report.produced);
    assert!(report.endings.lateness.quantiles().is_some());
}

#[test]
fn a_stalled_follower_that_leaves_the_set_holds_up_nobody_for_good() {
    let plan = Plan { isr_shrink_after: Some(Duration::from_millis(20)), ..stalled() };
    let mut last = None;
    let report = run_well(&plan, &Stop::new(), &mut |snapshot| last = Some(*snapshot));
    assert_eq!(report.endings.completed, report.produced);
    let last = last.expect("a run shows its end");
    assert!(last.state.in_sync_min < 3);
    assert_eq!(last.state.lag[1], report.produced, "follower 2 has nothing");
}

#[test]
fn a_follower_that_comes_back_finds_its_place() {
    let ms = Duration::from_millis;
    let stall = Stall { follower: Replica::follower(1), from: ms(50), until: ms(150) };
    let plan = Plan { stall: Some(stall), isr_shrink_after: Some(ms(20)), ..plan() };
    let report = run_well(&plan, &Stop::new(), &mut |_| {});
    assert_eq!(report.endings.completed, report.produced);
}

#[test]
fn an_interrupt_cancels_what_waits() {
    let plan = Plan { duration: LONG, ..stalled() };
    let interrupted = Stop::new();
    let report = run_well(&plan, &interrupted, &mut |snapshot| {
        if snapshot.state.waiting() > 0 {
            interrupted.raise();
        }
    });
    assert_eq!(report.endings.cancelled, report.produced);
}

#[test]
fn a_rate_is_not_exceeded() {
    let plan = Plan { rate: Some(200), ..plan() };
    let report = run_well(&plan, &Stop::new(), &mut |_| {});
    let most = 200.0 * report.produced_for.as_secs_f64() + 3.0;
    assert!(report.produced as f64 <= most, "{} in {:?}", report.produced, report.produced_for);
}

#[test]
fn a_slot_at_a_time_is_enough() {
    let plan = Plan { producers: 1, partitions: 1, in_flight: 1, ..plan() };
    let report = run_well(&plan, &Stop::new(), &mut |_| {});
    assert_eq!(report.endings.completed, report.produced);
}
