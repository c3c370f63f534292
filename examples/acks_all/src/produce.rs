//! The delayed operation: a produce that waits until the high watermark has passed its record.

use std::sync::Arc;
use std::time::Duration;

use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory, Refused, Watches};

use crate::books::Books;
use crate::faults::Fault;
use crate::ledger::Page;
use crate::partition::{Cluster, Partition, PartitionKey};
use crate::record::RecordId;
use crate::slots::Slots;
use crate::tally::{Ended, Ending};
use crate::time::Clock;

/// Where the produces wait.
pub type ProducePurgatory = Purgatory<PartitionKey, DelayedProduce>;

/// Parks a produce until its partition's high watermark reaches its offset.
///
/// # Errors
/// When the purgatory refuses it.
pub fn park(
    purgatory: &ProducePurgatory,
    produce: DelayedProduce,
) -> Result<ParkResult, Refused<DelayedProduce>> {
    let until = [(produce.key, produce.required_offset)];
    let timeout = produce.issue.session.timeout;
    purgatory.try_complete_else_watch(produce, Watches::up_to(&until), timeout)
}

/// The event, after the high watermark of a partition has advanced and with no lock held: completes
/// the produces that it has reached, and looks at no other.
pub fn high_watermark_advanced(purgatory: &ProducePurgatory, cluster: &Cluster, key: PartitionKey) {
    purgatory.complete_up_to(&key, cluster.partition(key).high_watermark());
}

/// What all operations of one producer share.
#[derive(Debug)]
pub struct Session {
    /// The topic.
    pub cluster: Arc<Cluster>,
    /// The run's books.
    pub books: Arc<Books>,
    /// The producer's places in the purgatory.
    pub slots: Slots,
    /// The run's clock.
    pub clock: Clock,
    /// How long a produce may wait.
    pub timeout: Duration,
}

/// The session together with the page of the books that its latest records are in: one reference
/// count an operation.
#[derive(Debug)]
pub struct Issue {
    /// The producer's session.
    pub session: Arc<Session>,
    /// The page.
    pub page: Arc<Page>,
}

/// A produce with acks=all, waiting for its record to be in every in-sync log.
#[derive(Debug)]
pub struct DelayedProduce {
    issue: Arc<Issue>,
    id: RecordId,
    required_offset: u64,
    parked_at: Duration,
    key: PartitionKey,
    bytes: u32,
}

impl DelayedProduce {
    /// The record `id`, of `bytes` bytes, was appended and is acknowledged at `required_offset`.
    /// Its time starts now.
    pub fn new(issue: &Arc<Issue>, id: RecordId, required_offset: u64, bytes: u32) -> Self {
        let session = &issue.session;
        let key = PartitionKey(id.partition(session.cluster.len()));
        Self {
            issue: Arc::clone(issue),
            id,
            required_offset,
            parked_at: session.clock.now(),
            key,
            bytes,
        }
    }

    /// The purgatory handed it back: it ends here, and that is a fault.
    pub fn refused(self, why: &str) {
        self.issue
            .session
            .books
            .faults
            .note(Fault::Refused, || format!("record {}: {why}", self.id));
        self.end(Ending::Cancelled);
    }

    fn partition(&self) -> &Partition {
        self.issue.session.cluster.partition(self.key)
    }

    fn end(self, ending: Ending) {
        let session = &self.issue.session;
        let (parked_at, timeout, bytes) = (self.parked_at, session.timeout, self.bytes);
        let ended = Ended { ending, parked_at, timeout, at: session.clock.now(), bytes };
        if ending == Ending::Completed && !self.partition().in_sync_logs_reach(self.required_offset)
        {
            session.books.faults.note(Fault::AcknowledgedTooSoon, || format!("record {}", self.id));
        }
        session.books.end(self.id, &self.issue.page, &ended);
        session.slots.release();
    }
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.partition().high_watermark() >= self.required_offset
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(match outcome {
            Outcome::Completed => Ending::Completed,
            Outcome::Expired => Ending::Expired,
            _ => Ending::Cancelled,
        });
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_utils::sync::Parker;
    use purgatory::CancelReason;

    use super::*;
    use crate::in_sync::Replica;
    use crate::record::Record;
    use crate::stop::Stop;

    fn one_produce() -> (Arc<Session>, DelayedProduce) {
        let clock = Clock::start();
        let parker = Parker::new();
        let session = Arc::new(Session {
            cluster: Arc::new(Cluster::new(1, None, clock.now())),
            books: Arc::new(Books::new(1, 1)),
            slots: Slots::new(1, &parker),
            clock,
            timeout: Duration::ZERO,
        });
        assert!(session.slots.take(&parker, &Stop::new()));
        let ledger = session.books.ledger(0);
        let issue = Arc::new(Issue { session: Arc::clone(&session), page: ledger.new_page() });
        let record = Record { id: RecordId::new(0, ledger.issue()), line: 0 };
        let appended = session.cluster.partition(PartitionKey(0)).append(record);
        let produce = DelayedProduce::new(&issue, record.id, appended.required_offset, 5);
        (session, produce)
    }

    fn replicate(session: &Session) {
        let partition = session.cluster.partition(PartitionKey(0));
        for follower in Replica::followers() {
            let mut fetched = Vec::new();
            let _ = partition.fetch(follower, 0, Duration::ZERO, 9, &mut fetched);
            partition.follower_log(follower).unwrap().append(&fetched);
            let _ = partition.fetch(follower, 1, Duration::ZERO, 9, &mut fetched);
        }
    }

    #[test]
    fn it_is_satisfied_by_the_high_watermark_and_gives_its_slot_back() {
        let (session, mut produce) = one_produce();
        assert!(!produce.try_complete());
        replicate(&session);
        assert!(produce.try_complete());
        produce.on_complete(Outcome::Completed);
        let counts = session.books.counts();
        assert_eq!((counts.completed, counts.bytes_completed), (1, 5));
        assert!(session.slots.take(&Parker::new(), &Stop::new()));
        assert_eq!(session.books.faults.problems(), []);
    }

    #[test]
    fn an_acknowledgement_before_the_logs_have_it_is_a_fault() {
        let (session, produce) = one_produce();
        produce.on_complete(Outcome::Completed);
        assert_eq!(session.books.faults.problems()[0].fault, Fault::AcknowledgedTooSoon);
    }

    #[test]
    fn other_endings_are_told_apart() {
        let (session, produce) = one_produce();
        produce.on_complete(Outcome::Expired);
        assert_eq!(session.books.counts().expired, 1);
        let (session, produce) = one_produce();
        produce.on_complete(Outcome::Cancelled(CancelReason::Shutdown));
        assert_eq!(session.books.counts().cancelled, 1);
        assert_eq!(session.books.faults.problems(), []);
        let (session, produce) = one_produce();
        produce.refused("closed");
        assert_eq!(session.books.counts().cancelled, 1);
        assert_eq!(session.books.faults.problems()[0].fault, Fault::Refused);
    }
}
