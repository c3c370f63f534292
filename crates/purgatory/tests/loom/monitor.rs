//! Changes of a monitor's state race waits for them: in every interleaving, a wait gets its value.

use purgatory::Monitor;
use timer_core::ManualTimer;

use super::{
    MISSED, MS, ONE_KEY, ONE_SHARD, TWO_SHARDS, WHILE_WATCHING, assert_nothing_left, beside,
    by_hand, check, ending, failpoints::Failpoint,
};

/// A monitor whose state is the number of jobs to be done.
type Jobs = Monitor<u8, usize>;

/// Creates a monitor of jobs on a manual timer.
fn jobs() -> (ManualTimer, Jobs) {
    let (timer, purgatory) = by_hand();
    (timer, Monitor::over(purgatory, 0))
}

/// A worker waits for a job under these keys while one is added.
fn change_against_wait(faults: &[Failpoint], keys: &'static [u8], add: fn(&Jobs)) {
    check(faults, move || {
        let (_timer, jobs) = jobs();
        let adds = beside(&jobs, move |adding| add(&adding));
        let mut wait = jobs.wait(keys, MS, |jobs| {
            jobs.checked_sub(1).map(|left| *jobs = left)
        });
        adds.join().unwrap();
        assert_eq!(ending(&mut wait), Some(Ok(())));
        assert_eq!(jobs.read(|jobs| *jobs), 0);
        assert_nothing_left(jobs.purgatory());
    });
}

#[test]
fn update_against_wait() {
    for keys in [ONE_KEY, TWO_SHARDS, ONE_SHARD] {
        let update: fn(&Jobs) = |jobs| jobs.update(|jobs| *jobs += 1);
        change_against_wait(&[Failpoint::WaitTrustsEarlierWalk], keys, update);
    }
}

#[test]
fn update_of_a_key_against_wait() {
    change_against_wait(&MISSED, ONE_KEY, |jobs| {
        jobs.update_key(&1, |jobs| *jobs += 1)
    });
    change_against_wait(&MISSED, ONE_KEY, |jobs| {
        jobs.update_one(&1, |jobs| *jobs += 1)
    });
    let of_second_key: fn(&Jobs) = |jobs| jobs.update_key(&2, |jobs| *jobs += 1);
    change_against_wait(&WHILE_WATCHING, TWO_SHARDS, of_second_key);
}

/// Two updates each bring half of the state that a parked wait needs.
#[test]
fn two_updates_against_each_other() {
    check(&[Failpoint::EventLeavesNoRequest], || {
        let (_timer, jobs) = jobs();
        let mut wait = jobs.wait(&[1], MS, |jobs| (*jobs == 2).then_some(()));
        let adds = beside(&jobs, |adding| adding.update(|jobs| *jobs += 1));
        jobs.update(|jobs| *jobs += 1);
        adds.join().unwrap();
        assert_eq!(ending(&mut wait), Some(Ok(())));
        assert_nothing_left(jobs.purgatory());
    });
}
