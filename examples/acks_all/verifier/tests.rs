//! Short whole runs, whose results must hold whatever the machine is doing; and planted faults,
//! each of which the audit must find.

use std::{path::Path, sync::Arc, time::Duration};

use clap::Parser;
use example_support::Stop;

use super::Stage;
use super::args::Args;
use super::audit::*;
use super::report::Report;
use super::text::Text;
use super::watch::State;
use crate::Answer;
use crate::partition::{LogEnd, NEXT_LEADER, Record};

const MS: Duration = Duration::from_millis(1);
/// Follower 2 does not fetch before it has fallen out.
const DROPPED: &str = "--timeout 20s --stall-from 0s --stall-for 100ms --drop-follower";
/// Follower 2 never fetches.
const STALLED: &str = "--stall-from 0s --stall-for 1h";

/// Sets up a short run whose timeout is never reached, unless `line` says otherwise.
pub(super) fn stage(line: &str) -> Arc<Stage> {
    let mut words = vec!["acks_all"];
    // Add the usual arguments, except those that the line replaces.
    for usual in ["--seconds=0.3", "--partitions=2", "--timeout=1h"] {
        let (flag, _) = usual.split_once('=').unwrap();
        if !line.contains(flag) {
            words.push(usual);
        }
    }
    words.extend(line.split_whitespace());
    Stage::new(Args::try_parse_from(words).unwrap()).unwrap()
}

/// Both ways to wait.
const WAYS: [&str; 2] = ["--by kafka", "--by replica-sets"];

/// Runs the stage; the self-check must pass, and every record must be accounted for.
fn run_well(stage: &Arc<Stage>, interrupted: &Stop, watch: &mut dyn FnMut(&State)) -> Report {
    let report = stage.run(&Text::load(None).unwrap(), interrupted, watch);
    assert_eq!(report.problems, []);
    assert!(report.produced > 0);
    assert_eq!(report.endings.counts.ended(), report.produced);
    report
}

#[test]
fn every_record_is_acknowledged() {
    for line in [
        "--by kafka",
        "--by kafka --stall-from 50ms --stall-for 100ms",
        "--by kafka --rate 200",
        "--by kafka --producers 1 --in-flight 1",
        "--by replica-sets",
        "--by replica-sets --stall-from 50ms --stall-for 100ms",
        "--by replica-sets --rate 200",
        "--by replica-sets --producers 1 --in-flight 1",
    ] {
        let stage = stage(line);
        let report = run_well(&stage, &Stop::new(), &mut |_| {});
        assert_eq!(report.endings.counts.completed, report.produced, "{line}");
        assert_eq!(report.endings.wait.len(), report.produced);
        assert!(report.produced_for >= stage.args.seconds);
        // A rate is never exceeded by more than a burst.
        let most = f64::from(stage.args.rate) * report.produced_for.as_secs_f64() + 5.0;
        assert!(
            stage.args.rate == 0 || report.produced as f64 <= most,
            "{most}"
        );
    }
}

#[test]
fn stalled_follower_makes_every_produce_expire() {
    for way in WAYS {
        let stage = stage(&format!("{way} {STALLED} --timeout 20ms"));
        let report = run_well(&stage, &Stop::new(), &mut |_| {});
        assert_eq!(report.endings.counts.expired, report.produced);
        assert_eq!(report.endings.lateness.len(), report.produced);
    }
}

#[test]
fn produces_go_on_without_a_follower_that_falls_out() {
    // Follower 2 never fetches: every produce waits until it falls out, or for 20 s.
    for way in WAYS {
        let stage = stage(&format!("{way} {DROPPED}"));
        let report = run_well(&stage, &Stop::new(), &mut |_| {});
        assert_eq!(report.endings.counts.completed, report.produced);
        for partition in &stage.partitions {
            assert_eq!(partition.followers[0].end(), partition.log.end());
            assert_eq!(partition.followers[1].end(), 0);
        }
    }
}

