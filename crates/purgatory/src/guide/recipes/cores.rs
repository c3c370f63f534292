//! A purgatory for each core: one thread parks, checks, expires and calls back. Others send to it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use purgatory::timer_core::{BuildError, ManualTimer};
use purgatory::{BoxedOperation, Purgatory};

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
        let ((outbox, inbox), timer) = (channel(), ManualTimer::new());
        let waits = Purgatory::builder("core").timer(&timer).shards(1).build()?;
        Ok((
            outbox,
            Core {
                inbox,
                timer,
                waits,
            },
        ))
    }

    /// A round of its loop, so long after the last; gives the time until the next is due.
    pub fn turn(&self, passed: Duration) -> Result<Option<Duration>, purgatory::RefusedReason> {
        self.timer.advance(passed); // what is due expires here
        for (key, message) in self.inbox.try_iter() {
            match message {
                Message::Request(timeout, request) => {
                    self.waits
                        .try_complete_else_watch(request, &[key], timeout)?;
                }
                Message::Event => _ = self.waits.check_and_complete(&key),
            }
        }
        Ok(self.timer.next_due_in())
    }
}
