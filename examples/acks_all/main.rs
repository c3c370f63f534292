//! acks=all: a produce is answered once every in-sync replica has its record, or when its timeout
//! fires. Here a leader and two followers are threads of one process.
//!
//! This file is all that a broker writes to use the purgatory. The way of a record:
//! 1. [`Leader::produce`] appends it to the log of a [`Partition`], and parks a [`DelayedProduce`]
//!    under the partition's key, until the high watermark has passed it.
//! 2. Each follower fetches it, writes it to a log of its own, and says so with its next
//!    [fetch](Leader::fetch), which may advance the high watermark: the event. A follower that
//!    [falls out](Leader::falls_out) of the in-sync set may advance it, too: the produces that
//!    waited for that follower go on with the replicas that are left.
//! 3. The event completes the produces that it reaches, or the timing wheel expires them first.
//!    Both end in [`on_complete`](DelayedProduce::on_complete), which answers.
//!
//! [`partition`] is what the leader knows: logs and high watermarks. The [`verifier`] is the rest
//! of the program: producers, followers (one can stall, and fall out), and the audit of every
//! answer.
//!
//! `cargo run --release --example acks_all -- --help`

mod partition;
mod verifier;

use std::{process::ExitCode, time::Duration};

use purgatory::{DelayedOperation, Outcome, Purgatory, RefusedReason, Watches};
use timer_core::BuildError;

use partition::{Partition, PartitionKey, Record};
use verifier::load::Request;

/// A produce that waits until every in-sync replica has its record.
#[derive(Debug)]
struct DelayedProduce {
    /// The producer's request, to be answered.
    request: Request,
    /// The high watermark of its partition that acknowledges its record.
    required_offset: u64,
}

impl DelayedOperation for DelayedProduce {
    /// Checks the condition: called when the produce is parked, and when its watermark is reached.
    /// It runs on the thread that parks or advances, so it must not block.
    fn try_complete(&mut self) -> bool {
        self.request.partition().high_watermark() >= self.required_offset
    }

    /// Answers the producer. Called once, for the ending that came first; it takes the operation by
    /// value.
    fn on_complete(self, outcome: Outcome) {
        let answer = match outcome {
            Outcome::Completed => Answer::Acknowledged,
            Outcome::Expired => Answer::TimedOut,
            _ => Answer::Cancelled,
        };
        self.answer(answer);
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
    /// Every in-sync replica has it.
    Acknowledged,
    /// The leader has it; not every in-sync follower has written it in time.
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
    /// Makes empty partitions, and a purgatory with a timing wheel of its own.
    fn new(partitions: u32) -> Result<Self, BuildError> {
        let produces = Purgatory::new("produce")?;
        let partitions = (0..partitions).map(Partition::new).collect();
        Ok(Self {
            partitions,
            produces,
        })
    }

    /// Serves a producer's request: appends the record to its partition, and answers when every
    /// in-sync replica has it, or after `timeout`.
    fn produce(&self, request: Request, record: Record, timeout: Duration) {
        // Append first: the log's end is the watermark that acknowledges the record.
        let partition = request.partition();
        let key = partition.key;
        let required_offset = partition.append(record);
        let produce = DelayedProduce {
            request,
            required_offset,
        };

        // Park until the watermark is reached. A record that every in-sync replica has already
        // is answered here.
        let until = [(key, required_offset)];
        let watches = Watches::up_to(&until);
        let parked = self
            .produces
            .try_complete_else_watch(produce, watches, timeout);

        // A refused operation comes back, and is answered like any other.
        if let Err(refused) = parked {
            let reason = refused.reason;
            refused.into_inner().answer(Answer::Refused(reason));
        }
    }

    /// Serves a follower's fetch: it says that it has everything below `log_end`, and gets what
    /// comes next.
    fn fetch(&self, from: &Partition, follower: usize, log_end: u64, into: &mut Vec<Record>) {
        // The event follows the change of the condition, with no lock held. It completes the
        // produces that the high watermark has reached; no other is looked at.
        if let Some(high_watermark) = from.fetch(follower, log_end, into) {
            self.produces.complete_up_to(&from.key, high_watermark);
        }
    }

    /// Takes a follower that has fallen behind out of a partition's in-sync set. Returns how many
    /// produces waited for it alone: they are acknowledged by the replicas that are left.
    fn falls_out(&self, of: &Partition, follower: usize) -> usize {
        match of.falls_out(follower) {
            Some(high_watermark) => self.produces.complete_up_to(&of.key, high_watermark),
            None => 0,
        }
    }

    /// Cancels what still waits, and refuses what comes.
    fn shut_down(&self) {
        self.produces.shutdown(Duration::from_secs(5));
    }
}

fn main() -> ExitCode {
    verifier::main()
}