#[test]
fn follower_that_fell_out_joins_once_it_has_caught_up() {
    // Follower 2 has nothing when it falls out.
    for way in WAYS {
        let stage = stage(&format!("{way} {DROPPED} --join-follower"));
        let report = run_well(&stage, &Stop::new(), &mut |_| {});
        assert_eq!(report.endings.counts.completed, report.produced);
        for partition in &stage.partitions {
            assert_eq!(partition.followers[1].end(), partition.log.end());
        }
    }
}

#[test]
fn next_leader_takes_back_what_is_not_acknowledged() {
    // A follower that fetches rarely lacks records at the change.
    for way in WAYS {
        let stage = stage(&format!("{way} --truncate --follower-lag 20ms"));
        let report = run_well(&stage, &Stop::new(), &mut |_| {});
        let counts = report.endings.counts;
        assert_eq!(counts.completed + counts.cancelled, report.produced);
        for partition in &stage.partitions {
            assert_eq!(partition.log.epoch(), 1);
            assert!(partition.log.end() <= partition.produced());
        }
    }
}

#[test]
fn leader_changes_while_a_follower_is_out() {
    for way in WAYS {
        let line = format!("{way} {DROPPED} --join-follower --truncate --follower-lag 20ms");
        let report = run_well(&stage(&line), &Stop::new(), &mut |_| {});
        assert!(report.endings.counts.completed > 0);
    }
}

#[test]
fn interrupt_cancels_what_waits() {
    for way in WAYS {
        let stage = stage(&format!("{way} {STALLED} --seconds 3600"));
        let interrupted = Stop::new();
        let report = run_well(&stage, &interrupted, &mut |state| {
            if state.waiting() > 0 {
                interrupted.raise();
            }
        });
        assert_eq!(report.endings.counts.cancelled, report.produced);
    }
}

#[test]
fn refused_produce_is_answered_and_a_fault() {
    for way in WAYS {
        let stage = stage(&format!("{way} --rate 100"));
        stage.acks.shut_down();
        let report = stage.run(&Text::load(None).unwrap(), &Stop::new(), &mut |_| {});
        let [refused] = &report.problems[..] else {
            panic!("{:?}", report.problems)
        };
        assert_eq!(refused.fault, REFUSED);
        assert_eq!(refused.count, report.produced);
        assert!(refused.first.ends_with(": Closed"), "{}", refused.first);
    }
}

/// Finishes the audit of a partition after `answers`, each with its offset and the time waited; the
/// timeout is 50 ms. Each follower has a part of the records; the second also gets `more`.
fn wrong(
    records: u64,
    parts: [u64; 2],
    more: Option<Record>,
    answers: &[(&Answer, u64, Duration)],
) -> Vec<Problem> {
    let stage = stage("--timeout 50ms");
    let audit = &stage.audit;
    let partition = &stage.partitions[0];
    // The leader has all the records, each follower a part of them.
    let written: Vec<_> = (0..records).map(record).collect();
    for &record in &written {
        partition.append(record, |_| ());
    }
    for (log, part) in partition.followers.iter().zip(parts) {
        log.append(&written[..part as usize]);
    }
    partition.followers[1].append(more.as_slice());
    for &(answer, offset, waited) in answers {
        audit.record(partition, answer, LogEnd { epoch: 0, offset }, waited, 7);
    }
    audit.finish(&stage.partitions)
}

/// Finishes the audit of a partition with three records. The next leader has two of them. The three
/// `answers` come before the change of the leader, or after it.
fn changed(answers: [&Answer; 3], after_change: bool) -> Vec<(&'static str, u64)> {
    let stage = stage("--timeout 50ms");
    let partition = &stage.partitions[0];
    let written: Vec<_> = (0..3).map(record).collect();
    for &record in &written {
        partition.append(record, |_| ());
    }
    // The other follower has all of them.
    partition.followers[NEXT_LEADER].append(&written[..2]);
    partition.followers[1].append(&written);

    let answer = || {
        for (answer, offset) in answers.into_iter().zip(1..) {
            let end = LogEnd { epoch: 0, offset };
            stage.audit.record(partition, answer, end, 50 * MS, 7);
        }
    };
    stage.audit.leader_changes(partition);
    if !after_change {
        answer();
    }
    let change = partition.change_leader(|_| ());
    assert_eq!((change.start.offset, change.taken_back), (2, 1));
    assert!(change.alike);
    stage.audit.leader_changed(partition, &change);
    if after_change {
        answer();
    }
    // The other follower takes one back.
    assert_eq!(partition.fetch(1, &mut Vec::new()).offset, 2);
    assert_eq!(partition.followers[1].digest(), partition.log.digest());
    let problems = stage.audit.finish(&stage.partitions);
    problems.iter().map(|it| (it.fault, it.count)).collect()
}

