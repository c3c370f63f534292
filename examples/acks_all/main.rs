//! acks=all: a produce is answered once every replica has its record, or when its time is
//! up. Here a leader and two followers are threads of one process.
//!
//! This file is all that a broker writes to use the purgatory. The way of a record:
//! 1. [`Leader::produce`] appends it to the log of a [`Partition`], and parks a [`DelayedProduce`]
//!    under the partition's key, until the high watermark has passed it;
//! 2. each follower fetches it, writes it to a log of its own, and says so with its next
//!    [fetch](Leader::fetch), which may move the high watermark: the event;
//! 3. the event completes the produces that it reaches, or the timing wheel expires them first.
//!    Both end in [`on_complete`](DelayedProduce::on_complete), which answers.
//!
//! [`partition`] is what the leader knows: logs and high watermarks. The [`verifier`] is the rest
//! of the program: producers, followers (one can stall), and the books in which every answer is
//! checked.
//!
//! `cargo run --release --example acks_all -- --help`

mod partition;
mod verifier;

use std::{process::ExitCode, time::Duration};

use purgatory::{DelayedOperation, Outcome, Purgatory, RefusedReason, Watches};
use timer_core::BuildError;

use partition::{Partition, PartitionKey, Record};
use verifier::load::Request;

/// A produce that waits until every replica has its record.
#[derive(Debug)]
struct DelayedProduce {
    /// The producer's, to be answered.
    request: Request,
    /// The high watermark of its partition that acknowledges its record.
    required_offset: u64,
}

impl DelayedOperation for DelayedProduce {
    /// Called when it is parked and by events, on the thread that does so: it must not block.
    fn try_complete(&mut self) -> bool {
        self.request.partition().high_watermark() >= self.required_offset
    }

    /// Called once, whichever comes first; it takes the operation by value.
    fn on_complete(self, outcome: Outcome) {
        self.answer(match outcome {
            Outcome::Completed => Answer::Acknowledged,
            Outcome::Expired => Answer::TimedOut,
            _ => Answer::Cancelled,
        });
    }
}

impl DelayedProduce {
    fn answer(self, answer: Answer) {
        self.request.answer(answer, self.required_offset);
    }
}

/// The answer to a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Every replica has it.
    Acknowledged,
    /// The leader has it; not every follower has written it in time.
    TimedOut,
    /// The leader was shut down meanwhile.
    Cancelled,
    /// The purgatory would not take it.
    Refused(RefusedReason),
}

/// The leader of all partitions, and where the produces wait for its followers.
#[derive(Debug)]
struct Leader {
    partitions: Vec<Partition>,
    produces: Purgatory<PartitionKey, DelayedProduce>,
}

impl Leader {
    /// Empty partitions, and a purgatory with a timing wheel of its own.
    fn new(partitions: u32) -> Result<Self, BuildError> {
        let partitions = (0..partitions).map(Partition::new).collect();
        Ok(Self {
            partitions,
            produces: Purgatory::new("produce")?,
        })
    }

    /// A producer's request: appends the record to its partition, and answers when every
    /// replica has it, or after `timeout`.
    fn produce(&self, request: Request, record: Record, timeout: Duration) {
        let partition = request.partition();
        let required_offset = partition.append(record);
        let until = [(partition.key, required_offset)];
        let produce = DelayedProduce {
            request,
            required_offset,
        };
        // A record that every replica has already is answered here; refused, it comes back.
        let parked =
            self.produces
                .try_complete_else_watch(produce, Watches::up_to(&until), timeout);
        if let Err(refused) = parked {
            let reason = refused.reason;
            refused.into_inner().answer(Answer::Refused(reason));
        }
    }

    /// A follower's fetch: it says that it has everything below `log_end`, and gets what comes
    /// next.
    fn fetch(&self, from: &Partition, follower: usize, log_end: u64, into: &mut Vec<Record>) {
        // The event follows the change of the condition, with no lock held. It completes the
        // produces that the high watermark has reached; no other is looked at.
        if let Some(high_watermark) = from.fetch(follower, log_end, into) {
            self.produces.complete_up_to(&from.key, high_watermark);
        }
    }

    /// Ends what still waits as cancelled, and refuses what comes.
    fn shut_down(&self) {
        self.produces.shutdown(Duration::from_secs(5));
    }
}

fn main() -> ExitCode {
    verifier::main()
}
