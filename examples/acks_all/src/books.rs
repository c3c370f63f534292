//! The example's own books: what was sent, how each operation ended, and what the logs hold.
//!
//! Nothing here comes from the counters of the library. Endings come from the operations' own
//! callbacks, the contents of the logs from the [audit](crate::audit), and both meet in the
//! [ledgers](crate::ledger), record by record.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::faults::{Fault, Faults, Problem};
use crate::in_sync::{Members, Replica};
use crate::ledger::{Ledger, Mark, Page};
use crate::record::RecordId;
use crate::tally::{Ended, Ending, Tally};

/// Endings of one partition come mostly from one thread at a time, so tallies by partition are
/// hardly fought over; a few of them are enough, and their histograms are not small.
const TALLIES_MAX: u32 = 16;

/// The books of one run.
#[derive(Debug)]
pub struct Books {
    partitions: u32,
    ledgers: Vec<CachePadded<Ledger>>,
    tallies: Vec<CachePadded<Mutex<Tally>>>,
    /// What has been found wrong so far.
    pub faults: Faults,
}

impl Books {
    /// Empty books.
    pub fn new(producers: u16, partitions: u32) -> Self {
        Self {
            partitions,
            ledgers: (0..producers).map(|_| CachePadded::default()).collect(),
            tallies: (0..partitions.min(TALLIES_MAX)).map(|_| CachePadded::default()).collect(),
            faults: Faults::default(),
        }
    }

    /// What a producer has sent.
    pub fn ledger(&self, producer: usize) -> &Ledger {
        &self.ledgers[producer]
    }

    /// How many records were sent.
    pub fn produced(&self) -> u64 {
        self.ledgers.iter().map(|ledger| ledger.issued()).sum()
    }

    /// Enters an ending, reported by the operation's callback.
    pub fn end(&self, id: RecordId, page: &Page, ended: &Ended) {
        if page.end(id, ended.ending).is_ended() {
            self.faults.note(Fault::EndedTwice, || {
                format!("record {id}, the second time as {:?}", ended.ending)
            });
            return;
        }
        if ended.ending == Ending::Expired && ended.lateness().is_none() {
            let (waited, timeout) = (ended.waited(), ended.timeout);
            self.faults.note(Fault::ExpiredEarly, || {
                format!("record {id}, after {waited:?} of {timeout:?}")
            });
        }
        let tally = id.partition(self.partitions) as usize % self.tallies.len();
        self.tallies[tally].lock().add(ended);
    }

    /// Enters that a record is in a replica's log.
    pub fn mark(&self, id: RecordId, replica: Replica) {
        let mark = self
            .ledgers
            .get(id.producer())
            .map_or(Mark::Unknown, |ledger| ledger.mark(id, replica));
        let place = || format!("record {id}, in the log of {}", replica.name());
        match mark {
            Mark::Seen => {}
            Mark::SeenBefore => self.faults.note(Fault::TwiceInLog, place),
            Mark::Unknown => self.faults.note(Fault::UnknownRecord, place),
        }
    }

    /// Forgets the records about which nothing is open.
    pub fn settle(&self) {
        for ledger in &self.ledgers {
            ledger.settle();
        }
    }

    /// The counts so far, without histograms.
    pub fn counts(&self) -> Tally {
        let mut counts = Tally::default();
        for tally in &self.tallies {
            counts.merge_counts(&tally.lock());
        }
        counts
    }

    /// The counts and histograms so far.
    pub fn totals(&self) -> Tally {
        let mut totals = Tally::default();
        for tally in &self.tallies {
            totals.merge(&tally.lock());
        }
        totals
    }