#[test]
fn record_that_the_next_leader_lacks_is_found() {
    use Answer::{Acknowledged, LeaderChanged};
    for after_change in [false, true] {
        // The promise is kept: two records were acknowledged, the third was not.
        let kept = [&Acknowledged, &Acknowledged, &LeaderChanged];
        assert_eq!(changed(kept, after_change), []);
        // Planted: the third record was acknowledged, too.
        let found = changed([&Acknowledged; 3], after_change);
        assert!(found.contains(&(LOST, 1)), "{found:?}");
    }
}

/// A stalled follower has a record of the previous leader in place of an acknowledged one.
#[test]
fn verifier_finds_a_followers_foreign_record() {
    let stage = stage("");
    let partition = &stage.partitions[0];
    for number in 0..2 {
        partition.append(record(number), |_| ());
    }
    partition.followers[NEXT_LEADER].append(&[record(0)]);
    partition.followers[1].append(&[record(0), record(1)]);
    stage.audit.leader_changes(partition);
    let change = partition.change_leader(|_| ());
    stage.audit.leader_changed(partition, &change);
    // The previous leader follows, and has the new leader's record.
    let end = partition.append(record(2), |_| ());
    partition.fetch(NEXT_LEADER, &mut Vec::new());
    partition.followers[NEXT_LEADER].append(&[record(2)]);

    let last = |offset| LogEnd { epoch: 0, offset };
    for (answer, end) in [
        (Answer::Acknowledged, last(1)),
        (Answer::LeaderChanged, last(2)),
        (Answer::Acknowledged, end), // planted: the other follower lacks it
    ] {
        stage.audit.record(partition, &answer, end, MS, 7);
    }
    let found = stage.audit.finish(&stage.partitions);
    let found: Vec<_> = found.iter().map(|it| (it.fault, it.count)).collect();
    assert_eq!(found, [(MISSING, 1), (TOO_SOON, 1)]);
}

#[test]
fn follower_that_joins_behind_is_found() {
    let stage = stage("");
    let partition = &stage.partitions[0];
    stage.audit.left(partition, 1);
    partition.append(record(0), |_| ());
    partition.followers[0].append(&[record(0)]);
    let end = LogEnd {
        epoch: 0,
        offset: 1,
    };
    let answer = &Answer::Acknowledged;
    stage.audit.record(partition, answer, end, MS, 7);
    assert!(stage.audit.finish(&stage.partitions).is_empty());
    // Planted: the follower joins before it has caught up.
    stage.audit.joined(partition, 1);
    let problems = stage.audit.finish(&stage.partitions);
    let said = "acknowledged records missing from an in-sync log: 2 (the first: follower 2 as it \
                joined partition 0, at 0)";
    assert_eq!(problems[0].to_string(), said);
}

fn record(number: u64) -> Record {
    Record { number, line: 1 }
}

