//! Requests: over a connection, sent again, as long as their connection, until the server stops.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use purgatory::{BoxedOperation, Expected, Replies, when};

use super::{
    guide::{
        connection::{Connection as Scope, Key},
        drain::Server,
        request_reply::Connection,
        retry::Attempt,
    },
    *,
};
use crate::support::{NEVER, Park};

fn connection() -> (ManualTimer, Purgatory<u64, Expected<String>>, Arc<Connection>) {
    let (timer, waits) = by_hand();
    let replies = Replies::from(waits.clone());
    (timer, waits, Arc::new(Connection { replies, numbers: 0.into() }))
}

/// Each request has the next number, so all that were asked are answered.
#[test]
fn a_request_waits_for_its_reply() {
    every_order(|| {
        let (timer, waits, connection) = connection();
        let asks = connection.clone();
        let begin = move || {
            let asks = asks.clone();
            async move { asks.ask(|_| Ok(())).await }
        };
        let complete =
            move || (0..2).for_each(|number| _ = connection.replied(number, number.to_string()));
        Wait::new(timer, &waits, 30 * SECOND, begin, complete)
    });
}

#[test]
fn a_reply_may_come_before_its_request_was_sent() {
    let (_timer, waits, connection) = connection();
    let early = |number| connection.replied(number, "early".into()).map_err(io::Error::other);
    assert_eq!(got(&mut Box::pin(connection.ask(early))), "early");
    let fails = connection.ask(|_| Err(io::Error::other("broken pipe")));
    assert_eq!(over(&mut Box::pin(fails)).unwrap_err().to_string(), "broken pipe");
    waits.nothing_is_left();
}

/// A client that asks as the connection goes does not wait for a reply that cannot come.
#[test]
fn a_closed_connection_fails_all_requests() {
    let (_timer, waits, connection) = connection();
    let mut asked = [(); 4].map(|()| Box::pin(connection.ask(|_| Ok(()))));
    assert!(asked.iter_mut().all(|ask| poll(ask).is_pending()));
    let reply = |number, text: &str| connection.replied(number, text.into());
    assert_eq!((reply(1, "b"), reply(0, "a")), (Ok(()), Ok(())));
    assert_eq!((reply(1, "again"), reply(9, "?")), (Err("again".into()), Err("?".into())));
    assert_eq!((connection.closed(), connection.closed()), (2, 0));
    let ended = asked.each_mut().map(|ask| over(ask).unwrap_or_else(|error| error.to_string()));
    assert_eq!(ended, ["a", "b", "cancelled: connection closed", "cancelled: connection closed"]);
    let late = over(&mut Box::pin(connection.ask(|_| Ok(()))));
    assert_eq!(late.unwrap_err().to_string(), CLOSED);
    assert_eq!(reply(2, "old"), Err("old".into()));
    waits.nothing_is_left();
}

const ATTEMPTS: [&str; 3] = ["attempt 0, 100ms", "attempt 1, 200ms", "attempt 2, 400ms"];

struct Call {
    timer: ManualTimer,
    attempts: Purgatory<u64, Attempt>,
    answer: Arc<OnceLock<String>>,
    tell: mpsc::Sender<String>,
    seen: mpsc::Receiver<String>,
}

impl Call {
    fn over((timer, attempts): (ManualTimer, Purgatory<u64, Attempt>)) -> Call {
        let (tell, seen) = mpsc::channel();
        Call { timer, attempts, answer: Arc::default(), tell, seen }
    }

    fn start(self) -> Call {
        let (attempts, answer) = (self.attempts.clone(), self.answer.clone());
        Attempt { request: 7, number: 0, answer, attempts, told: self.tell.clone() }.start();
        self
    }

    /// The answer comes; returns how many attempts it completed.
    fn answered(&self) -> usize {
        let _ = self.answer.set("answer".to_owned());
        self.attempts.check_and_complete(&7)
    }

    /// This number of attempts were told, and this end, and no more whatever comes.
    #[track_caller]
    fn told(&self, attempts: usize, end: &str) {
        self.answered();
        self.timer.advance(MINUTE);
        told(&self.seen, &[&ATTEMPTS[..attempts], &[end]].concat());
        self.attempts.nothing_is_left();
    }
}

#[test]
fn an_answer_completes_whichever_attempt_waits() {
    for (at_ms, attempts) in [(0, 1), (99, 1), (100, 2), (299, 2), (300, 3), (699, 3)] {
        let call = Call::over(by_hand()).start();
        call.timer.advance(at_ms * MS);
        assert_eq!((call.answered(), call.answered()), (1, 0), "after {at_ms} ms");
        call.told(attempts, "answer");
    }
    let early = Call::over(by_hand());
    assert_eq!(early.answered(), 0);
    early.start().told(1, "answer");
    let never = Call::over(by_hand()).start();
    never.timer.advance(700 * MS);
    never.told(3, "expired");
}

/// After one has expired, before its callback, which would park the next.
#[test]
fn an_answer_between_two_attempts_is_not_lost() {
    for passed in 1..=3 {
        let (timer, attempts, later) = by_hand_and_late();
        let call = Call::over((timer, attempts)).start();
        for attempt in 1..=passed {
            assert_eq!(call.attempts.len(), 1);
            call.timer.advance(Duration::from_millis(50 << attempt));
            if attempt == passed {
                assert_eq!(call.answered(), 0);
            }
            later.run();
        }
        call.told(passed, "answer");
    }
}

