//! Bugs of purgatories, timer wheels and wait queues of other projects, replayed on this one.

use crate::support::*;

/// The entry stayed in the bucket of the first deadline.
#[test]
fn a_moved_deadline_does_not_fire_at_the_old_one() {
    let (timer, purgatory) = waiting();
    let probe = Probe::new();
    let id = purgatory.park(probe.operation(), &["a"], 100 * MS);
    timer.advance(90 * MS);
    assert!(purgatory.reschedule(id, SECOND)); // longer
    timer.advance(100 * MS);
    assert!(purgatory.reschedule(id, Timeout::Never));
    timer.advance(600 * SECOND);
    assert!(!probe.ended() && purgatory.reschedule(id, 20 * MS)); // shorter
    timer.advance(19 * MS);
    assert!(!probe.ended());
    timer.advance(MS);
    assert_eq!(probe.endings(), [Expired]);
    assert!(!purgatory.reschedule(id, SECOND));
}

/// A callback that parked its operation again had the deadline of before.
#[test]
fn an_operation_parked_again_has_a_new_deadline() {
    let (timer, purgatory) = waiting();
    let again = Probe::new();
    let inside = purgatory.clone();
    let operation = again.operation();
    let parks = move |_| _ = inside.park(operation, &["a"], 10 * MS);
    purgatory.park(Probe::new().operation().then(parks), &["a"], 10 * MS);
    timer.advance(10 * MS);
    timer.advance(9 * MS);
    assert!(!again.ended());
    timer.advance(MS);
    assert_eq!(again.endings(), [Expired]);
}

/// The place was freed twice: once for the pending end, once for the cancel.
#[test]
fn a_late_cancel_gives_no_second_place_back() {
    let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.max_parked(1));
    for ends in 0..3 {
        let probe = Probe::new();
        let inside = purgatory.clone();
        let operation = probe
            .operation()
            .on_check(move || _ = inside.cancel_all("during"));
        let id = purgatory.park(operation, &["a"], MS);
        match ends {
            0 => timer.advance(MS),
            1 => assert_eq!(purgatory.cancel(id, "in time"), ReachResult::Reached(())),
            _ => assert_eq!(purgatory.check_and_complete(&"a"), 0), // noted by its own check
        }
        assert_eq!(purgatory.cancel(id, "late"), ReachResult::Gone);
        assert_eq!(probe.endings().len(), 1);
        purgatory.park(Probe::new().operation(), &["b"], MS);
        let second = purgatory.try_complete_else_watch(Probe::new().operation(), &["b"], MS);
        assert_eq!(second.unwrap_err().reason, WaitError::Full { limit: 1 });
        timer.advance(MS);
    }
}

/// A key kept one timer, which each further waiter set anew.
#[test]
fn each_waiter_of_a_key_has_its_own_time() {
    let (timer, purgatory) = waiting();
    let probes = [30, 10, 20].map(|ms| Probe::parked(&purgatory, &["a"], ms * MS));
    for ended in [[false, true, false], [false, true, true], [true; 3]] {
        timer.advance(10 * MS);
        assert_eq!(probes.each_ref().map(Probe::ended), ended);
    }
}