#[test]
fn wrong_answers_are_found_and_counted() {
    use Answer::{Acknowledged, TimedOut};
    // An acknowledgement, a timeout, and a timeout a nanosecond too early.
    let ack = (&Acknowledged, 1, MS);
    let late = (&TimedOut, 1, 50 * MS);
    let early = (&TimedOut, 1, 50 * MS - Duration::from_nanos(1));
    for (parts, answers, faults) in [
        ([1, 1], &[ack][..], &[][..]),
        ([0, 0], &[late], &[]),
        ([1, 0], &[ack], &[MISSING, TOO_SOON]),
        ([1, 1], &[], &[NEVER_ENDED]),
        ([1, 1], &[ack, ack], &[TWICE]),
        ([1, 1], &[(&TimedOut, 2, 50 * MS)], &[ANOTHERS]),
        ([1, 1], &[early], &[EARLY]),
        ([1, 1], &[(&Answer::Cancelled, 1, MS)], &[CANCELLED]),
        ([1, 1], &[(&Answer::LeaderChanged, 1, MS)], &[NO_CHANGE]),
    ] {
        let found = wrong(1, parts, None, answers);
        let found: Vec<_> = found.iter().map(|it| (it.fault, it.count)).collect();
        let expected: Vec<_> = faults.iter().map(|fault| (*fault, 1)).collect();
        assert_eq!(found, expected);
    }
    let said = "operations that expired before their deadline: 1 (the first: offset 0 of \
                partition 0, after 49.999999ms of 50ms)";
    assert_eq!(wrong(1, [1, 1], None, &[early])[0].to_string(), said);
}

/// Over both partitions there are as many answers as records, and for the same offsets.
#[test]
fn answers_are_compared_by_partition() {
    let stage = stage("");
    let answered = |place: usize, times| {
        let partition = &stage.partitions[place];
        partition.append(record(0), |_| ());
        for log in &partition.followers {
            log.append(&[record(0)]);
        }
        for _ in 0..times {
            let (epoch, offset) = (0, 1);
            let end = LogEnd { epoch, offset };
            stage
                .audit
                .record(partition, &Answer::Acknowledged, end, MS, 7);
        }
    };
    answered(0, 0);
    answered(1, 2);
    let found: Vec<_> = stage.audit.finish(&stage.partitions);
    let found: Vec<_> = found.iter().map(|it| (it.fault, it.count)).collect();
    assert_eq!(found, [(TWICE, 1), (NEVER_ENDED, 1)]);
}

#[test]
fn differing_logs_are_found() {
    const RECORDS: u64 = 10_000;
    // All records are answered; only the logs differ.
    let last = RECORDS - 1;
    let all: Vec<_> = (1..=RECORDS)
        .map(|offset| (&Answer::TimedOut, offset, 50 * MS))
        .collect();
    for parts in [[RECORDS; 2], [RECORDS, RECORDS - 3], [0, 1]] {
        assert!(wrong(RECORDS, parts, None, &all).is_empty());
    }
    assert!(wrong(RECORDS, [RECORDS, last], Some(record(last)), &all).is_empty());
    // The same length, but another line, another order, or a record too many.
    let line = Record {
        line: 2,
        ..record(last)
    };
    for (part, more) in [(last, line), (last, record(0)), (RECORDS, record(0))] {
        let found = wrong(RECORDS, [RECORDS, part], Some(more), &all);
        let [differ] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((differ.fault, differ.count), (LOGS_DIFFER, 1));
        let first = &differ.first;
        assert!(
            first.starts_with("follower 2 in partition 0, at "),
            "{first}"
        );
    }
}

#[test]
fn wrong_record_in_a_log_that_is_behind_is_found() {
    use Answer::{Acknowledged, TimedOut};
    // The second record was acknowledged, and follower 2 has another in its place; the third
    // produce expired.
    let answers = [
        (&Acknowledged, 1, MS),
        (&Acknowledged, 2, MS),
        (&TimedOut, 3, 50 * MS),
    ];
    let found = wrong(3, [3, 1], Some(record(7)), &answers);
    let found: Vec<_> = found.iter().map(|it| (it.fault, it.count)).collect();
    assert_eq!(found, [(LOGS_DIFFER, 1)]);
    assert!(wrong(3, [3, 1], Some(record(1)), &answers).is_empty());
}

