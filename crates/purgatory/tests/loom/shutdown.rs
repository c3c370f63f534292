//! Parks against a shutdown.

use std::time::Duration;

use purgatory::{CancelReason, Outcome, RefusedReason, sync::Failpoint};

use super::{MS, ONE_KEY, ONE_ROOM, Setup, TWO_ROOMS, check};

/// Either the park is refused, or what was parked is ended.
fn park_against_shutdown(faults: &[Failpoint], keys: &'static [u8]) {
    check(faults, move || {
        let setup = Setup::new();
        let shutdown = setup.elsewhere(|setup| setup.purgatory.shutdown(Duration::ZERO));
        let parked = setup.purgatory.try_complete_else_watch(setup.op(&[0]), keys, MS);
        shutdown.join().unwrap();
        match parked {
            Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
            Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
        }
    });
}

#[test]
fn park_against_shutdown_under_one_key() {
    park_against_shutdown(&[Failpoint::ShutdownClosesNoRoom], ONE_KEY);
}

#[test]
fn park_against_shutdown_under_two_keys() {
    // And the other way round: the first room is closed last.
    for keys in [TWO_ROOMS, &[2, 1], ONE_ROOM] {
        let faults = [Failpoint::ShutdownClosesNoRoom, Failpoint::ExpiryLeavesNoNote];
        park_against_shutdown(&faults, keys);
    }
}
