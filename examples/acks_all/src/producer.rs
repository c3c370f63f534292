//! A producer: appends its lines to the leader's logs, and parks each one until it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::Parker;

use crate::in_sync::HighWatermark;
use crate::ledger::PAGE;
use crate::pacer::Pacer;
use crate::produce::{
    DelayedProduce, Issue, ProducePurgatory, Session, high_watermark_advanced, park,
};
use crate::record::{Record, RecordId};
use crate::stop::Stop;
use crate::text::Text;

/// The shortest wait for the next turn: a thread does not wake up much faster than this anyway.
const TURN_MIN: Duration = Duration::from_millis(1);

/// One producing thread's part.
#[derive(Debug)]
pub struct Producer {
    /// Its number, from 0.
    pub number: u16,
    /// How many producers there are; they share the lines out.
    pub producers: u16,
    /// What its operations need.
    pub session: Arc<Session>,
    /// What it sends.
    pub text: Arc<Text>,
    /// How fast.
    pub pacer: Pacer,
    /// Where it waits for a slot.
    pub parker: Parker,
}

impl Producer {
    /// Produces until `stop` is raised.
    pub fn run(mut self, purgatory: &ProducePurgatory, stop: &Stop) {
        let mut issue = self.next_issue();
        while self.await_turn(stop) && self.session.slots.take(&self.parker, stop) {
            let sequence = self.session.books.ledger(usize::from(self.number)).issue();
            self.produce(sequence, &issue, purgatory);
            if (sequence + 1).is_multiple_of(PAGE) {
                issue = self.next_issue();
            }
        }
    }

    fn next_issue(&self) -> Arc<Issue> {
        let page = self.session.books.ledger(usize::from(self.number)).new_page();
        Arc::new(Issue { session: Arc::clone(&self.session), page })
    }

    /// Waits for this producer's turn under the rate; false when it is time to stop.
    fn await_turn(&mut self, stop: &Stop) -> bool {
        if !self.pacer.is_paced() {
            return !stop.is_raised();
        }
        while let Some(wait) = self.pacer.wait(self.session.clock.now()) {
            if stop.pause(wait.max(TURN_MIN)) {
                return false;
            }
        }
        !stop.is_raised()
    }

    /// Appends the record and parks its operation.
    fn produce(&self, sequence: u64, issue: &Arc<Issue>, purgatory: &ProducePurgatory) {
        let id = RecordId::new(self.number, sequence);
        let turn = sequence * u64::from(self.producers) + u64::from(self.number);
        let line = (turn % self.text.len() as u64) as u32;
        let bytes = self.text.line(line).len() as u32;

        let cluster = &self.session.cluster;
        let key = crate::partition::PartitionKey(id.partition(cluster.len()));
        let appended = cluster.partition(key).append(Record { id, line });
        if appended.high_watermark == HighWatermark::Advanced {
            high_watermark_advanced(purgatory, cluster, key);
        }
        let produce = DelayedProduce::new(issue, id, appended.required_offset, bytes);
        if let Err(refused) = park(purgatory, produce) {
            let reason = format!("{:?}", refused.reason);
            refused.into_operation().refused(&reason);
        }
    }
}
