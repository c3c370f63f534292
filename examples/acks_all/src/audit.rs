//! Reads every log: a follower's must be the beginning of the leader's, lines included.
//!
//! While the run goes on, each pass takes the stretch that all replicas have, compares it, and cuts
//! it off the logs. The last pass takes what is left.

use std::sync::Arc;

use crate::books::{Books, Fault};
use crate::in_sync::name;
use crate::log::{Log, Record};
use crate::partition::{Cluster, Partition, PartitionKey};

/// Records copied out of a log in one hold of its lock.
const BATCH: usize = 4096;

/// What an audit reads into, and the books that it writes in.
#[derive(Debug)]
pub struct Audit {
    books: Arc<Books>,
    leader: Vec<Record>,
    follower: Vec<Record>,
}

impl Audit {
    /// Nothing read yet.
    pub fn new(books: &Arc<Books>) -> Self {
        Self { books: Arc::clone(books), leader: Vec::new(), follower: Vec::new() }
    }

    /// Compares what all replicas have by now, and cuts it off.
    pub fn pass(&mut self, cluster: &Cluster) {
        for (key, partition) in cluster.iter() {
            let mut at = partition.with_log(|log| log.start());
            let shared = partition.followers().iter().map(|log| log.end()).min().unwrap_or(at);
            while at < shared {
                let max = BATCH.min((shared - at) as usize);
                self.compare(key, partition, at, max);
                at += max as u64;
                partition.with_log(|log| log.cut_below(at));
                partition.followers().iter().for_each(|log| log.with(|log| log.cut_below(at)));
            }
        }
    }

    /// Compares the rest of every log; nothing may be appending any more.
    pub fn last_pass(mut self, cluster: &Cluster) {
        self.pass(cluster);
        for (key, partition) in cluster.iter() {
            let at = partition.with_log(|log| log.start());
            self.compare(key, partition, at, usize::MAX);
        }
    }

    /// Compares at most so many records from `at` on.
    fn compare(&mut self, key: PartitionKey, partition: &Partition, at: u64, max: usize) {
        let read = |log: &mut Log, into: &mut Vec<Record>| {
            into.clear();
            log.read(at, max, into);
        };
        partition.with_log(|log| read(log, &mut self.leader));
        for (follower, log) in partition.followers().iter().enumerate() {
            log.with(|log| read(log, &mut self.follower));
            let pairs = || self.leader.iter().zip(&self.follower);
            let longer = self.follower.len().saturating_sub(self.leader.len());
            let differing = longer + pairs().filter(|(one, other)| one != other).count();
            self.books.faults.note(Fault::LogsDiffer, differing as u64, || {
                let first = pairs().position(|(one, other)| one != other);
                let offset = at + first.unwrap_or(self.leader.len()) as u64;
                format!("offset {offset} of {key}, in the log of {}", name(follower))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 10_000;
    const KEY: PartitionKey = PartitionKey(0);

    fn record(sequence: u64) -> Record {
        Record { producer: 0, line: 1, sequence }
    }

    /// What is wrong after a pass, one more append to the second follower's log, and a last pass:
    /// of a partition of which each follower has a part.
    fn wrong(parts: [u64; 2], appended: Option<Record>) -> Vec<String> {
        let (cluster, books) = (Cluster::new(1, None), Arc::new(Books::new(1)));
        let partition = cluster.partition(KEY);
        (0..RECORDS).for_each(|n| _ = partition.append(record(n)));
        for (log, part) in partition.followers().iter().zip(parts) {
            log.append(&(0..part).map(record).collect::<Vec<_>>());
        }
        let mut audit = Audit::new(&books);
        audit.pass(&cluster);
        assert_eq!(partition.with_log(|log| log.start()), parts.into_iter().min().unwrap());
        partition.followers()[1].append(appended.as_slice());
        audit.last_pass(&cluster);
        books.faults.problems().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn logs_of_which_each_is_a_beginning_of_the_leaders_are_alike() {
        for parts in [[RECORDS; 2], [RECORDS, RECORDS - 3], [0, 1]] {
            assert!(wrong(parts, None).is_empty());
        }
        assert!(wrong([RECORDS, RECORDS - 1], Some(record(RECORDS - 1))).is_empty());
    }

    #[test]
    fn another_line_another_record_and_one_too_many_are_found() {
        let said = "offsets where a follower's log is not the leader's: 1 (the first: offset";
        let (last, line) = (RECORDS - 1, Record { line: 2, ..record(RECORDS - 1) });
        for (part, appended, at) in
            [(last, line, last), (last, record(0), last), (RECORDS, record(0), RECORDS)]
        {
            let expected = format!("{said} {at} of partition 0, in the log of follower 2)");
            assert_eq!(wrong([RECORDS, part], Some(appended)), [expected]);
        }
    }
}
