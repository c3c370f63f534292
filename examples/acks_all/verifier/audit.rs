//! The self-check: counts how the produces were answered, and finds faults.
//!
//! The audit uses no counters of the library. Answers are counted where the producers get them. The
//! logs tell which records were sent, and which replicas have them.

use std::{collections::BTreeMap, fmt, ops::AddAssign, time::Duration};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::name;
use crate::Answer;
use crate::partition::{Change, FOLLOWERS, Log, LogEnd, Partition};

/// The numbers of produces that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    /// Includes the refused produces.
    pub(crate) cancelled: u64,
    /// Bytes of text in the completed produces.
    pub(crate) bytes: u64,
    /// The sum of all answered offsets: an answer for another offset would change it.
    pub(crate) offsets: u64,
}

impl Counts {
    /// Returns the number of answers.
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

/// The answers of one partition, or of several; times are in nanoseconds, to a thousandth.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// The number of answers, by outcome.
    pub(crate) counts: Counts,
    /// How long the completed produces waited.
    pub(crate) wait: Histogram<u64>,
    /// How late the expired produces were answered.
    pub(crate) lateness: Histogram<u64>,
    /// For each epoch the highest end that was acknowledged: it covers every record below it.
    acknowledged: Vec<u64>,
    /// For each epoch but the first, the end of the leader's log when it began.
    starts: Vec<u64>,
    /// The latest epoch that has begun, or is about to.
    last_epoch: u64,
    /// The followers that are not in the in-sync set.
    out: [bool; FOLLOWERS],
    /// The number of records that were taken back, and the sum of their offsets.
    taken_back: u64,
    taken_back_offsets: u64,
}

impl Tally {
    /// Returns the highest end that any leader has acknowledged.
    fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().max().copied().unwrap_or(0)
    }
}

impl Default for Tally {
    fn default() -> Self {
        let empty = Histogram::new(3).expect("three significant figures are what it can do");
        Self {
            counts: Counts::default(),
            wait: empty.clone(),
            lateness: empty,
            acknowledged: Vec::new(),
            starts: Vec::new(),
            last_epoch: 0,
            out: [false; FOLLOWERS],
            taken_back: 0,
            taken_back_offsets: 0,
        }
    }
}

/// The audit of one run.
#[derive(Debug)]
pub(crate) struct Audit {
    /// One for each partition, whose answers mostly come from one thread at a time.
    tallies: Vec<CachePadded<Mutex<Tally>>>,
    faults: Mutex<BTreeMap<Fault, Problem>>,
    /// The longest time that a produce may wait.
    timeout: Duration,
}

impl Audit {
    /// Makes an audit without answers.
    pub(crate) fn new(partitions: u32, timeout: Duration) -> Self {
        Self {
            tallies: (0..partitions).map(|_| CachePadded::default()).collect(),
            faults: Mutex::default(),
            timeout,
        }
    }

    /// Counts the answer to a produce that has `waited`, for a line of `bytes`. An acknowledgement
    /// covers the records below `end`; it is checked at once, against the in-sync followers' own
    /// logs and the logs of later leaders.
    pub(crate) fn record(
        &self,
        partition: &Partition,
        answer: &Answer,
        end: LogEnd,
        waited: Duration,
        bytes: u32,
    ) {
        let LogEnd { epoch, offset } = end;
        let place = || format!("offset {} of {}", offset - 1, partition.key);
        let tally = &mut *self.tally(partition).lock();
        // Add up the offsets of all answers: a second answer, or another record's, changes the sum.
        tally.counts.offsets = tally.counts.offsets.wrapping_add(offset);
        match answer {
            Answer::Acknowledged => {
                // Check the promise of acks=all before anything can change.
                let mut logs = tally.out.iter().zip(&partition.followers);
                // A log that does not know this leader has a record of the previous leader there.
                let lacks = |log: &Log| log.end() < offset || log.epoch() < epoch;
                if logs.any(|(is_out, log)| !is_out && lacks(log)) {
                    self.report(TOO_SOON, 1, place);
                }
                // Every later leader must have the record, too.
                let mut later = tally.starts.iter().skip(epoch as usize);
                if later.any(|start| *start < offset) {
                    self.report(LOST, 1, place);
                }
                let epochs = tally.acknowledged.len().max(epoch as usize + 1);
                tally.acknowledged.resize(epochs, 0);
                let before = &mut tally.acknowledged[epoch as usize];
                *before = offset.max(*before);
                tally.counts.completed += 1;
                tally.counts.bytes += u64::from(bytes);
                tally.wait += nanos(waited);
            }
            Answer::TimedOut => {
                let timeout = self.timeout;
                // Never early: not by a nanosecond.
                if waited < timeout {
                    let case = || format!("{}, after {waited:?} of {timeout:?}", place());
                    self.report(EARLY, 1, case);
                }
                tally.counts.expired += 1;
                tally.lateness += nanos(waited.saturating_sub(timeout));
            }
            Answer::LeaderChanged => {
                tally.counts.cancelled += 1;
                self.report(NO_CHANGE, u64::from(epoch >= tally.last_epoch), place);
            }
            Answer::Cancelled => {
                tally.counts.cancelled += 1;
                self.report(CANCELLED, 1, place);
            }
            Answer::Refused(reason) => {
                tally.counts.cancelled += 1;
                self.report(REFUSED, 1, || format!("{}: {reason:?}", place()));
            }
        }
    }

