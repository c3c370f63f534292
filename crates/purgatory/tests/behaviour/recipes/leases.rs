//! Leases: the order of those that wait, and clients that go with the lease on its way to them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use purgatory::{BoxedOperation, Purgatory};

use super::{
    SECOND, Wait, by_hand, by_hand_and_late, every_order, got, guide::leases::Leases, poll,
};

fn leases(waits: Purgatory<u32, BoxedOperation>) -> Leases {
    Leases { free: Arc::new(Mutex::new([7].into())), waits }
}

/// All is given back, and nothing waits.
#[track_caller]
fn is_free(leases: &Leases) {
    assert_eq!(*leases.free.lock().unwrap(), HashSet::from([7]));
    super::nothing_is_left(&leases.waits);
}

#[test]
fn a_wait_ends_when_the_lease_is_given_back() {
    every_order(|| {
        let (timer, waits) = by_hand();
        let leases = leases(waits.clone());
        let holds = Arc::new(Mutex::new(Some(got(&mut leases.acquire(7)))));
        let wait = Wait { timer, waits, limit: 5 * SECOND, remembers: true };
        (wait, move || leases.acquire(7), move || drop(holds.lock().unwrap().take()))
    });
}

#[test]
fn a_lease_goes_to_waiters_in_order() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let mut holds = got(&mut leases.acquire(7));
    let mut waiting = [(); 3].map(|()| leases.acquire(7));
    assert!(!leases.waits.check_and_complete_one(&7)); // an event without a lease
    for at in 0..3 {
        assert!(waiting[at..].iter_mut().all(|wait| poll(wait).is_pending()));
        drop(holds);
        assert_eq!(leases.waits.len(), 2 - at);
        holds = got(&mut waiting[at]);
    }
    drop(holds);
    is_free(&leases);
}

#[test]
fn a_client_that_goes_passes_the_lease_on() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let first = leases.acquire(7); // has it, and has not looked
    let [second, third, mut fourth] = [(); 3].map(|()| leases.acquire(7));
    drop(second);
    drop(first);
    assert_eq!(leases.waits.len(), 1); // the third has it, and has not looked
    assert!(poll(&mut fourth).is_pending());
    drop(third);
    drop(got(&mut fourth));
    is_free(&leases);
}

/// The lease is on its way to a client, with a job of the executor, as the client goes.
#[test]
fn a_client_that_goes_untold_passes_the_lease_on() {
    let (_timer, waits, later) = by_hand_and_late();
    let leases = leases(waits);
    let mut first = leases.acquire(7);
    later.run();
    let holds = got(&mut first);
    let [second, mut third] = [(); 2].map(|()| leases.acquire(7));
    drop(holds);
    drop(second);
    later.run(); // it finds the second gone, and gives the lease back ...
    later.run(); // ... which tells the third
    drop(got(&mut third));
    is_free(&leases);
}
