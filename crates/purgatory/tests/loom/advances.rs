//! Advances of watermarks, under threshold and checked watches, against everything that may end
//! their operations.

use loom::sync::{Arc, atomic::AtomicBool};
use purgatory::{Watches, sync::Failpoint};

use super::{
    Act::{Advance, Cancel, Event, ParkChecked, ParkUpTo, Time},
    BOTH, CANCELLED_ONLY, MISSED, MS, Op,
    Outcome::{Completed, Expired},
    Setup, check, race,
};

/// Under a threshold watch, and under a checked one.
#[test]
fn park_against_advance() {
    race(
        &MISSED,
        &[],
        [Advance(0, 1)],
        &[ParkUpTo(&[0], &[(1, 5)])],
        &[Completed],
    );
    race(
        &MISSED[..1],
        &[],
        [Advance(0, 1)],
        &[ParkChecked(&[0], &[(1, 5)])],
        &[Completed],
    );
}

/// Faults that a park under two keys notices.
const TWO_KEYS: [Failpoint; 2] = [
    Failpoint::ParkSkipsVersionCheck,
    Failpoint::EventLeavesNoRequest,
];

/// Both watermarks are reached while the operation is being watched.
#[test]
fn park_against_two_advances() {
    let park = &[ParkUpTo(BOTH, &[(1, 5), (2, 5)])];
    race(
        &TWO_KEYS,
        &[],
        [Advance(0, 1), Advance(1, 2)],
        park,
        &[Completed],
    );
}

/// The watch of the first key is taken and its slot freed while the second key's is claimed.
#[test]
fn park_against_advance_in_one_shard() {
    let park = &[ParkUpTo(&[0], &[(1, 5), (3, 5)])];
    race(&TWO_KEYS, &[], [Advance(0, 1)], park, &[Completed]);
}

/// Two watermarks of one operation are reached at once: one of the two takes the last watch.
#[test]
fn advance_against_advance() {
    check(&[Failpoint::MetWatchNotCounted], || {
        let setup = Setup::new();
        // A condition that the checks never see true: only the count can end it.
        let never = Arc::new(AtomicBool::new(false));
        let operation = Op {
            flags: vec![never],
            ..setup.op(&[])
        };
        setup.park(operation, Watches::up_to(&[(1, 5), (2, 5)]), MS);
        setup
            .race([Advance(0, 1), Advance(1, 2)], &[])
            .assert_ended_once(&[Completed]);
    });
}

/// The same in the check form, where both may find the other's check under way.
#[test]
fn advance_against_advance_of_checked_watches() {
    let park = &[ParkChecked(BOTH, &[(1, 5), (2, 5)])];
    race(
        &TWO_KEYS[1..],
        park,
        [Advance(0, 1), Advance(1, 2)],
        &[],
        &[Completed],
    );
}

#[test]
fn advance_against_cancel_and_expiry() {
    check(&[Failpoint::ExpiryRemovesCheckedOut], || {
        let setup = Setup::new();
        setup.park(
            setup.op(&[0]),
            Watches::up_to(&[(1, 5)]).with_keys(&[2]),
            MS,
        );
        let setup = setup.race([Advance(0, 1), Event(1, 2)], &[Time]);
        setup.assert_ended_once(&[Completed, Expired]);
    });
}

#[test]
fn advance_against_cancel_for_key() {
    let faults = [Failpoint::ExpiryLeavesNoRequest];
    let park = &[ParkChecked(BOTH, &[(1, 5)])];
    race(
        &faults,
        park,
        [Advance(0, 1)],
        &[Cancel(1)],
        &CANCELLED_ONLY,
    );
}