    fn tally(&self, partition: &Partition) -> &Mutex<Tally> {
        &self.tallies[partition.key.0 as usize]
    }

    /// Notes that a follower is going to leave the in-sync set: its log may lack the records that
    /// are acknowledged from now on.
    pub(crate) fn left(&self, partition: &Partition, follower: usize) {
        self.tally(partition).lock().out[follower] = true;
    }

    /// Notes that a follower has joined the in-sync set again. Its log must have every acknowledged
    /// record.
    pub(crate) fn joined(&self, partition: &Partition, follower: usize) {
        let tally = &mut *self.tally(partition).lock();
        tally.out[follower] = false;
        let end = partition.followers[follower].end();
        let case = || {
            format!(
                "{} as it joined {}, at {end}",
                name(follower),
                partition.key
            )
        };
        self.report(MISSING, tally.acknowledged().saturating_sub(end), case);
    }

    /// Notes that the leader is going to change: from now on produces may be answered that it has.
    pub(crate) fn leader_changes(&self, partition: &Partition) {
        self.tally(partition).lock().last_epoch += 1;
    }

    /// Notes a change of the leader. The new leader's log must have every record that was
    /// acknowledged before.
    pub(crate) fn leader_changed(&self, partition: &Partition, change: &Change) {
        let tally = &mut *self.tally(partition).lock();
        let LogEnd { epoch, offset } = change.start;
        let case = || {
            format!(
                "the leader of epoch {epoch} of {}, at {offset}",
                partition.key
            )
        };
        // Leave out the records of the new epoch: some may be acknowledged already.
        let earlier = tally.acknowledged.iter().take(epoch as usize);
        let acknowledged = earlier.max().copied().unwrap_or(0);
        self.report(LOST, acknowledged.saturating_sub(offset), case);
        self.report(LOGS_DIFFER, u64::from(!change.alike), case);

        // The records that were taken back were also produced.
        tally.starts.push(offset);
        tally.taken_back += change.taken_back;
        let last = offset + change.taken_back;
        tally.taken_back_offsets += sum_up_to(last) - sum_up_to(offset);
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for tally in &self.tallies {
            counts += tally.lock().counts;
        }
        counts
    }

    /// Returns the counts and times so far.
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

    /// Reports cases of a fault; `case` describes one, and is called only for the first.
    pub(crate) fn report(&self, fault: Fault, count: u64, case: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        // Only the first case is described: a run may have millions.
        let mut faults = self.faults.lock();
        let problem = faults.entry(fault).or_insert_with(|| Problem {
            fault,
            count: 0,
            first: case(),
        });
        problem.count += count;
    }

    /// Ends the audit after the last answer: checks that every operation has ended once, that all
    /// logs are alike, and that every in-sync replica's log has every acknowledged record. Returns
    /// all faults.
    pub(crate) fn finish(&self, partitions: &[Partition]) -> Vec<Problem> {
        for partition in partitions {
            let tally = self.tally(partition).lock();
            self.compare_counts(partition, &tally);
            self.compare_logs(partition, &tally);
        }
        self.faults.lock().values().cloned().collect()
    }

