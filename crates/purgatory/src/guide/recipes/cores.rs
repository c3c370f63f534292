// A purgatory for each core: one thread parks, checks, expires and calls back. Other threads send
// it messages.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use purgatory::timer_core::{BuildError, Clock, ManualTimer, SystemClock};
use purgatory::{BoxedOperation, CancelReason, DelayedOperation, Outcome, Purgatory};

/// The most messages of one round, so that requests expire under load, too.
const MESSAGES_MAX: usize = 1000;

pub enum Message {
    Request(Duration, BoxedOperation),
    Event,
}

pub struct Core {
    inbox: Receiver<(u64, Message)>,
    timer: ManualTimer,
    pub waits: Purgatory<u64>,
}

impl Core {
    pub fn new() -> Result<(Sender<(u64, Message)>, Core), BuildError> {
        let (outbox, inbox) = channel();
        let timer = ManualTimer::new();
        let waits = Purgatory::builder("core").timer(&timer).shards(1).build()?;
        let core = Core {
            inbox,
            timer,
            waits,
        };
        Ok((outbox, core))
    }

    /// The core's loop. It ends when all senders are gone and all messages are handled. Requests
    /// that still wait are then cancelled, since no sender is left to complete them.
    pub fn run(self) {
        let clock = SystemClock::new();
        let now = || Duration::from_nanos(clock.now_ns());
        let mut advanced_at = now();
        let mut sleep = Duration::MAX;
        loop {
            let first = match self.inbox.recv_timeout(sleep) {
                Err(RecvTimeoutError::Disconnected) => break,
                first => first.ok(),
            };
            let passed = now() - advanced_at;
            let next_due = self.run_once(passed, first);
            advanced_at += passed;
            // `next_due` counts from the advance, and the round has taken some of that time.
            sleep = match next_due {
                Some(next_due) => (advanced_at + next_due).saturating_sub(now()),
                None => Duration::MAX,
            };
        }
        self.waits.shutdown(Duration::ZERO);
    }

    /// One round, `passed` after the last: handles this message, then those that have come. Returns
    /// the time from the start of the round until the next deadline; zero if messages may be left.
    pub fn run_once(&self, passed: Duration, first: Option<(u64, Message)>) -> Option<Duration> {
        self.timer.advance(passed); // requests whose time is up expire here
        let mut handled = 0;
        let messages = first.into_iter().chain(self.inbox.try_iter());
        for (key, message) in messages.take(MESSAGES_MAX) {
            match message {
                Message::Request(timeout, request) => self.park(key, request, timeout),
                Message::Event => {
                    self.waits.check_and_complete(&key);
                }
            }
            handled += 1;
        }
        if handled == MESSAGES_MAX {
            return Some(Duration::ZERO);
        }
        self.timer.next_due_in()
    }

    /// Parks a request, or answers it here if it is refused.
    fn park(&self, key: u64, request: BoxedOperation, timeout: Duration) {
        let parked = self.waits.try_complete_else_watch(request, &[key], timeout);
        if let Err(refused) = parked {
            let reason = refused.reason.to_string();
            let outcome = Outcome::Cancelled(CancelReason::Requested(reason.into()));
            refused.into_inner().on_complete(outcome);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (outbox, core) = Core::new()?;
    let core = thread::spawn(move || core.run());
    let (client, answers) = channel();
    let request = purgatory::when(|| true, move |outcome| client.send(outcome).unwrap());
    outbox.send((7, Message::Request(Duration::from_secs(30), request)))?; // on any thread
    assert_eq!(answers.recv()?, Outcome::Completed);
    drop(outbox);
    core.join().unwrap();
    Ok(())
}
