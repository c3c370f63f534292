// A purgatory for each core: one thread parks, checks, expires and calls back. Other threads send
// it messages.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use purgatory::timer_core::{BuildError, ManualTimer};
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

    /// One round of the core's loop, `passed` after the last. Returns the time until the next
    /// deadline; zero if messages are left.
    pub fn run_once(&self, passed: Duration) -> Option<Duration> {
        self.timer.advance(passed); // requests whose time is up expire here
        for _ in 0..MESSAGES_MAX {
            let Ok((key, message)) = self.inbox.try_recv() else {
                return self.timer.next_due_in();
            };
            match message {
                Message::Request(timeout, request) => self.park(key, request, timeout),
                Message::Event => {
                    self.waits.check_and_complete(&key);
                }
            }
        }
        Some(Duration::ZERO)
    }

    /// Each request is answered: a refused one here.
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
    let (client, answers) = channel();
    let request = purgatory::when(|| true, move |outcome| client.send(outcome).unwrap());
    outbox.send((7, Message::Request(Duration::from_secs(30), request)))?; // on any thread
    core.run_once(Duration::ZERO);
    assert_eq!(answers.recv()?, purgatory::Outcome::Completed);
    Ok(())
}
