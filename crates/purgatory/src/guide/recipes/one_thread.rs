// A log and the fetches that wait for it, all on one thread, whose loop advances the timer.

use std::{cell::Cell, rc::Rc, time::Duration};

use purgatory::timer_core::{BuildError, Clock, ManualTimer};
use purgatory::{OperationId, Outcome, Purgatory, WaitError, when};
use send_wrapper::SendWrapper;

pub struct Log {
    pub end: Rc<Cell<u64>>,
    pub fetches: Purgatory<&'static str>,
    pub timer: ManualTimer,
}

impl Log {
    pub fn new(timer: ManualTimer) -> Result<Self, BuildError> {
        let fetches = Purgatory::builder("fetch")
            .timer(&timer)
            .shards(1)
            .build()?;
        Ok(Log {
            end: Rc::default(),
            fetches,
            timer,
        })
    }

    /// Advances the timer to this moment. Fetches whose time is up expire here, on this thread.
    pub fn advance_to(&self, now: Duration) {
        let shown = Duration::from_nanos(self.timer.clock().now_ns());
        self.timer.advance(now.saturating_sub(shown));
    }

    /// Answers once the log has come to this offset, or `timeout` after the last advance.
    pub fn fetch(
        &self,
        offset: u64,
        timeout: Duration,
        answer: impl FnOnce(Outcome) + 'static,
    ) -> Result<Option<OperationId>, WaitError> {
        let end = SendWrapper::new(self.end.clone());
        let answer = SendWrapper::new(answer);
        let fetch = when(
            move || end.get() >= offset,
            move |outcome| answer.take()(outcome),
        );
        let parked = self
            .fetches
            .try_complete_else_watch(fetch, &["log"], timeout)?;
        Ok(parked)
    }

    pub fn append(&self) -> usize {
        self.end.set(self.end.get() + 1); // the condition first ...
        self.fetches.check_and_complete(&"log") // ... then its event
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = Log::new(ManualTimer::new())?;
    let answers: Rc<Cell<Vec<String>>> = Rc::default();
    log.advance_to(Duration::from_millis(20));
    for (offset, timeout_ms) in [(1, 5000), (9, 300)] {
        let answers = answers.clone();
        log.fetch(offset, Duration::from_millis(timeout_ms), move |outcome| {
            let mut all = answers.take();
            all.push(format!("{offset} {outcome}"));
            answers.set(all);
        })?;
    }
    assert_eq!(log.append(), 1);
    log.advance_to(Duration::from_millis(320)); // 300 ms later
    assert_eq!(answers.take(), ["1 completed", "9 expired"]);
    Ok(())
}