#[test]
fn bad_arguments_are_refused_with_their_bounds() {
    example_support::assert_parsed::<Args>(&[
        ("--seconds=0.1", ""),
        ("--seconds=0", "from 0.1 to 86400"),
        ("--seconds=NaN", "from 0.1 to 86400"),
        ("--seconds=inf", "from 0.1 to 86400"),
        ("--seconds=-1", "from 0.1 to 86400"),
        ("--seconds=-1s", "from 0.1 to 86400"),
        ("--producers=0", "from 1 to 64"),
        ("--producers=65", "from 1 to 64"),
        ("--partitions=257", "from 1 to 256"),
        ("--timeout=1ms", ""),
        ("--timeout=1h", ""),
        ("--timeout=0", "from 1ms to 1h"),
        ("--timeout=-1s", "from 1ms to 1h"),
        ("--timeout=1ns", "from 1ms to 1h"),
        ("--timeout=18446744073709551616s", "from 1ms to 1h"),
        ("--in-flight=0", "from 1 to 10000"),
        ("--rate=0", ""),
        ("--rate=100000001", "from 0 to 100000000"),
        ("--follower-lag=99us", "from 100us to 1m"),
        ("--follower-lag=-1s", "from 100us to 1m"),
        ("--stall-from=-1s", "from 0s to 1day"),
        ("--stall-for=-1s", "from 1ms to 1day"),
        ("--stall-for=25h", "from 1ms to 1day"),
        ("--stall-for=1day", ""),
        ("--drop-follower", "--stall-for"),
        ("--join-follower", "--drop-follower"),
        ("--by=kafka", ""),
        ("--by=replica-sets", ""),
        ("--by=raft", "kafka, replica-sets"),
        ("--metrics-addr=127.0.0.1", "IP:PORT"),
        ("--linger=2days", "from 0s to 1day"),
        ("--linger=-1s", "from 0s to 1day"),
    ]);
}

/// Actions that a long lag of the followers delays beyond the run are refused, too.
#[test]
fn stall_that_the_run_does_not_reach_is_refused() {
    for (line, refused) in [
        ("", None),
        ("--stall-for 1h", None),
        ("--stall-for 6s --drop-follower", None),
        (
            "--stall-for 1h --drop-follower",
            Some("fall out at 3603.3s"),
        ),
        ("--stall-for 7s --drop-follower", Some("fall out at 10.3s")),
        (
            "--stall-for 6s --drop-follower --follower-lag 1s",
            Some("fall out at 10.3s"),
        ),
        ("--truncate --follower-lag 1s", None),
        (
            "--truncate --follower-lag 2s",
            Some("become the leader at 10.7s"),
        ),
        ("--stall-from 9s --stall-for 1h", None),
        ("--stall-from 10s --stall-for 1s", Some("stall at 10.0s")),
        (
            "--stall-from 1day --stall-for 1s --drop-follower",
            Some("stall at 86400.0s"),
        ),
    ] {
        let words = std::iter::once("acks_all").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).unwrap().checked();
        let error = args
            .map(|_| ())
            .map_err(|error| (error.exit_code(), error.to_string()));
        match refused {
            None => assert!(error.is_ok(), "{line}: {error:?}"),
            Some(at) => {
                let (code, message) = error.unwrap_err();
                assert_eq!(code, 2, "{line}");
                assert!(message.contains(at), "{line}: {message}");
                assert!(
                    message.contains("before the end of the run, 10.0s"),
                    "{message}"
                );
            }
        }
    }
}

#[test]
fn text_that_cannot_be_read_is_named() {
    let missing = Path::new("no/such/file");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in [missing, folder] {
        let error = format!("{:#}", Text::load(Some(path)).unwrap_err());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
    // Empty, not text, and a byte too long.
    let long = vec![b'x'; (16 << 20) + 1];
    for (bytes, named) in [
        (&b""[..], "it is empty"),
        (b"\xff", "cannot read it"),
        (&long, "it is longer than the 16 MiB that are read"),
    ] {
        let error = format!("{:#}", Text::read(bytes, "it").unwrap_err());
        assert!(error.contains(named), "{error}");
    }
    assert!(Text::read(&long[1..], "it").is_ok());
}
