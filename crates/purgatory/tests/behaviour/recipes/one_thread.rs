//! A log on one thread, whose loop turns the timer.

use std::{cell::RefCell, rc::Rc, time::Duration};

use purgatory::{EndResult, OperationId, ParkResult, RefusedReason};
use timer_core::ManualTimer;

use super::{MS, SECOND, guide::one_thread::Log};

/// A log, and the answers of its fetches: not `Send`.
struct Server {
    log: Log,
    answers: Rc<RefCell<Vec<String>>>,
}

impl Server {
    fn new() -> Rc<Server> {
        let log = Log::new(ManualTimer::new()).unwrap();
        Rc::new(Server { log, answers: Rc::default() })
    }

    #[track_caller]
    fn fetch(&self, offset: u64, timeout: Duration) -> Option<OperationId> {
        let answers = self.answers.clone();
        let answer = move |outcome| answers.borrow_mut().push(format!("{offset} {outcome}"));
        match self.log.fetch(offset, timeout, answer).unwrap() {
            ParkResult::Parked(id) => Some(id),
            _ => None,
        }
    }

    #[track_caller]
    fn told(&self, expected: &[&str]) {
        assert_eq!(self.answers.take(), expected);
    }
}

#[test]
fn an_append_answers_what_it_reaches_and_once() {
    let server = Server::new();
    for offset in [2, 1, 3] {
        assert!(server.fetch(offset, SECOND).is_some());
    }
    assert_eq!([(); 2].map(|()| server.log.append()), [1, 1]);
    assert_eq!(server.fetch(1, SECOND), None); // it is there
    server.told(&["1 completed", "2 completed", "1 completed"]);
    assert_eq!(server.log.fetches.len(), 1);
}

/// A late turn expires all that fell due, in the order of deadlines.
#[test]
fn fetches_never_reached_expire_in_their_turn() {
    let server = Server::new();
    server.log.turn(5 * SECOND);
    for (offset, after) in [(7, 3), (8, 1), (9, 2)] {
        server.fetch(offset, after * SECOND);
    }
    server.log.turn(6 * SECOND - MS);
    server.log.turn(6 * SECOND - 2 * MS); // the loop's clock is not asked to be steady
    server.told(&[]);
    server.log.turn(60 * SECOND);
    server.told(&["8 expired", "9 expired", "7 expired"]);
    (0..9).for_each(|_| _ = server.log.append());
    server.told(&[]);
    super::nothing_is_left(&server.log.fetches);
}

/// An answer that fetches again, as the next request of its connection does.
#[test]
fn an_answer_may_fetch_and_append() {
    let server = Server::new();
    let again = server.clone();
    let answer = move |_| {
        again.fetch(2, SECOND);
        assert_eq!(again.log.append(), 0); // when the outer append is over
    };
    server.log.fetch(1, SECOND, answer).unwrap();
    assert_eq!(server.log.append(), 1);
    server.told(&["2 completed"]);
}

#[test]
fn fetches_end_here_when_client_or_log_goes() {
    let server = Server::new();
    let id = server.fetch(1, SECOND).unwrap();
    assert_eq!(server.log.fetches.cancel(id, "client gone"), EndResult::Ended);
    server.fetch(2, SECOND);
    server.log.fetches.shutdown(Duration::ZERO);
    let refused = server.log.fetch(2, SECOND, |_| unreachable!("it is refused"));
    assert_eq!(refused, Err(RefusedReason::Closed));
    server.told(&["1 cancelled: client gone", "2 cancelled: shut down"]);

    let server = Server::new();
    server.fetch(1, SECOND);
    let answers = server.answers.clone();
    drop(server);
    assert_eq!(answers.take(), ["1 cancelled: its purgatory was dropped"]);
}