/// And an answer is for its own call, not for another of this number.
#[test]
fn a_shutdown_is_told_before_and_during_a_wait() {
    let call = Call::over(by_hand()).start();
    let other = Call::over((call.timer.clone(), call.attempts.clone())).start();
    assert_eq!(other.answered(), 1);
    told(&other.seen, &[ATTEMPTS[0], "answer"]);
    call.attempts.shutdown(SECOND);
    call.told(1, "cancelled: shut down");
    let call = Call::over(by_hand());
    call.attempts.shutdown(SECOND);
    call.start().told(1, "the purgatory was shut down");
}

type Answers = mpsc::Sender<(u64, Outcome)>;

/// A request for partition 1 over this connection.
fn ask(of: &Scope, ready: &Arc<AtomicBool>, answers: &Answers) {
    let (ready, answers, number) = (ready.clone(), answers.clone(), of.number);
    let answer = move |outcome| answers.send((number, outcome)).unwrap();
    of.request(1, move || ready.load(SeqCst), answer).unwrap();
}

#[test]
fn a_close_ends_its_own_requests_and_no_others() {
    let ((_timer, requests), (answers, seen)) = (by_hand(), mpsc::channel());
    let [ours, theirs] =
        [1, 2].map(|number| Scope { number, closed: Arc::default(), requests: requests.clone() });
    let ready = Arc::default();
    [&ours, &theirs, &ours].into_iter().for_each(|of| ask(of, &ready, &answers));
    assert_eq!((ours.close(), requests.len(), requests.watched()), (2, 1, 2));
    let gone = requested("connection closed");
    told(&seen, &[(1, gone.clone()), (1, gone)]);
    ask(&ours, &ready, &answers); // to a client that has gone
    told(&seen, &[(1, Outcome::Completed)]);
    ready.store(true, SeqCst);
    assert_eq!(requests.check_and_complete(&Key::Partition(1)), 1);
    told(&seen, &[(2, Outcome::Completed)]);
    assert_eq!(ours.close() + theirs.close(), 0);
    requests.nothing_is_left();
}

/// The close falls between the request's first check and its registration.
#[test]
fn a_close_while_a_request_parks_is_noticed() {
    let ((_timer, requests), (answers, seen)) = (by_hand(), mpsc::channel());
    let waits = requests.clone();
    let ours = Arc::new(Scope { number: 1, closed: Arc::default(), requests });
    let (closes, closed) = (ours.clone(), AtomicBool::new(false));
    let check = move || {
        if !closed.swap(true, SeqCst) {
            closes.close();
        }
        false
    };
    ours.request(1, check, move |outcome| answers.send(outcome).unwrap()).unwrap();
    told(&seen, &[Outcome::Completed]);
    waits.nothing_is_left();
}

fn server() -> (ManualTimer, Server) {
    let (timer, drained) = by_hand();
    (timer, Server { stopping: Arc::default(), open: Arc::default(), drained })
}

#[test]
fn a_drain_waits_for_the_last_request() {
    every_order_and_early(|| {
        let (timer, server) = server();
        let waits = server.drained.clone();
        drop(server.begin().unwrap());
        let open = Mutex::new([server.begin(), server.begin()]);
        let complete = move || drop(open.lock().unwrap().each_mut().map(Option::take));
        Wait::new(timer, &waits, SECOND, move || server.drain(SECOND), complete)
    });
}

/// A request is open until its callback is over, whatever becomes of the answer: it has left its
/// purgatory before. And none begins meanwhile.
#[test]
fn a_request_is_open_until_it_was_answered() {
    let ((_timer, server), (_turns, requests, later)) =
        (server(), by_hand_and_late::<u32, BoxedOperation>());
    let open = server.begin().unwrap();
    let answer = move |_| {
        let _open = open;
        panic!("an answer");
    };
    requests.park(when(|| false, answer), &[1], NEVER);
    let mut drain = server.drain(SECOND);
    assert!(server.begin().is_none());
    assert_eq!(server.drained.check_and_complete(&()), 0); // an event too many
    assert_eq!((requests.complete_for_key(&1), requests.is_empty()), (1, true));
    assert!(poll(&mut drain).is_pending());
    later.run();
    assert_eq!((over(&mut drain), requests.stats().panics), (Ok(()), 1));
    assert_eq!(server.open.load(SeqCst), 0);
}

/// Requests that begin and end while it is drained: once it is, none is open and none begins.
#[test]
fn no_request_is_open_once_it_is_drained() {
    for _ in 0..20 {
        let ((_timer, server), served) = (server(), AtomicUsize::new(0));
        thread::scope(|scope| {
            let serve = || {
                while let Some(_open) = server.begin() {
                    served.fetch_add(1, SeqCst);
                }
            };
            let serving = [(); 2].map(|()| scope.spawn(serve));
            while served.load(SeqCst) < 10 {
                thread::yield_now();
            }
            server.drain(SECOND).wait_blocking().unwrap();
            let all = served.load(SeqCst);
            serving.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(served.load(SeqCst), all);
        });
        assert_eq!(server.open.load(SeqCst), 0);
    }
}
