//! Reads every log and enters in the books what it really holds.
//!
//! While the run goes on, each pass takes the stretch that all replicas have, compares it offset by
//! offset, and cuts it off the logs. The last pass takes what is left, replica by replica.

use crate::books::Books;
use crate::faults::Fault;
use crate::in_sync::Replica;
use crate::partition::{Cluster, Partition};
use crate::record::Record;

/// Records copied out of a log in one hold of its lock.
const BATCH: usize = 4096;

/// How far each partition has been read.
#[derive(Debug)]
pub struct Audit {
    /// By partition: below this offset, every log was read, and all were alike.
    read: Vec<u64>,
    leader: Vec<Record>,
    other: Vec<Record>,
}

impl Audit {
    /// Nothing read yet.
    pub fn new(cluster: &Cluster) -> Self {
        Self { read: vec![0; cluster.len() as usize], leader: Vec::new(), other: Vec::new() }
    }

    /// Reads what all replicas have by now, cuts it off, and settles the books.
    pub fn pass(&mut self, cluster: &Cluster, books: &Books) {
        for (key, partition) in cluster.iter() {
            let ends = Replica::all().map(|replica| partition.log_end(replica));
            let shared = ends.min().unwrap_or(0);
            let mut at = self.read[key.0 as usize];
            while at < shared {
                at += self.read_batch(partition, books, at, shared);
            }
            self.read[key.0 as usize] = at;
            for replica in Replica::all() {
                partition.with_log(replica, |log| log.cut_below(at));
            }
        }
        books.settle();
    }

    /// Reads the stretch from `at` to at most `end`, which every replica has; returns its length.
    fn read_batch(&mut self, partition: &Partition, books: &Books, at: u64, end: u64) -> u64 {
        let max = BATCH.min((end - at) as usize);
        read(partition, Replica::LEADER, at, max, &mut self.leader);
        enter(books, Replica::LEADER, &self.leader);
        for follower in Replica::followers() {
            read(partition, follower, at, max, &mut self.other);
            enter(books, follower, &self.other);
            compare(books, follower, at, &self.leader, &self.other);
        }
        max as u64
    }

    /// Reads the rest of every log; nothing may be appending any more.
    pub fn last_pass(mut self, cluster: &Cluster, books: &Books) {
        self.pass(cluster, books);
        for (key, partition) in cluster.iter() {
            let from = self.read[key.0 as usize];
            read(partition, Replica::LEADER, from, usize::MAX, &mut self.leader);
            enter(books, Replica::LEADER, &self.leader);
            for follower in Replica::followers() {
                read(partition, follower, from, usize::MAX, &mut self.other);
                enter(books, follower, &self.other);
                compare(books, follower, from, &self.leader, &self.other);
            }
        }
    }
}

fn read(partition: &Partition, replica: Replica, from: u64, max: usize, into: &mut Vec<Record>) {
    into.clear();
    partition.with_log(replica, |log| log.read(from, max, into));
}

fn enter(books: &Books, replica: Replica, records: &[Record]) {
    for record in records {
        books.mark(record.id, replica);
    }
}

/// A follower's log must be a prefix of the leader's, lines included.
fn compare(books: &Books, follower: Replica, at: u64, leader: &[Record], records: &[Record]) {
    let longer = records.len().saturating_sub(leader.len());
    let differing = leader.iter().zip(records).filter(|(one, other)| one != other).count();
    books.faults.note_many(Fault::LogsDiffer, (longer + differing) as u64, || {
        let place = leader
            .iter()
            .zip(records)
            .position(|(one, other)| one != other)
            .unwrap_or(leader.len());
        format!("offset {} of {}", at + place as u64, follower.name())
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::in_sync::Members;
    use crate::partition::PartitionKey;
    use crate::record::RecordId;
    use crate::tally::{Ended, Ending};

    const RECORDS: u64 = 10_000;

    /// One partition with acknowledged records, of which each follower has a part.
    fn run(parts: [u64; 2]) -> (Cluster, Books) {
        let cluster = Cluster::new(1, None, Duration::ZERO);
        let books = Books::new(1, 1);
        let page = books.ledger(0).new_page();
        let partition = cluster.partition(PartitionKey(0));
        let zero = Duration::ZERO;
        let ended =
            Ended { ending: Ending::Completed, parked_at: zero, timeout: zero, at: zero, bytes: 0 };
        for _ in 0..RECORDS {
            let record = Record { id: RecordId::new(0, books.ledger(0).issue()), line: 1 };
            let _ = partition.append(record);
            books.end(record.id, &page, &ended);
            for (follower, part) in Replica::followers().zip(parts) {
                if record.id.sequence() < part {
                    partition.follower_log(follower).unwrap().append(&[record]);
                }
            }
        }
        (cluster, books)
    }

    fn wrong(books: &Books) -> Vec<(Fault, u64)> {
        books.close(|_| Members::ALL).iter().map(|problem| (problem.fault, problem.count)).collect()
    }

    #[test]
    fn full_logs_settle_the_books_and_are_cut() {
        let (cluster, books) = run([RECORDS, RECORDS]);
        let mut audit = Audit::new(&cluster);
        audit.pass(&cluster, &books);
        let starts = Replica::all()
            .map(|replica| cluster.partition(PartitionKey(0)).with_log(replica, |l| l.start()));
        assert!(starts.into_iter().all(|start| start > 0));
        audit.last_pass(&cluster, &books);
        assert_eq!(wrong(&books), []);
    }

    #[test]
    fn records_that_a_follower_lacks_are_missing() {
        let (cluster, books) = run([RECORDS, RECORDS - 3]);
        let mut audit = Audit::new(&cluster);
        audit.pass(&cluster, &books);
        audit.last_pass(&cluster, &books);
        assert_eq!(wrong(&books), [(Fault::MissingFromLog, 3)]);
    }

    #[test]
    fn a_log_with_another_line_differs() {
        let (cluster, books) = run([RECORDS, RECORDS - 1]);
        let last = Record { id: RecordId::new(0, RECORDS - 1), line: 2 };
        let log = cluster.partition(PartitionKey(0)).follower_log(Replica::follower(2)).unwrap();
        log.append(&[last]);
        Audit::new(&cluster).last_pass(&cluster, &books);
        assert_eq!(wrong(&books), [(Fault::LogsDiffer, 1)]);
    }

    #[test]
    fn a_log_with_a_record_in_place_of_another_is_found_twice_over() {
        let (cluster, books) = run([RECORDS, RECORDS - 1]);
        let again = Record { id: RecordId::new(0, 0), line: 1 };
        cluster
            .partition(PartitionKey(0))
            .follower_log(Replica::follower(2))
            .unwrap()
            .append(&[again]);
        Audit::new(&cluster).last_pass(&cluster, &books);
        assert_eq!(
            wrong(&books),
            [(Fault::MissingFromLog, 1), (Fault::TwiceInLog, 1), (Fault::LogsDiffer, 1)]
        );
    }
}
