//! The books: how the produces were answered, and what is wrong.
//!
//! Nothing here comes from the counters of the library. The answers are counted where the producers
//! get them. What was sent, and which replicas have it, the [audit](super::audit) reads in the
//! logs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::name;
use crate::Answer;
use crate::partition::Partition;

/// Answers of one partition come mostly from one thread at a time, so tallies by partition are
/// hardly fought over; a few of them are enough, and their histograms are not small.
const TALLIES_MAX: u32 = 16;

/// What is known when a produce is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// The answer.
    pub(crate) answer: Answer,
    /// What it acknowledges is below.
    pub(crate) offset: u64,
    /// How long it waited.
    pub(crate) waited: Duration,
    /// How long it was allowed to wait.
    pub(crate) timeout: Duration,
    /// The length of its line.
    pub(crate) bytes: u32,
}

/// How many produces have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    /// Refused ones, too.
    pub(crate) cancelled: u64,
    /// Bytes of text in the completed ones.
    pub(crate) bytes: u64,
    /// The sum of all offsets: an answer for another record's would change it.
    pub(crate) offsets: u64,
}

impl Counts {
    /// How many answers that is.
    pub(crate) fn ended(&self) -> u64 {
        self.completed + self.expired + self.cancelled
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.completed += other.completed;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.bytes += other.bytes;
        self.offsets = self.offsets.wrapping_add(other.offsets);
    }
}

/// The answers in one place, or of several together; times in nanoseconds, to a thousandth.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// How many.
    pub(crate) counts: Counts,
    /// How long the completed ones waited.
    pub(crate) wait: Histogram<u64>,
    /// How late the expired ones were told.
    pub(crate) lateness: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let empty = Histogram::new(3).expect("three significant figures are what it can do");
        Self { counts: Counts::default(), wait: empty.clone(), lateness: empty }
    }
}

/// The books of one run.
#[derive(Debug)]
pub(crate) struct Books {
    tallies: Vec<CachePadded<Mutex<Tally>>>,
    /// By partition: every record below was acknowledged, or one after it was.
    acknowledged: Vec<CachePadded<AtomicU64>>,
    faults: Mutex<BTreeMap<Fault, Problem>>,
}

impl Books {
    /// Empty books.
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            tallies: (0..partitions.min(TALLIES_MAX)).map(|_| CachePadded::default()).collect(),
            acknowledged: (0..partitions).map(|_| CachePadded::default()).collect(),
            faults: Mutex::default(),
        }
    }

    /// Enters an answer. An acknowledgement is checked at once, against the logs themselves and not
    /// what the leader knows of them.
    pub(crate) fn enter(&self, partition: &Partition, ended: &Ended) {
        let Ended { answer, offset, waited, timeout, bytes } = *ended;
        let place = || format!("offset {} of {}", offset - 1, partition.key);
        if let Answer::Acknowledged = answer {
            self.acknowledged[partition.key.0 as usize].fetch_max(offset, Ordering::AcqRel);
            if partition.in_sync().any(|one| partition.followers[one].end() < offset) {
                self.note(TOO_SOON, 1, place);
            }
        }
        let tally = &mut *self.tallies[partition.key.0 as usize % self.tallies.len()].lock();
        tally.counts.offsets = tally.counts.offsets.wrapping_add(offset);
        match answer {
            Answer::Acknowledged => {
                tally.counts.completed += 1;
                tally.counts.bytes += u64::from(bytes);
                tally.wait += waited.as_nanos() as u64;
            }
            Answer::TimedOut => {
                tally.counts.expired += 1;
                tally.lateness += waited.saturating_sub(timeout).as_nanos() as u64;
                let early = || format!("{}, after {waited:?} of {timeout:?}", place());
                self.note(EARLY, (waited < timeout).into(), early);
            }
            Answer::Cancelled => tally.counts.cancelled += 1,
            Answer::Refused(reason) => {
                tally.counts.cancelled += 1;
                self.note(REFUSED, 1, || format!("{}: {reason:?}", place()));
            }
        }
    }

    /// How many acknowledged records an in-sync follower's log lacks; none for one that is not.
    pub(crate) fn lacks(&self, partition: &Partition, follower: usize) -> u64 {
        // What is acknowledged is read first: a follower that is in the set after that has it.
        let acknowledged = self.acknowledged[partition.key.0 as usize].load(Ordering::Acquire);
        let owes = if partition.is_in_sync(follower) { acknowledged } else { 0 };
        owes.saturating_sub(partition.followers[follower].end())
    }

    /// A follower has fetched: that may have put it back into the in-sync set.
    pub(crate) fn fetched(&self, partition: &Partition, follower: usize) {
        let lacks = self.lacks(partition, follower) > 0;
        self.note(BEHIND, lacks.into(), || format!("{} in {}", name(follower), partition.key));
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.tallies.iter().for_each(|tally| counts += tally.lock().counts);
        counts
    }

    /// The counts and times so far.
    pub(crate) fn totals(&self) -> Tally {
        let mut totals = Tally::default();
        for tally in &self.tallies {
            let tally = tally.lock();
            totals.counts += tally.counts;
            totals.wait += &tally.wait;
            totals.lateness += &tally.lateness;
        }
        totals
    }

    /// Counts so many cases; `case` says what happened, and is asked only for the first.
    pub(crate) fn note(&self, fault: Fault, count: u64, case: impl FnOnce() -> String) {
        if count > 0 {
            let first = || Problem { fault, count: 0, first: case() };
            self.faults.lock().entry(fault).or_insert_with(first).count += count;
        }
    }

    /// What has been found wrong so far.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.faults.lock().values().cloned().collect()
    }
}

/// A kind of thing that must not happen, as messages say it.
pub(crate) type Fault = &'static str;

pub(crate) const NEVER_ENDED: Fault = "operations that never ended";
pub(crate) const TWICE: Fault = "operations that ended twice";
pub(crate) const ANOTHERS: Fault = "answers for another offset than the record's";
pub(crate) const EARLY: Fault = "operations that expired before their deadline";
pub(crate) const TOO_SOON: Fault = "records acknowledged before every in-sync log had them";
pub(crate) const MISSING: Fault = "acknowledged records missing from an in-sync log";
pub(crate) const BEHIND: Fault =
    "fetches that left a follower in sync without what is acknowledged";
pub(crate) const LOGS_DIFFER: Fault = "offsets where a follower's log is not the leader's";
pub(crate) const REFUSED: Fault = "operations refused by the purgatory";
pub(crate) const STILL_PARKED: Fault = "operations still parked long after the last deadline";
pub(crate) const PANICKED: Fault = "producers that panicked";

/// A fault that was met: how often, and the first case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Its kind.
    pub(crate) fault: Fault,
    /// How many cases.
    pub(crate) count: u64,
    /// What the first case was.
    pub(crate) first: String,
}

impl Problem {
    /// How many operations or records are lost.
    pub(crate) fn lost(&self) -> u64 {
        if [NEVER_ENDED, MISSING].contains(&self.fault) { self.count } else { 0 }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (the first: {})", self.fault, self.count, self.first)
    }
}
