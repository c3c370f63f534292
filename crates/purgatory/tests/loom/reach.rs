//! Operations are taken out while their keys are signalled.

use purgatory::DelayedOperation;

use super::{
    Act::{self, Event, Park, Time},
    BOTH, ONE_KEY, Setup, TWO_SHARDS, assert_nothing_left, check,
    failpoints::Failpoint,
};

/// Takes a key's operations out while another thread acts. The operation is taken or ends, once.
fn taken_or_ended(park: Act, other: Act, key: u8) {
    check(&[Failpoint::EndedStaysListed], move || {
        let setup = Setup::new().alone(&[park]);
        let acts = setup.elsewhere(move |setup| setup.act(other));
        let (taken, under_check) = setup.purgatory.take_for_key(&key);
        acts.join().unwrap();
        let count = taken.len();
        for operation in taken {
            operation.on_complete(purgatory::Outcome::Completed);
        }
        // An operation under check may wait on. Its id is returned, and it can still be taken.
        if let [id] = under_check[..] {
            let found = setup.purgatory.take(id).reached();
            let ended = setup.endings.lock().unwrap().len();
            assert_eq!(ended + usize::from(found.is_some()), 1, "named, then lost");
        } else {
            assert_eq!(setup.endings.lock().unwrap().len(), 1, "{count} taken");
        }
        assert_nothing_left(&setup.purgatory);
    });
}

#[test]
fn take_against_an_event_of_another_key() {
    taken_or_ended(Park(&[0], TWO_SHARDS), Event(0, 2), 1);
    // Its check stays false: unless it is taken, it waits on.
    taken_or_ended(Park(BOTH, TWO_SHARDS), Event(0, 2), 1);
}

#[test]
fn take_against_expiry() {
    taken_or_ended(Park(&[0], ONE_KEY), Time, 1);
}
