//! The delayed operation: a produce that waits until the high watermark has passed its record.
//!
//! This is all that a broker writes to use the purgatory, with the two places that raise the event:
//! the [follower](crate::follower)'s fetch and the [leader](crate::leader)'s round.

use std::sync::Arc;
use std::time::Duration;

use purgatory::{DelayedOperation, Outcome, Purgatory, Watches};

use crate::books::{Books, Ended, Ending, Fault};
use crate::partition::{Cluster, Partition, PartitionKey};
use crate::slots::Slots;
use crate::time::Clock;

/// Where the produces wait.
pub type ProducePurgatory = Purgatory<PartitionKey, DelayedProduce>;

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

/// A produce with acks=all, waiting for its record to be in every in-sync log.
#[derive(Debug)]
pub struct DelayedProduce {
    session: Arc<Session>,
    required_offset: u64,
    parked_at: Duration,
    key: PartitionKey,
    bytes: u32,
}

impl DelayedProduce {
    /// A record of `bytes` bytes was appended and is acknowledged at `required_offset`. Its time
    /// starts now.
    pub fn new(
        session: &Arc<Session>,
        key: PartitionKey,
        required_offset: u64,
        bytes: u32,
    ) -> Self {
        let (session, parked_at) = (Arc::clone(session), session.clock.now());
        Self { session, required_offset, parked_at, key, bytes }
    }

    /// Parks it until its partition's high watermark reaches its offset. One that is refused ends
    /// here, and that is a fault.
    pub fn park(self, purgatory: &ProducePurgatory) {
        let until = [(self.key, self.required_offset)];
        let timeout = self.session.timeout;
        let parked = purgatory.try_complete_else_watch(self, Watches::up_to(&until), timeout);
        if let Err(refused) = parked {
            let reason = refused.reason;
            let produce = refused.into_operation();
            let books = &produce.session.books;
            books.faults.note(Fault::Refused, 1, || format!("{}: {reason:?}", produce.place()));
            produce.end(Ending::Cancelled);
        }
    }

    fn partition(&self) -> &Partition {
        self.session.cluster.partition(self.key)
    }

    fn place(&self) -> String {
        format!("offset {} of {}", self.required_offset - 1, self.key)
    }

    fn end(self, ending: Ending) {
        let Session { books, slots, clock, timeout, .. } = &*self.session;
        let acknowledged = ending == Ending::Completed;
        if acknowledged && !self.partition().in_sync_logs_reach(self.required_offset) {
            books.faults.note(Fault::AcknowledgedTooSoon, 1, || self.place());
        }
        let ended = Ended {
            ending,
            waited: clock.now().saturating_sub(self.parked_at),
            timeout: *timeout,
            bytes: self.bytes,
        };
        books.end(self.key, self.required_offset, &ended);
        slots.release();
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
    use crate::log::Record;
    use example_support::Stop;

    fn one_produce(timeout: Duration) -> (Arc<Session>, DelayedProduce) {
        let parker = Parker::new();
        let session = Arc::new(Session {
            cluster: Arc::new(Cluster::new(1, None)),
            books: Arc::new(Books::new(1)),
            slots: Slots::new(1, &parker),
            clock: Clock::start(),
            timeout,
        });
        assert!(session.slots.take(&parker, &Stop::new()));
        let record = Record { producer: 0, line: 0, sequence: 0 };
        let appended = session.cluster.partition(PartitionKey(0)).append(record);
        let produce = DelayedProduce::new(&session, PartitionKey(0), appended.required_offset, 5);
        (session, produce)
    }

    fn faults(session: &Session) -> Vec<Fault> {
        session.books.faults.problems().iter().map(|problem| problem.fault).collect()
    }

    #[test]
    fn it_is_satisfied_by_the_high_watermark_and_gives_its_slot_back() {
        let (session, mut produce) = one_produce(Duration::ZERO);
        assert!(!produce.try_complete());
        let partition = session.cluster.partition(PartitionKey(0));
        for (follower, log) in partition.followers().iter().enumerate() {
            let mut fetched = Vec::new();
            let _ = partition.fetch(follower, 0, Duration::ZERO, 9, &mut fetched);
            log.append(&fetched);
            let _ = partition.fetch(follower, 1, Duration::ZERO, 9, &mut fetched);
        }
        assert!(produce.try_complete());
        produce.on_complete(Outcome::Completed);
        let counts = session.books.counts();
        assert_eq!((counts.completed, counts.bytes_completed), (1, 5));
        assert!(session.slots.take(&Parker::new(), &Stop::new()));
        assert_eq!(faults(&session), []);
    }

    #[test]
    fn endings_are_told_apart() {
        let cancelled = Outcome::Cancelled(CancelReason::Shutdown);
        for (outcome, ended, fault) in [
            (Outcome::Completed, [1, 0, 0], &[Fault::AcknowledgedTooSoon][..]),
            (Outcome::Expired, [0, 1, 0], &[]),
            (cancelled, [0, 0, 1], &[]),
        ] {
            let (session, produce) = one_produce(Duration::ZERO);
            produce.on_complete(outcome.clone());
            let counts = session.books.counts();
            assert_eq!([counts.completed, counts.expired, counts.cancelled], ended);
            assert_eq!(faults(&session), fault, "{outcome:?} with the record in no other log");
        }
    }

    #[test]
    fn a_refused_one_ends_and_is_a_fault() {
        let purgatory = ProducePurgatory::new("closed").unwrap();
        purgatory.shutdown();
        let (session, produce) = one_produce(Duration::from_secs(1));
        produce.park(&purgatory);
        assert_eq!((session.books.counts().cancelled, faults(&session)), (1, vec![Fault::Refused]));
    }
}
