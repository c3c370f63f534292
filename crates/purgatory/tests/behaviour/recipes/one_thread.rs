//! A log on one thread, in every order of appends, fetches and turns.

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
    fn new() -> Server {
        Server { log: Log::new(ManualTimer::new()).unwrap(), answers: Rc::default() }
    }

    fn fetch(&self, offset: u64, timeout: Duration) -> ParkResult {
        let answers = self.answers.clone();
        let answer = move |outcome| answers.borrow_mut().push(format!("{offset} {outcome}"));
        self.log.fetch(offset, timeout, answer).unwrap()
    }

    #[track_caller]
    fn parked(&self, offset: u64, timeout: Duration) -> OperationId {
        match self.fetch(offset, timeout) {
            ParkResult::Parked(id) => id,
            over => panic!("it does not wait: {over:?}"),
        }
    }

    #[track_caller]
    fn told(&self, expected: &[&str]) {
        assert_eq!(self.answers.take(), expected);
    }
}

#[test]
fn a_fetch_of_what_is_there_is_answered_at_once() {
    let server = Server::new();
    assert_eq!(server.log.append(), 0);
    assert!(matches!(server.fetch(1, SECOND), ParkResult::Ended(_)));
    server.told(&["1 completed"]);
    super::nothing_is_left(&server.log.fetches);
}

#[test]
fn an_append_answers_what_it_reaches_and_once() {
    let server = Server::new();
    for offset in [2, 1, 1, 3] {
        server.parked(offset, SECOND);
    }
    assert_eq!([(); 2].map(|()| server.log.append()), [2, 1]);
    server.told(&["1 completed", "1 completed", "2 completed"]);
    assert_eq!(server.log.fetches.len(), 1);
}

#[test]
fn a_fetch_never_reached_expires_in_the_turn_of_its_deadline() {
    let server = Server::new();
    server.log.turn(5 * SECOND);
    server.parked(9, SECOND);
    server.log.turn(6 * SECOND - MS);
    server.told(&[]);
    server.log.turn(6 * SECOND - 2 * MS); // the loop's clock is not asked to be steady
    server.log.turn(6 * SECOND);
    server.told(&["9 expired"]);
    (0..9).for_each(|_| _ = server.log.append());
    server.told(&[]);
    super::nothing_is_left(&server.log.fetches);
}

/// After a long sleep all that fell due ends, in the order of deadlines.
#[test]
fn a_late_turn_expires_all_that_fell_due() {
    let server = Server::new();
    for (offset, after) in [(7, 3), (8, 1), (9, 2)] {
        server.parked(offset, after * SECOND);
    }
    server.log.turn(60 * SECOND);
    server.told(&["8 expired", "9 expired", "7 expired"]);
}

#[test]
fn a_client_that_goes_is_cancelled_by_its_id() {
    let server = Server::new();
    let id = server.parked(1, SECOND);
    assert_eq!(server.log.fetches.cancel(id, "client gone"), EndResult::Ended);
    assert_eq!(server.log.fetches.cancel(id, "twice"), EndResult::Gone);
    server.log.append();
    server.told(&["1 cancelled: client gone"]);
    super::nothing_is_left(&server.log.fetches);
}

/// An answer that fetches again, as the next request of its connection does.
#[test]
fn an_answer_may_fetch_and_append() {
    let server = Rc::new(Server::new());
    let again = server.clone();
    let answer = move |_| {
        again.parked(2, SECOND);
        assert_eq!(again.log.append(), 0); // when the outer append is over
    };
    server.log.fetch(1, SECOND, answer).unwrap();
    assert_eq!(server.log.append(), 1);
    server.told(&["2 completed"]);
    super::nothing_is_left(&server.log.fetches);
}

#[test]
fn a_log_that_goes_cancels_its_fetches_here() {
    let server = Server::new();
    server.parked(1, SECOND);
    let Server { log, answers } = server;
    log.fetches.shutdown(Duration::ZERO);
    let refused = log.fetch(2, SECOND, |_| unreachable!("it is refused"));
    assert_eq!(refused, Err(RefusedReason::Closed));
    assert_eq!(answers.take(), ["1 cancelled: shut down"]);

    let Server { log, answers } = Server::new();
    let told = answers.clone();
    log.fetch(1, SECOND, move |outcome| told.borrow_mut().push(outcome.to_string())).unwrap();
    drop(log);
    assert_eq!(answers.take(), ["cancelled: its purgatory was dropped"]);
}
