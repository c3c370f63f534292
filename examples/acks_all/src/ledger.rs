//! One byte for every record that a producer has sent: how its operation ended, and which replicas
//! hold it.
//!
//! The bytes lie in pages. An operation keeps the page it was issued from, so its ending is one
//! atomic "or" and needs no lock. A page whose records are all settled (ended, and seen in every
//! log) is given back, which bounds a long run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::in_sync::{Members, REPLICAS, Replica};
use crate::record::RecordId;
use crate::tally::Ending;

/// Records a page.
pub const PAGE: u64 = 1 << 16;

const LOG_BITS: u8 = (1 << REPLICAS) - 1;
const COMPLETED: u8 = 1 << REPLICAS;
const EXPIRED: u8 = COMPLETED << 1;
const CANCELLED: u8 = EXPIRED << 1;
const ENDED: u8 = COMPLETED | EXPIRED | CANCELLED;

/// What is known of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u8);

impl Entry {
    /// Whether its operation has ended.
    pub fn is_ended(self) -> bool {
        self.0 & ENDED != 0
    }

    /// Whether it was acknowledged.
    pub fn is_acknowledged(self) -> bool {
        self.0 & COMPLETED != 0
    }

    /// The replicas in whose logs it has been seen.
    pub fn seen_in(self) -> Members {
        Members(self.0 & LOG_BITS)
    }

    fn is_settled(self) -> bool {
        self.is_ended() && self.seen_in() == Members::ALL
    }
}

/// The entries of [`PAGE`] consecutive records of one producer.
#[derive(Debug)]
pub struct Page {
    entries: Box<[AtomicU8]>,
}

impl Page {
    fn new() -> Self {
        Self { entries: (0..PAGE).map(|_| AtomicU8::new(0)).collect() }
    }

    fn entry(&self, sequence: u64) -> Entry {
        Entry(self.entries[(sequence % PAGE) as usize].load(Ordering::Acquire))
    }

    fn set(&self, sequence: u64, bits: u8) -> Entry {
        Entry(self.entries[(sequence % PAGE) as usize].fetch_or(bits, Ordering::AcqRel))
    }

    /// Enters an ending; returns what was known before it.
    pub fn end(&self, id: RecordId, ending: Ending) -> Entry {
        let bit = match ending {
            Ending::Completed => COMPLETED,
            Ending::Expired => EXPIRED,
            Ending::Cancelled => CANCELLED,
        };
        self.set(id.sequence(), bit)
    }
}

#[derive(Debug, Default)]
struct Pages {
    /// Every record before this one is settled.
    settled: u64,
    /// The page of record `settled`, and those after it.
    kept: VecDeque<Arc<Page>>,
}

impl Pages {
    fn page(&self, sequence: u64) -> Option<&Page> {
        let place = (sequence / PAGE).checked_sub(self.settled / PAGE)?;
        self.kept.get(place as usize).map(|page| &**page)
    }
}

/// What the audit learned by marking a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is in that log, for the first time.
    Seen,
    /// It had been seen in that log before.
    SeenBefore,
    /// The producer never sent it.
    Unknown,
}

/// All that one producer has sent.
#[derive(Debug, Default)]
pub struct Ledger {
    issued: AtomicU64,
    pages: Mutex<Pages>,
}

impl Ledger {
    /// How many records were sent.
    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Counts the next record and returns its sequence; called by the producer alone.
    pub fn issue(&self) -> u64 {
        let sequence = self.issued();
        self.issued.store(sequence + 1, Ordering::Release);
        sequence
    }

    /// A page for the next [`PAGE`] records; the producer asks before the first of each page.
    pub fn new_page(&self) -> Arc<Page> {
        let page = Arc::new(Page::new());
        self.pages.lock().kept.push_back(Arc::clone(&page));
        page
    }

    /// The audit found a record in a replica's log.
    pub fn mark(&self, id: RecordId, replica: Replica) -> Mark {
        let pages = self.pages.lock();
        let sequence = id.sequence();
        if sequence >= self.issued() {
            return Mark::Unknown;
        }
        match pages.page(sequence) {
            Some(page)
                if !page.set(sequence, 1 << replica.number()).seen_in().contains(replica) =>
            {
                Mark::Seen
            }
            // A page that was given back held only records that every log had.
            _ => Mark::SeenBefore,
        }
    }

    /// Gives back the pages whose records are all settled.
    pub fn settle(&self) {
        let mut pages = self.pages.lock();
        let issued = self.issued();
        while pages.settled < issued {
            let sequence = pages.settled;
            if !pages.page(sequence).is_some_and(|page| page.entry(sequence).is_settled()) {
                break;
            }
            pages.settled += 1;
            if pages.settled.is_multiple_of(PAGE) {
                pages.kept.pop_front();
            }
        }
    }

    /// Calls `look` with every record that is not known to be settled.
    pub fn for_each_open(&self, mut look: impl FnMut(u64, Entry)) {
        let pages = self.pages.lock();
        for sequence in pages.settled..self.issued() {
            if let Some(page) = pages.page(sequence) {
                look(sequence, page.entry(sequence));
            }
        }
    }

    #[cfg(test)]
    fn pages_kept(&self) -> usize {
        self.pages.lock().kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> RecordId {
        RecordId::new(0, sequence)
    }

    fn open(ledger: &Ledger) -> Vec<(u64, Entry)> {
        let mut open = Vec::new();
        ledger.for_each_open(|sequence, entry| open.push((sequence, entry)));
        open
    }

    #[test]
    fn an_entry_gathers_its_ending_and_its_logs() {
        let ledger = Ledger::default();
        let page = ledger.new_page();
        let sequence = ledger.issue();
        assert_eq!(ledger.mark(id(sequence), Replica::LEADER), Mark::Seen);
        assert_eq!(ledger.mark(id(sequence), Replica::LEADER), Mark::SeenBefore);
        assert_eq!(ledger.mark(id(sequence + 1), Replica::LEADER), Mark::Unknown);
        assert!(!page.end(id(sequence), Ending::Completed).is_ended());
        assert!(
            page.end(id(sequence), Ending::Completed).is_ended(),
            "the second time it had ended"
        );
        let (_, entry) = open(&ledger)[0];
        assert!(entry.is_acknowledged());
        assert_eq!(entry.seen_in(), Members(0b001));
    }

    #[test]
    fn settled_pages_are_given_back_and_remember_what_they_held() {
        let ledger = Ledger::default();
        let mut pages = Vec::new();
        for sequence in 0..PAGE + 2 {
            if sequence % PAGE == 0 {
                pages.push(ledger.new_page());
            }
            assert_eq!(ledger.issue(), sequence);
        }
        let settle = |sequence: u64| {
            pages[(sequence / PAGE) as usize].end(id(sequence), Ending::Expired);
            for replica in Replica::all() {
                assert_eq!(ledger.mark(id(sequence), replica), Mark::Seen);
            }
        };
        (0..PAGE - 1).for_each(settle);
        ledger.settle();
        assert_eq!((ledger.pages_kept(), open(&ledger).len()), (2, 3));
        (PAGE - 1..=PAGE).for_each(settle);
        ledger.settle();
        assert_eq!((ledger.pages_kept(), open(&ledger).len()), (1, 1));
        assert_eq!(ledger.mark(id(5), Replica::follower(1)), Mark::SeenBefore);
    }
}
