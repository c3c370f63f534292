//! The books: how the produces were answered, and what is wrong.
//!
//! Nothing here comes from the counters of the library. The answers are counted where the producers
//! get them. What was sent, and which replicas have it, is read in the logs.

use std::{collections::BTreeMap, fmt, ops::AddAssign, time::Duration};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::name;
use crate::partition::Partition;
use crate::{Answer, Leader};

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
    /// Every record of the partition below was acknowledged, or one after it was.
    acknowledged: u64,
}

impl Default for Tally {
    fn default() -> Self {
        let empty = Histogram::new(3).expect("three significant figures are what it can do");
        Self {
            counts: Counts::default(),
            wait: empty.clone(),
            lateness: empty,
            acknowledged: 0,
        }
    }
}

/// The books of one run.
#[derive(Debug)]
pub(crate) struct Books {
    /// By partition. A partition's answers come mostly from one thread at a time.
    tallies: Vec<CachePadded<Mutex<Tally>>>,
    faults: Mutex<BTreeMap<Fault, Problem>>,
    /// How long a produce may wait.
    timeout: Duration,
}

impl Books {
    /// Empty books.
    pub(crate) fn new(partitions: u32, timeout: Duration) -> Self {
        Self {
            tallies: (0..partitions).map(|_| CachePadded::default()).collect(),
            faults: Mutex::default(),
            timeout,
        }
    }

    /// Enters the answer to a produce that has `waited`, for a line of `bytes`. It acknowledges the
    /// records below `offset`. That is checked at once, against the followers' own logs.
    pub(crate) fn enter(
        &self,
        partition: &Partition,
        answer: Answer,
        offset: u64,
        waited: Duration,
        bytes: u32,
    ) {
        let timeout = self.timeout;
        let place = || format!("offset {} of {}", offset - 1, partition.key);
        let tally = &mut *self.tallies[partition.key.0 as usize].lock();
        tally.counts.offsets = tally.counts.offsets.wrapping_add(offset);
        match answer {
            Answer::Acknowledged => {
                let too_soon = partition.followers.iter().any(|log| log.end() < offset);
                self.note(TOO_SOON, too_soon.into(), place);
                tally.acknowledged = tally.acknowledged.max(offset);
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

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.tallies
            .iter()
            .for_each(|tally| counts += tally.lock().counts);
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

    /// Counts cases of a fault; `case` describes one, and is called only for the first.
    pub(crate) fn note(&self, fault: Fault, count: u64, case: impl FnOnce() -> String) {
        if count > 0 {
            let first = || Problem {
                fault,
                count: 0,
                first: case(),
            };
            self.faults.lock().entry(fault).or_insert_with(first).count += count;
        }
    }

    /// Closes the books after the last answer: every operation has ended once, all logs are alike,
    /// and every acknowledged record is in the log of every replica. Returns everything that is
    /// wrong.
    pub(crate) fn close(&self, leader: &Leader) -> Vec<Problem> {
        let ends = || {
            leader
                .partitions
                .iter()
                .map(|partition| partition.log.end())
        };
        let (produced, totals) = (ends().sum::<u64>(), self.counts());
        let ended = totals.ended();
        let said = || format!("{ended} of {produced} have ended");
        self.note(NEVER_ENDED, produced.saturating_sub(ended), said);
        self.note(TWICE, ended.saturating_sub(produced), said);
        // Each partition's offsets are 1, 2, 3 and so on.
        let offsets = ends().fold(0, |sum: u64, end| sum.wrapping_add(end * (end + 1) / 2));
        let differ = produced == ended && offsets != totals.offsets;
        self.note(ANOTHERS, differ.into(), || {
            "by the sum of all offsets".to_owned()
        });
        for (partition, tally) in leader.partitions.iter().zip(&self.tallies) {
            let acknowledged = tally.lock().acknowledged;
            for (follower, log) in partition.followers.iter().enumerate() {
                let place = || format!("{} in {}, at {}", name(follower), partition.key, log.end());
                self.note(MISSING, acknowledged.saturating_sub(log.end()), place);
                let whole = log.end() >= partition.log.end();
                let differs = whole && log.digest() != partition.log.digest();
                self.note(LOGS_DIFFER, differs.into(), place);
            }
        }
        self.faults.lock().values().cloned().collect()
    }
}

/// A kind of thing that must not happen, as messages say it.
pub(crate) type Fault = &'static str;

pub(crate) const NEVER_ENDED: Fault = "operations that never ended";
pub(crate) const TWICE: Fault = "operations that ended twice";
pub(crate) const ANOTHERS: Fault = "answers for another offset than the record's";
pub(crate) const EARLY: Fault = "operations that expired before their deadline";
pub(crate) const TOO_SOON: Fault = "records acknowledged before every log had them";
pub(crate) const MISSING: Fault = "acknowledged records missing from a log";
pub(crate) const LOGS_DIFFER: Fault = "followers' logs that are not the leader's";
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
    /// The first case, in words.
    pub(crate) first: String,
}

impl Problem {
    /// How many operations or records are lost.
    pub(crate) fn lost(&self) -> u64 {
        if [NEVER_ENDED, MISSING].contains(&self.fault) {
            self.count
        } else {
            0
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (the first: {})",
            self.fault, self.count, self.first
        )
    }
}
