//! Retry with backoff: where the answer comes among the attempts.

use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use purgatory::Purgatory;
use timer_core::ManualTimer;

use super::{MS, SECOND, by_hand, by_hand_and_late, guide::retry::Attempt};

const ATTEMPTS: [&str; 3] = ["attempt 0, 100ms", "attempt 1, 200ms", "attempt 2, 400ms"];

struct Call {
    timer: ManualTimer,
    attempts: Purgatory<u64, Attempt>,
    answer: Arc<OnceLock<String>>,
    told: mpsc::Sender<String>,
    seen: mpsc::Receiver<String>,
}

impl Call {
    fn over((timer, attempts): (ManualTimer, Purgatory<u64, Attempt>)) -> Call {
        let (told, seen) = mpsc::channel();
        Call { timer, attempts, answer: Arc::default(), told, seen }
    }

    fn start(self) -> Call {
        let (attempts, answer) = (self.attempts.clone(), self.answer.clone());
        Attempt { request: 7, number: 0, answer, attempts, told: self.told.clone() }.start();
        self
    }

    /// The answer comes; returns how many it completed.
    fn answered(&self) -> usize {
        let _ = self.answer.set("answer".to_owned());
        self.attempts.check_and_complete(&7)
    }

    /// So many attempts were told, and this end, and no more whatever comes.
    #[track_caller]
    fn told(&self, attempts: usize, end: &str) {
        self.answered();
        self.timer.advance(60 * SECOND);
        let expected: Vec<_> = ATTEMPTS[..attempts].iter().copied().chain([end]).collect();
        assert_eq!(self.seen.try_iter().collect::<Vec<_>>(), expected);
        super::nothing_is_left(&self.attempts);
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
}

#[test]
fn without_an_answer_the_last_attempt_expires() {
    let call = Call::over(by_hand()).start();
    call.timer.advance(700 * MS);
    assert_eq!(call.answered(), 0);
    call.told(3, "expired");
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

#[test]
fn a_shutdown_is_told_before_and_during_a_wait() {
    let call = Call::over(by_hand()).start();
    call.attempts.shutdown(SECOND);
    call.told(1, "cancelled: shut down");
    let call = Call::over(by_hand());
    call.attempts.shutdown(SECOND);
    call.start().told(1, "the purgatory was shut down");
}

/// Another request with the same number, and another number.
#[test]
fn an_answer_is_for_its_own_call() {
    let call = Call::over(by_hand()).start();
    let others = [7, 8].map(|request| {
        let ((told, seen), answer) = (mpsc::channel(), Arc::default());
        let attempts = call.attempts.clone();
        Attempt { request, number: 0, answer, attempts, told }.start();
        seen
    });
    assert_eq!(call.answered(), 1);
    call.told(1, "answer");
    for seen in others {
        assert_eq!(seen.try_iter().last().as_deref(), Some("expired"));
    }
}
