//! The example's own books: how the operations ended, and what is wrong.
//!
//! Nothing here comes from the counters of the library. Endings come from the operations' own
//! callbacks, each of which takes its operation by value: the compiler refuses a second ending, so
//! a count finds the missing ones. What was sent is in the leader's logs, and the
//! [audit](crate::audit) compares them with the followers'.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::in_sync::name;
use crate::partition::{Cluster, PartitionKey};

/// Endings of one partition come mostly from one thread at a time, so tallies by partition are
/// hardly fought over; a few of them are enough, and their histograms are not small.
const TALLIES_MAX: u32 = 16;

/// How a produce ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The high watermark passed it.
    Completed,
    /// Its time ran out.
    Expired,
    /// It was ended from outside.
    Cancelled,
}

/// What is known when a produce ends.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// How long it waited.
    pub waited: Duration,
    /// How long it was allowed to wait.
    pub timeout: Duration,
    /// The length of its line in bytes.
    pub bytes: u32,
}

/// How many operations have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Produces that completed.
    pub completed: u64,
    /// Produces that expired.
    pub expired: u64,
    /// Produces that were cancelled.
    pub cancelled: u64,
    /// Bytes of text in the completed ones.
    pub bytes_completed: u64,
}

impl Counts {
    /// How many endings that is.
    pub fn ended(&self) -> u64 {
        self.completed + self.expired + self.cancelled
    }

    fn merge(&mut self, other: &Counts) {
        self.completed += other.completed;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.bytes_completed += other.bytes_completed;
    }
}

/// The endings seen in one place, or merged over several; times in nanoseconds, to a thousandth.
#[derive(Debug, Clone)]
pub struct Tally {
    /// How many.
    pub counts: Counts,
    /// How long the completed ones waited.
    pub wait: Histogram<u64>,
    /// How late the expired ones were told.
    pub lateness: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let empty = Histogram::new(3).expect("three significant figures are what it can do");
        Self { counts: Counts::default(), wait: empty.clone(), lateness: empty }
    }
}

impl Tally {
    /// Adds an ending.
    pub fn add(&mut self, ended: &Ended) {
        let nanos = |time: Duration| time.as_nanos() as u64;
        match ended.ending {
            Ending::Completed => {
                self.counts.completed += 1;
                self.counts.bytes_completed += u64::from(ended.bytes);
                self.wait += nanos(ended.waited);
            }
            Ending::Expired => {
                self.counts.expired += 1;
                self.lateness += nanos(ended.waited.saturating_sub(ended.timeout));
            }
            Ending::Cancelled => self.counts.cancelled += 1,
        }
    }
}

/// The books of one run.
#[derive(Debug)]
pub struct Books {
    tallies: Vec<CachePadded<Mutex<Tally>>>,
    /// By partition: every record below was acknowledged, or one after it was.
    acknowledged: Vec<CachePadded<AtomicU64>>,
    /// What has been found wrong so far.
    pub faults: Faults,
}

impl Books {
    /// Empty books.
    pub fn new(partitions: u32) -> Self {
        Self {
            tallies: (0..partitions.min(TALLIES_MAX)).map(|_| CachePadded::default()).collect(),
            acknowledged: (0..partitions).map(|_| CachePadded::default()).collect(),
            faults: Faults::default(),
        }
    }

    /// Enters an ending, reported by the operation's callback.
    pub fn end(&self, key: PartitionKey, required_offset: u64, ended: &Ended) {
        let place = key.0 as usize;
        if ended.ending == Ending::Completed {
            self.acknowledged[place].fetch_max(required_offset, Ordering::Relaxed);
        }
        if ended.ending == Ending::Expired && ended.waited < ended.timeout {
            self.faults.note(Fault::ExpiredEarly, 1, || {
                format!("{key}, after {:?} of {:?}", ended.waited, ended.timeout)
            });
        }
        self.tallies[place % self.tallies.len()].lock().add(ended);
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.tallies.iter().for_each(|tally| counts.merge(&tally.lock().counts));
        counts
    }

    /// The counts and histograms so far.
    pub fn totals(&self) -> Tally {
        let mut totals = Tally::default();
        for tally in &self.tallies {
            let tally = tally.lock();
            totals.counts.merge(&tally.counts);
            totals.wait += &tally.wait;
            totals.lateness += &tally.lateness;
        }
        totals
    }

    /// Closes the books after the last ending and the last audit: every operation has ended, and
    /// every acknowledged record is in the log of every replica that is in sync in its partition.
    /// Returns everything that is wrong.
    pub fn close(&self, cluster: &Cluster) -> Vec<Problem> {
        let (produced, ended) = (cluster.produced(), self.counts().ended());
        self.faults.note(Fault::NeverEnded, produced.saturating_sub(ended), || {
            format!("{ended} of {produced} have ended")
        });
        for ((key, partition), acknowledged) in cluster.iter().zip(&self.acknowledged) {
            let acknowledged = acknowledged.load(Ordering::Relaxed);
            for (follower, log) in partition.followers().iter().enumerate() {
                if partition.members().contains(follower) {
                    let missing = acknowledged.saturating_sub(log.end());
                    self.faults.note(Fault::MissingFromLog, missing, || {
                        format!("offset {} of {key}, in the log of {}", log.end(), name(follower))
                    });
                }
            }
        }
        self.faults.problems()
    }
}

/// A kind of thing that must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An operation never ended.
    NeverEnded,
    /// An operation expired before its deadline.
    ExpiredEarly,
    /// A record was acknowledged while an in-sync replica's log did not reach it.
    AcknowledgedTooSoon,
    /// An acknowledged record is not in the log of an in-sync replica.
    MissingFromLog,
    /// A follower's log has another record than the leader's at the same offset.
    LogsDiffer,
    /// The purgatory refused an operation.
    Refused,
    /// Operations were still parked long after the last deadline.
    StillParked,
}

