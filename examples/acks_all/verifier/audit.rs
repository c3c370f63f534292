//! The audit: a follower's log must be the beginning of the leader's, lines included; and at the
//! end the answers must fit the logs.
//!
//! While the run goes on, each pass takes off the logs the stretch that all replicas have, and
//! compares it. The last pass takes what is left.

use super::books::{ANOTHERS, Books, LOGS_DIFFER, MISSING, NEVER_ENDED, Problem, TWICE};
use super::name;
use crate::Leader;
use crate::partition::Partition;

/// Records taken out of a log in one hold of its lock.
const BATCH: u64 = 4096;

impl Books {
    /// Compares what all replicas have by now.
    pub(crate) fn audit(&self, leader: &Leader) {
        for partition in &leader.partitions {
            let mut shared = partition.shared();
            while shared > 0 {
                let batch = shared.min(BATCH);
                self.compare(partition, batch as usize);
                shared -= batch;
            }
        }
    }

    /// Closes the books after the last answer: every operation has ended once, all logs are alike,
    /// and every acknowledged record is in the log of every replica that is in sync in its
    /// partition. Returns everything that is wrong.
    pub(crate) fn close(&self, leader: &Leader) -> Vec<Problem> {
        self.audit(leader);
        leader.partitions.iter().for_each(|partition| self.compare(partition, usize::MAX));
        let ends = || leader.partitions.iter().map(|partition| partition.log_end());
        let (produced, ended) = (ends().sum::<u64>(), self.counts().ended());
        let said = || format!("{ended} of {produced} have ended");
        self.note(NEVER_ENDED, produced.saturating_sub(ended), said);
        self.note(TWICE, ended.saturating_sub(produced), said);
        // Each partition's offsets are 1, 2, 3 and so on.
        let offsets = ends().fold(0, |sum: u64, end| sum.wrapping_add(end * (end + 1) / 2));
        let differ = produced == ended && offsets != self.counts().offsets;
        self.note(ANOTHERS, differ.into(), || "by the sum of all offsets".to_owned());
        for partition in &leader.partitions {
            for (follower, log) in partition.followers.iter().enumerate() {
                let lacks = self.lacks(partition, follower);
                self.note(MISSING, lacks, || place(partition, log.end(), follower));
            }
        }
        self.problems()
    }

    /// Takes at most so many records off each log, and compares them.
    fn compare(&self, partition: &Partition, max: usize) {
        let (at, leaders) = partition.take(max);
        for (follower, log) in partition.followers.iter().enumerate() {
            let records = log.take(max);
            let pairs = || leaders.iter().zip(&records);
            let longer = records.len().saturating_sub(leaders.len());
            let differing = longer + pairs().filter(|(one, other)| one != other).count();
            self.note(LOGS_DIFFER, differing as u64, || {
                let first = pairs().position(|(one, other)| one != other);
                place(partition, at + first.unwrap_or(leaders.len()) as u64, follower)
            });
        }
    }
}

fn place(partition: &Partition, offset: u64, follower: usize) -> String {
    format!("offset {offset} of {}, in the log of {}", partition.key, name(follower))
}