    /// Closes the books after the last ending and the last audit: every operation has ended, and
    /// every acknowledged record is in the log of every replica that is in sync in its partition.
    /// Returns everything that is wrong.
    pub fn close(&self, in_sync: impl Fn(u32) -> Members) -> Vec<Problem> {
        for (producer, ledger) in self.ledgers.iter().enumerate() {
            ledger.for_each_open(|sequence, entry| {
                let id = RecordId::new(producer as u16, sequence);
                if !entry.is_ended() {
                    self.faults.note(Fault::NeverEnded, || format!("record {id}"));
                }
                if entry.is_acknowledged() {
                    let members = in_sync(id.partition(self.partitions));
                    let mut missing = Replica::all()
                        .filter(|r| members.contains(*r) && !entry.seen_in().contains(*r));
                    if let Some(replica) = missing.next() {
                        let place = || format!("record {id}, in the log of {}", replica.name());
                        self.faults.note(Fault::MissingFromLog, place);
                    }
                }
            });
        }
        self.faults.problems()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn ended(ending: Ending) -> Ended {
        Ended { ending, parked_at: Duration::ZERO, timeout: TIMEOUT, at: TIMEOUT, bytes: 1 }
    }

    fn one_record() -> (Books, Arc<Page>, RecordId) {
        let books = Books::new(1, 1);
        let page = books.ledger(0).new_page();
        let id = RecordId::new(0, books.ledger(0).issue());
        (books, page, id)
    }

    fn wrong(books: &Books, in_sync: Members) -> Vec<(Fault, u64)> {
        books.close(|_| in_sync).iter().map(|problem| (problem.fault, problem.count)).collect()
    }

    #[test]
    fn an_acknowledged_record_in_every_log_is_in_order() {
        let (books, page, id) = one_record();
        books.end(id, &page, &ended(Ending::Completed));
        Replica::all().for_each(|replica| books.mark(id, replica));
        books.settle();
        assert_eq!(wrong(&books, Members::ALL), []);
        assert_eq!(
            (books.produced(), books.counts().completed, books.totals().completed),
            (1, 1, 1)
        );
    }

    #[test]
    fn a_second_ending_is_found_and_not_counted() {
        for second in [Ending::Completed, Ending::Expired, Ending::Cancelled] {
            let (books, page, id) = one_record();
            books.end(id, &page, &ended(Ending::Expired));
            books.end(id, &page, &ended(second));
            books.mark(id, Replica::LEADER);
            assert_eq!(wrong(&books, Members(0b001)), [(Fault::EndedTwice, 1)], "{second:?}");
            assert_eq!(books.counts().ended(), 1);
        }
    }

    #[test]
    fn a_missing_ending_is_found() {
        let (books, _page, id) = one_record();
        Replica::all().for_each(|replica| books.mark(id, replica));
        assert_eq!(wrong(&books, Members::ALL), [(Fault::NeverEnded, 1)]);
    }

    #[test]
    fn an_acknowledged_record_that_an_in_sync_log_lacks_is_found() {
        let (books, page, id) = one_record();
        books.end(id, &page, &ended(Ending::Completed));
        books.mark(id, Replica::LEADER);
        books.mark(id, Replica::follower(2));
        let problems = books.close(|_| Members::ALL);
        let said: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let expected = "acknowledged records missing from an in-sync log: 1 (the first: record 0-0, in the log of follower 1)";
        assert_eq!(said, [expected]);
    }

    #[test]
    fn a_log_out_of_the_set_and_an_expired_record_owe_nothing() {
        let (books, page, id) = one_record();
        books.end(id, &page, &ended(Ending::Completed));
        books.mark(id, Replica::LEADER);
        books.mark(id, Replica::follower(1));
        assert_eq!(wrong(&books, Members(0b011)), []);

        let (books, page, id) = one_record();
        books.end(id, &page, &ended(Ending::Expired));
        assert_eq!(wrong(&books, Members::ALL), []);
    }

    #[test]
    fn an_early_expiry_is_found() {
        let (books, page, id) = one_record();
        let early = Ended { at: TIMEOUT - Duration::from_nanos(1), ..ended(Ending::Expired) };
        books.end(id, &page, &early);
        assert_eq!(wrong(&books, Members::ALL), [(Fault::ExpiredEarly, 1)]);
    }

    #[test]
    fn strange_records_in_a_log_are_found() {
        let (books, page, id) = one_record();
        books.end(id, &page, &ended(Ending::Cancelled));
        books.mark(id, Replica::LEADER);
        books.mark(id, Replica::LEADER);
        books.mark(RecordId::new(0, 7), Replica::LEADER);
        books.mark(RecordId::new(9, 0), Replica::LEADER);
        assert_eq!(
            wrong(&books, Members::ALL),
            [(Fault::TwiceInLog, 1), (Fault::UnknownRecord, 2)]
        );
    }
}
