//! Retry with backoff in every order.

use std::{
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use purgatory::Purgatory;
use timer_core::ManualTimer;

use super::{Later, MS, SECOND, guide::retry::Attempt};

const ATTEMPTS: [&str; 3] = ["attempt 0, 100ms", "attempt 1, 200ms", "attempt 2, 400ms"];

struct Call {
    timer: ManualTimer,
    attempts: Purgatory<u64, Attempt>,
    answer: Arc<OnceLock<String>>,
    seen: mpsc::Receiver<String>,
}

impl Call {
    /// A call that is ready to start, and its first attempt.
    fn new(executor: Option<Later>) -> (Call, Attempt) {
        let timer = ManualTimer::new();
        let builder = Purgatory::builder("attempts").timer(&timer);
        let attempts = match executor {
            Some(executor) => builder.executor(executor).build().unwrap(),
            None => builder.build().unwrap(),
        };
        let ((told, seen), answer) = (mpsc::channel(), Arc::default());
        let call = Call { timer, attempts, answer, seen };
        let (attempts, answer) = (call.attempts.clone(), call.answer.clone());
        (call, Attempt { request: 7, number: 0, answer, attempts, told })
    }

    fn started() -> Call {
        let (call, first) = Call::new(None);
        first.start();
        call
    }

    /// The answer comes; returns how many it completed.
    fn answered(&self) -> usize {
        let _ = self.answer.set("answer".to_owned());
        self.attempts.check_and_complete(&7)
    }

    #[track_caller]
    fn told(&self, attempts: usize, end: &str) {
        let expected: Vec<_> = ATTEMPTS[..attempts].iter().copied().chain([end]).collect();
        assert_eq!(self.seen.try_iter().collect::<Vec<_>>(), expected);
        // And that was all, whatever else comes.
        self.answered();
        self.timer.advance(60_000 * MS);
        assert_eq!(self.seen.try_iter().next(), None);
        assert!(self.attempts.is_empty());
    }
}

#[test]
fn an_answer_completes_whichever_attempt_waits() {
    for (at_ms, attempts) in [(0, 1), (99, 1), (100, 2), (299, 2), (300, 3), (699, 3)] {
        let call = Call::started();
        call.timer.advance(at_ms * MS);
        assert_eq!(call.answered(), 1, "after {at_ms} ms");
        assert_eq!(call.answered(), 0);
        call.told(attempts, "answer");
    }
}

#[test]
fn without_an_answer_the_last_attempt_expires_and_a_late_one_changes_nothing() {
    let call = Call::started();
    call.timer.advance(700 * MS);
    assert_eq!(call.answered(), 0);
    call.told(3, "expired");
}

#[test]
fn an_answer_before_the_first_attempt_waits_is_found() {
    let (call, first) = Call::new(None);
    assert_eq!(call.answered(), 0);
    first.start();
    call.told(1, "answer");
}

/// After one has expired, before its callback, which would park the next.
#[test]
fn an_answer_between_two_attempts_or_after_the_last_expiry_is_not_lost() {
    for passed in 1..=3 {
        let later = Later::default();
        let (call, first) = Call::new(Some(later.clone()));
        first.start();
        for attempt in 1..=passed {
            assert_eq!(call.attempts.len(), 1);
            call.timer.advance(Duration::from_millis(50 << attempt));
            assert!(call.attempts.is_empty());
            if attempt == passed {
                assert_eq!(call.answered(), 0);
            }
            later.run();
        }
        call.told(passed, "answer");
    }
}

#[test]
fn a_shutdown_is_told_before_and_while_an_attempt_waits() {
    let call = Call::started();
    call.attempts.shutdown(SECOND);
    call.told(1, "cancelled: shut down");

    let (call, first) = Call::new(None);
    call.attempts.shutdown(SECOND);
    first.start();
    call.told(1, "the purgatory was shut down");
}

/// Whether the answer comes before, while or after an attempt expires is the scheduler's
/// choice.
#[test]
fn an_answer_that_races_with_the_expiries_is_told_once() {
    for _ in 0..500 {
        let Call { timer, attempts, answer, seen } = Call::started();
        thread::scope(|scope| {
            let expires = scope.spawn(|| timer.advance(100 * MS));
            let answers = scope.spawn(|| {
                answer.set("answer".to_owned()).unwrap();
                attempts.check_and_complete(&7);
            });
            expires.join().unwrap();
            answers.join().unwrap();
        });
        timer.advance(60_000 * MS);
        let told: Vec<_> = seen.try_iter().collect();
        assert!(told[1..] == ["answer"] || told[1..] == [ATTEMPTS[1], "answer"], "{told:?}");
        assert!(attempts.is_empty());
    }
}

/// A client that goes fills the cell: between two attempts, too, where nothing could be cancelled.
#[test]
fn a_client_that_gives_up_ends_it_while_an_attempt_waits_and_between_two() {
    for between in [false, true] {
        let later = Later::default();
        let (call, first) = Call::new(Some(later.clone()));
        first.start();
        if between {
            call.timer.advance(100 * MS);
        }
        call.answer.set("given up".to_owned()).unwrap();
        assert_eq!(call.attempts.check_and_complete(&7), usize::from(!between));
        later.run();
        call.told(1, "given up");
        super::nothing_is_left(&call.attempts);
    }
}

#[test]
fn nobody_needs_to_listen() {
    let Call { timer, attempts, seen, .. } = Call::started();
    drop(seen);
    timer.advance(60_000 * MS);
    assert_eq!(attempts.stats().expired, 3);
    super::nothing_is_left(&attempts);
}

/// Another request meanwhile, and the same one once more.
#[test]
fn an_answer_is_for_its_own_call() {
    let call = Call::started();
    let start = |request| {
        let ((told, seen), answer) = (mpsc::channel(), Arc::default());
        let attempts = call.attempts.clone();
        Attempt { request, number: 0, answer, attempts, told }.start();
        seen
    };
    let others = [start(7), start(8)];
    assert_eq!(call.answered(), 1);
    call.timer.advance(60_000 * MS);
    for seen in others {
        let expected: Vec<_> = ATTEMPTS.into_iter().chain(["expired"]).collect();
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected);
    }
    call.told(1, "answer");
}
