//! Requests: sent again, limited to the life of their connection, answered until the server stops.

use super::{
    guide::{connection::Connection as Scope, drain::Server, retry::Attempt},
    *,
};

const ATTEMPTS: [&str; 3] = ["attempt 0, 100ms", "attempt 1, 200ms", "attempt 2, 400ms"];

struct Call {
    timer: ManualTimer,
    attempts: Purgatory<u64, Attempt>,
    answer: Arc<OnceLock<String>>,
    reports: mpsc::Sender<String>,
    seen: mpsc::Receiver<String>,
}

impl Call {
    fn over((timer, attempts): (ManualTimer, Purgatory<u64, Attempt>)) -> Call {
        let (reports, seen) = mpsc::channel();
        Call {
            timer,
            attempts,
            answer: Arc::default(),
            reports,
            seen,
        }
    }

    fn start(self) -> Call {
        let first = Attempt {
            request: 7,
            number: 0,
            answer: self.answer.clone(),
            attempts: self.attempts.clone(),
            reports: self.reports.clone(),
        };
        first.start();
        self
    }

    /// Lets the answer come; returns the number of attempts that it completed.
    fn answered(&self) -> usize {
        let _ = self.answer.set("answer".to_owned());
        self.attempts.check_and_complete(&7)
    }

    /// Checks that this number of attempts was reported, then this end, and nothing after it.
    #[track_caller]
    fn ended(&self, attempts: usize, end: &str) {
        self.answered();
        self.timer.advance(MINUTE);
        reported(&self.seen, &[&ATTEMPTS[..attempts], &[end]].concat());
        nothing_is_left(&self.attempts);
    }
}

/// The answer comes after an attempt has expired and before its callback, which would park the next
/// one.
#[test]
fn an_answer_between_two_attempts_is_not_lost() {
    for passed in 1..=3 {
        let (timer, attempts, later) = manual_and_late();
        let call = Call::over((timer, attempts)).start();
        for attempt in 1..=passed {
            assert_eq!(call.attempts.len(), 1);
            call.timer.advance(Duration::from_millis(50 << attempt));
            if attempt == passed {
                assert_eq!(call.answered(), 0);
            }
            later.run();
        }
        call.ended(passed, "answer");
    }
    let never = Call::over(by_hand()).start();
    never.timer.advance(700 * MS);
    never.ended(3, "expired");
}

/// An answer is for its own call, not for another call with the same number.
#[test]
fn a_shutdown_is_reported_before_and_during_a_wait() {
    let call = Call::over(by_hand()).start();
    let other = Call::over((call.timer.clone(), call.attempts.clone())).start();
    assert_eq!(other.answered(), 1);
    reported(&other.seen, &[ATTEMPTS[0], "answer"]);
    call.attempts.shutdown(SECOND);
    call.ended(1, "cancelled: shut down");
    let call = Call::over(by_hand());
    call.attempts.shutdown(SECOND);
    call.start().ended(1, "the purgatory was shut down");
}

/// The answer has come when the shutdown refuses the attempt.
#[test]
fn a_refused_attempt_reports_its_answer() {
    let call = Call::over(by_hand());
    call.attempts.shutdown(SECOND);
    call.answered();
    call.start().ended(1, "answer");
}

/// The close comes between the request's first check and its registration.
#[test]
fn a_close_while_a_request_parks_cancels_it() {
    let (_timer, requests) = by_hand();
    let (answers, seen) = mpsc::channel();
    let ours = Arc::new(Scope {
        number: 1,
        closed: AtomicBool::default(),
        requests,
    });
    let closes = ours.clone();
    let closed = AtomicBool::new(false);
    let check = move || {
        if !closed.swap(true, SeqCst) {
            closes.close();
        }
        false
    };
    ours.request(1, check, move |outcome| answers.send(outcome).unwrap())
        .unwrap();
    let closed = Outcome::Cancelled(CancelReason::Requested("connection closed".into()));
    reported(&seen, &[closed]);
    nothing_is_left(&ours.requests);
}

/// Requests begin and end while the server drains. Once it is drained, no request is open or
/// begins.
#[test]
fn no_request_is_open_once_it_is_drained() {
    for _ in 0..20 {
        let server = Server {
            stopping: Arc::default(),
            open: Arc::default(),
            drained: by_hand().1,
        };
        let served = AtomicUsize::new(0);
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
            for thread in serving {
                thread.join().unwrap();
            }
            assert_eq!(served.load(SeqCst), all);
        });
        assert_eq!(server.open.load(SeqCst), 0);
    }
}
