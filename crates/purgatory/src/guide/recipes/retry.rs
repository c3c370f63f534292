//! A request that is sent again when no answer comes: up to three times, with twice the time.

use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use purgatory::{DelayedOperation, Outcome, Purgatory};

pub struct Attempt {
    pub request: u64,
    pub number: u32,
    pub answer: Arc<OnceLock<String>>,
    pub attempts: Purgatory<u64, Attempt>,
    pub told: mpsc::Sender<String>,
}

impl Attempt {
    pub fn start(self) {
        let (attempts, request) = (self.attempts.clone(), self.request);
        let timeout = Duration::from_millis(100 << self.number);
        let _ = self
            .told
            .send(format!("attempt {}, {timeout:?}", self.number));
        if let Err(refused) = attempts.try_complete_else_watch(self, &[request], timeout) {
            let reason = refused.reason.to_string();
            let _ = refused.into_inner().told.send(reason);
        }
    }
}

impl DelayedOperation for Attempt {
    fn try_complete(&mut self) -> bool {
        self.answer.get().is_some()
    }

    fn on_complete(self, outcome: Outcome) {
        match (self.answer.get().cloned(), outcome) {
            (Some(answer), _) => _ = self.told.send(answer),
            (None, Outcome::Expired) if self.number < 2 => Attempt {
                number: self.number + 1,
                ..self
            }
            .start(),
            (None, outcome) => _ = self.told.send(outcome.to_string()),
        }
    }
}
