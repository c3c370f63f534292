//! Parks against a shutdown.

use std::time::Duration;

use purgatory::{CancelReason, Outcome, RefusedReason, sync::Failpoint};

use super::{MS, ONE_KEY, ONE_ROOM, Setup, TWO_ROOMS, check};

/// Either the park is refused, or what was parked is ended. With the keys the other way round the
/// first room is closed last.
#[test]
fn park_against_shutdown() {
    let no_room: &[Failpoint] = &[Failpoint::ShutdownClosesNoRoom];
    let no_note = [
        Failpoint::ShutdownClosesNoRoom,
        Failpoint::ExpiryLeavesNoNote,
    ];
    for (faults, keys) in [
        (no_room, ONE_KEY),
        (&no_note, TWO_ROOMS),
        (&no_note, &[2, 1]),
        (&no_note, ONE_ROOM),
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
                Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
            }
        });
    }
}
