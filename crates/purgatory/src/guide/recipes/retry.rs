// A request that is sent up to three times while no answer comes, each time with twice the timeout.

use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use purgatory::{DelayedOperation, Outcome, Purgatory};

const ATTEMPTS: u32 = 3;

pub struct Attempt {
    pub request: u64,
    pub number: u32,
    pub answer: Arc<OnceLock<String>>,
    pub attempts: Purgatory<u64, Attempt>,
    pub reports: mpsc::Sender<String>,
}

impl Attempt {
    pub fn start(self) {
        let attempts = self.attempts.clone();
        let request = self.request;
        let timeout = Duration::from_millis(100 << self.number);
        self.report(format!("attempt {}, {timeout:?}", self.number));
        if let Err(refused) = attempts.try_complete_else_watch(self, &[request], timeout) {
            let reason = refused.reason.to_string();
            refused.into_inner().end(reason);
        }
    }

    /// Reports the answer, even if it came after the deadline, or else the reason why none came.
    fn end(&self, reason: String) {
        self.report(self.answer.get().cloned().unwrap_or(reason));
    }

    fn report(&self, text: String) {
        let _ = self.reports.send(text); // the receiver may have gone
    }
}

impl DelayedOperation for Attempt {
    fn try_complete(&mut self) -> bool {
        self.answer.get().is_some()
    }

    fn on_complete(self, outcome: Outcome) {
        let is_answered = self.answer.get().is_some();
        if !is_answered && outcome == Outcome::Expired && self.number + 1 < ATTEMPTS {
            let next = Attempt {
                number: self.number + 1,
                ..self
            };
            next.start();
        } else {
            self.end(outcome.to_string());
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = purgatory::timer_core::ManualTimer::new();
    let attempts = Purgatory::on(&timer, "attempts")?;
    let (reports, seen) = mpsc::channel();
    let answer = Arc::new(OnceLock::new());
    let first = Attempt {
        request: 7,
        number: 0,
        answer: answer.clone(),
        attempts: attempts.clone(),
        reports,
    };
    first.start();
    timer.advance(Duration::from_millis(150));
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        ["attempt 0, 100ms", "attempt 1, 200ms"]
    );
    answer.set("42".to_owned())?; // the condition first ...
    assert_eq!(attempts.check_and_complete(&7), 1); // ... then its event
    timer.advance(Duration::from_secs(60));
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["42"]);
    Ok(())
}
