//! A producer: appends its lines to the leader's logs, and parks each one until it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::Parker;

use crate::log::Record;
use crate::pacer::Pacer;
use crate::produce::{DelayedProduce, ProducePurgatory, Session};
use crate::text::Text;
use example_support::Stop;

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
        for sequence in 0.. {
            if !self.await_turn(stop) || !self.session.slots.take(&self.parker, stop) {
                return;
            }
            self.produce(sequence, purgatory);
        }
    }

    /// Waits for this producer's turn under the rate; false when it is time to stop.
    fn await_turn(&mut self, stop: &Stop) -> bool {
        if self.pacer.is_paced() {
            while let Some(wait) = self.pacer.wait(self.session.clock.now()) {
                if stop.pause(wait.max(TURN_MIN)) {
                    return false;
                }
            }
        }
        !stop.is_raised()
    }

    /// Appends the record and parks its operation.
    fn produce(&self, sequence: u64, purgatory: &ProducePurgatory) {
        let Producer { number: producer, producers, session, text, .. } = self;
        let turn = sequence * u64::from(*producers) + u64::from(*producer);
        let (line, body) = text.line(turn);
        let key = session.cluster.key(*producer, sequence);
        let record = Record { producer: *producer, line, sequence };
        let appended = session.cluster.partition(key).append(record);
        if let Some(offset) = appended.advanced {
            purgatory.complete_up_to(&key, offset);
        }
        let bytes = body.len() as u32;
        DelayedProduce::new(session, key, appended.required_offset, bytes).park(purgatory);
    }
}
