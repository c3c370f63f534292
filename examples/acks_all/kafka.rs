//! Kafka's own way: a produce is a [`DelayedOperation`], parked under its partition, and checked
//! when the high watermark has moved.

use std::time::Duration;

use purgatory::{DelayedOperation, Outcome, Purgatory};
use timer_core::BuildError;

use crate::partition::{Change, LogEnd, Partition, PartitionKey, Record};
use crate::verifier::load::Request;
use crate::{AcksAll, Answer};

/// A produce that waits until every in-sync replica has its record.
#[derive(Debug)]
pub(crate) struct DelayedProduce {
    /// The producer's request, to be answered.
    request: Request,
    /// The high watermark that acknowledges the record, in the epoch in which it was appended.
    required: LogEnd,
    /// The high watermark reached `required` before the epoch was over.
    acknowledged: bool,
}

impl DelayedOperation for DelayedProduce {
    /// Checks the condition: called when the produce is parked, and after each event of its key. It
    /// runs on the thread that parks or signals, so it must not block.
    fn try_complete(&mut self) -> bool {
        let high_watermark = &self.request.partition().high_watermark;
        self.acknowledged = high_watermark.has_reached(self.required);
        self.acknowledged || high_watermark.is_over(self.required.epoch)
    }

    /// Answers the producer. Called once, for the ending that came first.
    fn on_complete(self, outcome: Outcome) {
        let answer = match outcome {
            Outcome::Completed if self.acknowledged => Answer::Acknowledged,
            Outcome::Completed => Answer::LeaderChanged,
            Outcome::Expired => Answer::TimedOut,
            _ => Answer::Cancelled,
        };
        self.request.answer(answer, self.required);
    }
}

/// The purgatory in which produces wait for the followers.
#[derive(Debug)]
pub(crate) struct Kafka {
    pub(crate) produces: Purgatory<PartitionKey, DelayedProduce>,
}

impl Kafka {
    /// Makes a purgatory with a timing wheel of its own.
    pub(crate) fn new() -> Result<Self, BuildError> {
        let produces = Purgatory::new("produce")?;
        Ok(Self { produces })
    }
}

impl AcksAll for Kafka {
    fn produce(&self, request: Request, record: Record, timeout: Duration) {
        // Append first: the log's new end is the high watermark that acknowledges the record.
        let required = request.partition().append(record, |_| ());
        let key = [request.partition().key];
        let produce = DelayedProduce {
            request,
            required,
            acknowledged: false,
        };
        // Park the produce. A refused one is handed back, and answered like any other.
        let produces = &self.produces;
        if let Err(refused) = produces.try_complete_else_watch(produce, &key, timeout) {
            let answer = Answer::Refused(refused.reason.clone());
            let DelayedProduce { request, .. } = refused.into_inner();
            request.answer(answer, required);
        }
    }

    fn fetch(&self, from: &Partition, follower: usize, has: LogEnd) -> bool {
        // Signal the key after the change of the condition, with no lock held.
        let noted = from.high_watermark.note(follower, has);
        if noted.advanced {
            self.produces.check_and_complete(&from.key);
        }
        noted.in_sync
    }

    fn falls_out(&self, of: &Partition, follower: usize) -> usize {
        of.high_watermark.falls_out(follower);
        self.produces.check_and_complete(&of.key)
    }

    fn change_leader(&self, of: &Partition) -> Change {
        // The event checks the produces of the previous epoch, which find that it is over.
        let change = of.change_leader(|start| of.high_watermark.begin_epoch(start));
        self.produces.check_and_complete(&of.key);
        change
    }
}