    /// Forgets the reports of a fault that does not count in this run.
    pub(crate) fn forgive(&self, fault: Fault) {
        self.faults.lock().remove(fault);
    }

    /// Compares the number of a partition's answers with the number of records in the leader's log
    /// and of records that were taken back.
    fn compare_counts(&self, partition: &Partition, tally: &Tally) {
        let end = partition.log.end();
        let produced = end + tally.taken_back;
        let ended = tally.counts.ended();
        let key = partition.key;
        let case = || format!("{ended} of {produced} of {key} have ended");
        // Fewer answers than records, or more.
        self.report(NEVER_ENDED, produced.saturating_sub(ended), case);
        self.report(TWICE, ended.saturating_sub(produced), case);
        // As many answers as records, but for other offsets.
        let offsets = sum_up_to(end).wrapping_add(tally.taken_back_offsets);
        if produced == ended && offsets != tally.counts.offsets {
            let case = || format!("by the sum of all offsets of {key}");
            self.report(ANOTHERS, 1, case);
        }
    }

    /// Compares the logs of a partition's followers with the leader's log, and with the
    /// acknowledged records.
    fn compare_logs(&self, partition: &Partition, tally: &Tally) {
        for (follower, log) in partition.followers.iter().enumerate() {
            let place = || format!("{} in {}, at {}", name(follower), partition.key, log.end());
            // A log that does not know the latest leader is of a stalled follower, and has no
            // record of its epoch.
            let knows_leader = log.epoch() == partition.log.epoch();
            let has = match tally.starts.last() {
                Some(start) if !knows_leader => log.end().min(*start),
                _ => log.end(),
            };
            // Acknowledged records from `has` on are missing. A follower that fell out need not
            // have those that were acknowledged without it.
            if !tally.out[follower] {
                let missing = tally.acknowledged().saturating_sub(has);
                self.report(MISSING, missing, place);
            }
            // A log that knows the leader must agree with the leader's log as far as it goes.
            let differs = match partition.digest_at(log.end()) {
                Some(digest) => digest != log.digest(),
                None => log.end() > partition.log.end(),
            };
            if knows_leader && differs {
                self.report(LOGS_DIFFER, 1, place);
            }
        }
    }
}

/// Returns the sum of the offsets 1, 2, 3 and so on, up to `end`.
fn sum_up_to(end: u64) -> u64 {
    end * (end + 1) / 2
}

/// Returns the duration in nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A kind of fault, in the words of the messages.
pub(crate) type Fault = &'static str;

pub(crate) const NEVER_ENDED: Fault = "operations that never ended";
pub(crate) const TWICE: Fault = "operations that ended twice";
pub(crate) const ANOTHERS: Fault = "answers for another offset than the record's";
pub(crate) const EARLY: Fault = "operations that expired before their deadline";
pub(crate) const TOO_SOON: Fault = "records acknowledged before every in-sync log had them";
pub(crate) const MISSING: Fault = "acknowledged records missing from an in-sync log";
pub(crate) const LOST: Fault = "acknowledged records missing from a later leader's log";
pub(crate) const LOGS_DIFFER: Fault = "followers' logs that are not the leader's";
pub(crate) const REFUSED: Fault = "operations refused by the purgatory";
pub(crate) const CANCELLED: Fault = "operations cancelled without an interrupt";
pub(crate) const NO_CHANGE: Fault = "operations that were told of a new leader, and none came";
pub(crate) const STILL_PARKED: Fault = "operations still parked long after the last deadline";
pub(crate) const PANICKED: Fault = "producers that panicked";

/// A fault that was found, with the number of cases and the first case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The kind of fault.
    pub(crate) fault: Fault,
    /// The number of cases.
    pub(crate) count: u64,
    /// The first case, in words.
    pub(crate) first: String,
}

impl Problem {
    /// Returns the number of operations or records that are lost.
    pub(crate) fn lost(&self) -> u64 {
        if [NEVER_ENDED, MISSING, LOST].contains(&self.fault) {
            self.count
        } else {
            0
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            fault,
            count,
            first,
        } = self;
        write!(f, "{fault}: {count} (the first: {first})")
    }
}
