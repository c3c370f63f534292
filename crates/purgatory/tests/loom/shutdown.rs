//! Parks against a shutdown.

use std::time::Duration;

use purgatory::{CancelReason, Outcome, RefusedReason, sync::Failpoint};

use super::{MS, ONE_KEY, ONE_SHARD, Setup, TWO_SHARDS, assert_nothing_left, check};

/// Either the park is refused, or the parked operation is ended; nothing is left. With the keys in
/// the other order the first shard is closed last.
#[test]
fn park_against_shutdown() {
    for keys in [ONE_KEY, TWO_SHARDS, &[2, 1], ONE_SHARD] {
        check(&[Failpoint::ShutdownClosesNoShard], move || {
            let setup = Setup::new();
            let shutdown = setup.elsewhere(|setup| setup.purgatory.shutdown(Duration::ZERO));
            let parked = setup
                .purgatory
                .try_complete_else_watch(setup.op(&[0]), keys, MS);
            shutdown.join().unwrap();
            match parked {
                Ok(_) => setup.assert_ended_once(&[Outcome::Cancelled(CancelReason::Shutdown)]),
                Err(refused) => {
                    assert_eq!(refused.reason, RefusedReason::Closed);
                    assert_nothing_left(&setup.purgatory);
                }
            }
        });
    }
}
