//! Draining before the end, in every order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use crate::support::Park;
use purgatory::{BoxedOperation, Outcome, Purgatory, Timeout, WaitError, when};
use timer_core::ManualTimer;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, by_hand_and_late, guide::drain::Server, off_runtime,
    on_runtimes, poll,
};

fn server() -> (ManualTimer, Server) {
    let (timer, drained) = by_hand();
    (timer, Server { stopping: Arc::default(), open: Arc::default(), drained })
}

#[test]
fn without_requests_it_is_over_at_once_and_none_can_begin() {
    let (_timer, server) = server();
    drop(server.begin().unwrap());
    assert_eq!(poll(&mut server.drain(SECOND)), Ok(()).into());
    assert!(server.begin().is_none() && server.begin().is_none());
    assert_eq!(poll(&mut server.drain(SECOND)), Ok(()).into()); // twice
    assert_eq!(server.open.load(SeqCst), 0);
    super::nothing_is_left(&server.drained);
}

#[test]
fn the_last_request_ends_it_on_whichever_thread() {
    on_runtimes(|runtime| {
        let (_timer, server) = server();
        let [first, second] = [(); 2].map(|()| server.begin().unwrap());
        let drains = [(); 2].map(|()| runtime.spawn(server.drain(SECOND)));
        drop(first);
        assert_eq!(server.drained.check_and_complete(&()), 0); // an event too many
        assert!(server.begin().is_none()); // nor does this one end it
        assert_eq!(server.drained.len(), 2);
        off_runtime(|| drop(second));
        assert_eq!(drains.map(|drain| runtime.block_on(drain).unwrap()), [Ok(()), Ok(())]);
        super::nothing_is_left(&server.drained);
    });
}

#[test]
fn a_request_that_never_ends_is_waited_for_until_time_is_up() {
    let (timer, server) = server();
    let never = server.begin().unwrap();
    let mut drain = server.drain(SECOND);
    timer.advance(SECOND - MS);
    assert!(poll(&mut drain).is_pending());
    timer.advance(MS);
    assert_eq!(poll(&mut drain), Err(WaitError::Expired).into());
    let mut longer = server.drain(SECOND);
    drop(never);
    assert_eq!(poll(&mut longer), Ok(()).into());
    super::nothing_is_left(&server.drained);
}

#[test]
fn nobody_needs_to_wait_for_it() {
    let (_timer, server) = server();
    let open = server.begin().unwrap();
    drop(server.drain(SECOND));
    super::nothing_is_left(&server.drained);
    drop(open);
    assert!(server.begin().is_none());
}

#[test]
fn a_shutdown_ends_the_wait() {
    let (_timer, server) = server();
    let open = server.begin().unwrap();
    let mut drain = server.drain(SECOND);
    server.drained.shutdown(SECOND);
    assert_eq!(poll(&mut drain), Err(SHUTDOWN).into());
    assert_eq!(poll(&mut server.drain(SECOND)), Err(CLOSED).into());
    drop(open);
    assert_eq!(poll(&mut server.drain(SECOND)), Ok(()).into());
}

/// Parks a request that is open until its callback is over.
fn parked(
    server: &Server,
    requests: &Purgatory<u32, BoxedOperation>,
    answer: impl FnOnce(Outcome) + Send + 'static,
) {
    let open = server.begin().unwrap();
    let answer = move |outcome| {
        let _open = open; // whatever becomes of the answer
        answer(outcome);
    };
    requests.park(when(|| false, answer), &[1], Timeout::Never);
}

/// It has left its purgatory before its callback runs: that nothing is parked says nothing.
#[test]
fn a_request_is_open_until_it_was_answered() {
    let (_timer, server) = server();
    let (_timer, requests, later) = by_hand_and_late();
    let (client, answers) = mpsc::channel();
    parked(&server, &requests, move |outcome| client.send(outcome).unwrap());
    let mut drain = server.drain(SECOND);
    assert_eq!((requests.complete_for_key(&1), requests.is_empty()), (1, true));
    assert!(poll(&mut drain).is_pending());
    later.run();
    assert_eq!(answers.try_recv(), Ok(Outcome::Completed));
    assert_eq!(poll(&mut drain), Ok(()).into());
}

#[test]
fn a_request_whose_answer_panics_or_that_is_refused_is_over_too() {
    let (_timer, server) = server();
    let (_timer, requests) = by_hand();
    parked(&server, &requests, |_| panic!("an answer"));
    let mut drain = server.drain(SECOND);
    assert_eq!(requests.cancel_for_key(&1, "its client hung up"), 1);
    assert_eq!((poll(&mut drain), requests.stats().panics), (Ok(()).into(), 1));

    let (_timer, server) = self::server();
    let open = server.begin().unwrap();
    let mut drain = server.drain(SECOND);
    requests.shutdown(SECOND);
    let refused = when(|| false, move |_| drop(open));
    assert!(requests.try_complete_else_watch(refused, &[1], Timeout::Never).is_err());
    assert_eq!(poll(&mut drain), Ok(()).into());
}

/// Requests that begin and end while it is drained: once it is, none is open and none begins.
#[test]
fn of_many_requests_none_is_open_once_it_is_drained() {
    for _ in 0..100 {
        let (_timer, server) = server();
        let (served, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let serving = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut requests = 0;
                    while let Some(open) = server.begin() {
                        requests += 1;
                        served.fetch_add(1, SeqCst);
                        ended.fetch_add(1, SeqCst);
                        drop(open);
                    }
                    requests
                })
            });
            while served.load(SeqCst) < 10 {
                thread::yield_now();
            }
            server.drain(SECOND).wait_blocking().unwrap();
            let (all, over) = (served.load(SeqCst), ended.load(SeqCst));
            assert_eq!(all, over);
            let requests: usize = serving.map(|thread| thread.join().unwrap()).iter().sum();
            assert_eq!((requests, served.load(SeqCst)), (all, all));
        });
        assert_eq!(server.open.load(SeqCst), 0);
        super::nothing_is_left(&server.drained);
    }
}