impl Fault {
    /// Whether each case is a lost operation or record.
    pub fn is_loss(self) -> bool {
        matches!(self, Fault::NeverEnded | Fault::MissingFromLog)
    }

    fn says(self) -> &'static str {
        match self {
            Fault::NeverEnded => "operations that never ended",
            Fault::ExpiredEarly => "operations that expired before their deadline",
            Fault::AcknowledgedTooSoon => "records acknowledged before every in-sync log had them",
            Fault::MissingFromLog => "acknowledged records missing from an in-sync log",
            Fault::LogsDiffer => "offsets where a follower's log is not the leader's",
            Fault::Refused => "operations refused by the purgatory",
            Fault::StillParked => "operations still parked long after the last deadline",
        }
    }
}

/// A fault that was met: how often, and the first case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub fault: Fault,
    /// How many cases.
    pub count: u64,
    /// What the first case was.
    pub first: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (the first: {})", self.fault.says(), self.count, self.first)
    }
}

/// The faults met so far; any thread may note one.
#[derive(Debug, Default)]
pub struct Faults(Mutex<BTreeMap<Fault, Problem>>);

impl Faults {
    /// Counts so many cases; `case` says what happened, and is asked only for the first.
    pub fn note(&self, fault: Fault, count: u64, case: impl FnOnce() -> String) {
        if count > 0 {
            let first = || Problem { fault, count: 0, first: case() };
            self.0.lock().entry(fault).or_insert_with(first).count += count;
        }
    }

    /// What has been met, by kind.
    pub fn problems(&self) -> Vec<Problem> {
        self.0.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Record;

    const MS: Duration = Duration::from_millis(1);
    const KEY: PartitionKey = PartitionKey(0);

    fn ended(ending: Ending, waited: Duration) -> Ended {
        Ended { ending, waited, timeout: 50 * MS, bytes: 7 }
    }

    /// A record that the leader and so many followers have, and the books of its operation.
    fn one_record(followers: usize) -> (Cluster, Books) {
        let cluster = Cluster::new(1, None);
        let record = Record { producer: 0, line: 0, sequence: 0 };
        let _ = cluster.partition(KEY).append(record);
        let logs = cluster.partition(KEY).followers();
        logs[..followers].iter().for_each(|log| log.append(&[record]));
        (cluster, Books::new(1))
    }

    #[test]
    fn what_is_wrong_is_found_counted_and_told() {
        use Ending::{Completed, Expired};
        let early = 50 * MS - Duration::from_nanos(1);
        let missing = "acknowledged records missing from an in-sync log: 1 (the first: offset 0 of \
                       partition 0, in the log of follower 2)";
        let lost = "operations that never ended: 1 (the first: 0 of 1 have ended)";
        let soon = "operations that expired before their deadline: 1 (the first: partition 0, after \
                    49.999999ms of 50ms)";
        for (followers, ending, wrong) in [
            (2, Some((Completed, MS)), None),
            (0, Some((Expired, 50 * MS)), None),
            (1, Some((Completed, MS)), Some(missing)),
            (2, None, Some(lost)),
            (2, Some((Expired, early)), Some(soon)),
        ] {
            let (cluster, books) = one_record(followers);
            if let Some((ending, waited)) = ending {
                books.end(KEY, 1, &ended(ending, waited));
            }
            let said: Vec<_> = books.close(&cluster).iter().map(Problem::to_string).collect();
            assert_eq!(said, Vec::from_iter(wrong));
        }
    }

    #[test]
    fn a_replica_out_of_the_set_owes_nothing() {
        let cluster = Cluster::new(1, Some(MS));
        let record = Record { producer: 0, line: 0, sequence: 0 };
        let (partition, books) = (cluster.partition(KEY), Books::new(1));
        let _ = partition.append(record);
        assert_eq!(partition.shrink(5 * MS), Some(1));
        books.end(KEY, 1, &ended(Ending::Completed, MS));
        assert_eq!(books.close(&cluster), []);
    }

    #[test]
    fn a_fault_is_counted_and_its_first_case_kept() {
        let faults = Faults::default();
        faults.note(Fault::Refused, 1, || "the first".to_owned());
        faults.note(Fault::Refused, 2, || unreachable!("only the first is told"));
        faults.note(Fault::StillParked, 0, || unreachable!("there was no case"));
        let first = "the first".to_owned();
        assert_eq!(faults.problems(), [Problem { fault: Fault::Refused, count: 3, first }]);
    }

    #[test]
    fn tallies_merge() {
        let books = Books::new(2);
        books.end(KEY, 1, &ended(Ending::Completed, 10 * MS));
        books.end(PartitionKey(1), 1, &ended(Ending::Completed, Duration::from_secs(3600)));
        books.end(PartitionKey(1), 2, &ended(Ending::Expired, 51 * MS));
        books.end(KEY, 2, &ended(Ending::Cancelled, 20 * MS));
        let Tally { counts, wait, lateness } = books.totals();
        let all = Counts { completed: 2, expired: 1, cancelled: 1, bytes_completed: 14 };
        assert_eq!((counts, books.counts(), counts.ended()), (all, all, 4));
        let to_a_thousandth = |one: u64, other: u64| one.abs_diff(other) <= other / 1000;
        assert!(to_a_thousandth(wait.value_at_quantile(0.5), 10_000_000));
        assert!(to_a_thousandth(wait.max(), 3_600_000_000_000));
        assert!(to_a_thousandth(lateness.max(), 1_000_000));
    }
}
