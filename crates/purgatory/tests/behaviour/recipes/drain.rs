//! Draining before the end: when a request counts as open.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::support::Park;
use purgatory::{BoxedOperation, Purgatory, Timeout, when};
use timer_core::ManualTimer;

use super::{
    SECOND, Wait, by_hand, by_hand_and_late, every_order, guide::drain::Server, over, poll,
};

fn server() -> (ManualTimer, Server) {
    let (timer, drained) = by_hand();
    (timer, Server { stopping: Arc::default(), open: Arc::default(), drained })
}

#[test]
fn a_drain_waits_for_the_last_request() {
    every_order(|| {
        let (timer, server) = server();
        let waits = server.drained.clone();
        drop(server.begin().unwrap());
        let open = Arc::new(Mutex::new([server.begin(), server.begin()]));
        let wait = Wait { timer, waits, limit: SECOND, remembers: true };
        let complete = move || {
            drop(open.lock().unwrap().each_mut().map(Option::take));
        };
        (wait, move || server.drain(SECOND), complete)
    });
}

#[test]
fn no_request_begins_during_a_drain() {
    let (_timer, server) = server();
    let open = server.begin().unwrap();
    let mut drain = server.drain(SECOND);
    assert!(server.begin().is_none());
    assert_eq!(server.drained.check_and_complete(&()), 0); // an event too many
    assert!(poll(&mut drain).is_pending()); // nor did the refused request end it
    drop(open);
    assert_eq!((over(&mut drain), server.open.load(SeqCst)), (None, 0));
}

/// Parks a request that is open until its callback is over, whatever becomes of the answer.
fn parked(server: &Server, requests: &Purgatory<u32, BoxedOperation>, answer: fn()) {
    let open = server.begin().unwrap();
    let answer = move |_| {
        let _open = open;
        answer();
    };
    requests.park(when(|| false, answer), &[1], Timeout::Never);
}

/// It has left its purgatory before its callback runs: that nothing is parked says nothing.
#[test]
fn a_request_is_open_until_it_was_answered() {
    let (_timer, server) = server();
    let (_timer, requests, later) = by_hand_and_late();
    parked(&server, &requests, || panic!("an answer"));
    let mut drain = server.drain(SECOND);
    assert_eq!((requests.complete_for_key(&1), requests.is_empty()), (1, true));
    assert!(poll(&mut drain).is_pending());
    later.run();
    assert_eq!((over(&mut drain), requests.stats().panics), (None, 1));
}

/// Requests that begin and end while it is drained: once it is, none is open and none begins.
#[test]
fn no_request_is_open_once_it_is_drained() {
    for _ in 0..100 {
        let (_timer, server) = server();
        let (served, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let serving = [(); 2].map(|()| {
                scope.spawn(|| {
                    while let Some(open) = server.begin() {
                        served.fetch_add(1, SeqCst);
                        ended.fetch_add(1, SeqCst);
                        drop(open);
                    }
                })
            });
            while served.load(SeqCst) < 10 {
                thread::yield_now();
            }
            server.drain(SECOND).wait_blocking().unwrap();
            let all = served.load(SeqCst);
            assert_eq!(all, ended.load(SeqCst));
            serving.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(served.load(SeqCst), all);
        });
        assert_eq!(server.open.load(SeqCst), 0);
    }
}
