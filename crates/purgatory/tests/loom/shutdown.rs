//! Parks against a shutdown.

use std::time::Duration;

use purgatory::{CancelReason, Outcome, WaitError};

use super::{MS, ONE_KEY, ONE_SHARD, Setup, TWO_SHARDS, check, failpoints::Failpoint};

/// The park is refused, or the parked operation is ended. With the keys in reverse order, the first
/// key's shard is closed last.
#[test]
fn park_against_shutdown() {
    let no_shard: &[Failpoint] = &[Failpoint::ShutdownClosesNoShard];
    let no_request = [
        Failpoint::ShutdownClosesNoShard,
        Failpoint::ExpiryLeavesNoRequest,
    ];
    for (faults, keys) in [
        (no_shard, ONE_KEY),
        (&no_request, TWO_SHARDS),
        (&no_request, &[2, 1]),
        (&no_request, ONE_SHARD),
    ] {
        check(faults, move || {
            let setup = Setup::new();
            let shutdown = setup.elsewhere(|setup| setup.purgatory.shutdown(Duration::ZERO));
            let parked = setup
                .purgatory
                .try_complete_else_watch(setup.op(&[0]), keys, MS);
            shutdown.join().unwrap();
            match parked {
                Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
                Err(refused) => assert_eq!(refused.reason, WaitError::Closed),
            }
        });
    }
}

/// Two shutdowns race: one ends the operation. The other reports that it did not wait for it, or
/// finds it called back.
#[test]
fn two_shutdowns() {
    check(&[], || {
        let setup = Setup::new();
        let parked = setup
            .purgatory
            .try_complete_else_watch(setup.op(&[0]), ONE_KEY, MS);
        assert!(parked.is_ok());
        let other = setup.elsewhere(|setup| setup.purgatory.shutdown(Duration::ZERO));
        let left = setup.purgatory.shutdown(Duration::ZERO);
        if left == 0 {
            setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]);
        }
        other.join().unwrap();
    });
}
