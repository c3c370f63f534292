//! One partition: the leader's log, the followers' logs, the in-sync set, and the high watermark
//! that follows from it.
//!
//! As in Kafka, a fetch from an offset says that the follower has everything below it. A follower
//! that has not fetched for too long leaves the in-sync set, and returns with a fetch from the high
//! watermark or beyond. (In Kafka also one that fetches and does not catch up leaves.)
//!
//! The leader's lock covers its log and what it knows of the followers. The high watermark is read
//! without it: that is the condition of a waiting produce, and a check must not need a lock that
//! the thread raising the event might hold. A call that moves it returns the new one: its event
//! must follow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{collections::VecDeque, fmt, time::Duration};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// How many followers a partition has, numbered from 0; the leader comes on top.
pub(crate) const FOLLOWERS: usize = 2;

/// The most records that one fetch brings.
const FETCH_MAX: usize = 16 * 1024;

/// The watch key of the purgatory: a produce waits under its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey(pub(crate) u32);

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// An entry of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its place among the records of all producers.
    pub(crate) number: u64,
    /// The line that it carries, by its number in the text.
    pub(crate) line: u32,
}

/// Records in order; the offset of a record is its number since the log began. The audit takes them
/// off the front, so memory follows what is not replicated yet, not the length of the run.
#[derive(Debug, Default)]
struct Log {
    start: u64,
    records: VecDeque<Record>,
}

impl Log {
    /// The log end offset: the one the next record gets.
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    fn take(&mut self, max: usize) -> Vec<Record> {
        let taken = max.min(self.records.len());
        self.start += taken as u64;
        self.records.drain(..taken).collect()
    }
}

/// A follower's own log, with its end where others can see it without the lock.
#[derive(Debug, Default)]
pub(crate) struct FollowerLog {
    log: Mutex<Log>,
    end: AtomicU64,
}

impl FollowerLog {
    /// The log end offset; what lies below it is in the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Appends what was fetched.
    pub(crate) fn append(&self, records: &[Record]) {
        let mut log = self.log.lock();
        log.records.extend(records);
        self.end.store(log.end(), Ordering::Release);
    }

    /// Takes at most so many records off the front.
    pub(crate) fn take(&self, max: usize) -> Vec<Record> {
        self.log.lock().take(max)
    }
}

/// What the leader has, and what it knows of its followers.
#[derive(Debug, Default)]
struct Leader {
    log: Log,
    log_ends: [u64; FOLLOWERS],
    fetched_at: [Duration; FOLLOWERS],
}

/// A partition and all its replicas.
#[derive(Debug)]
pub(crate) struct Partition {
    /// What its produces wait under.
    pub(crate) key: PartitionKey,
    /// The followers' own logs.
    pub(crate) followers: [FollowerLog; FOLLOWERS],
    leader: CachePadded<Mutex<Leader>>,
    high_watermark: CachePadded<AtomicU64>,
    /// Which followers are in sync; written under the leader's lock.
    are_in_sync: [AtomicBool; FOLLOWERS],
}

impl Partition {
    /// Empty logs, every replica in sync.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            key: PartitionKey(number),
            followers: Default::default(),
            leader: CachePadded::default(),
            high_watermark: CachePadded::default(),
            are_in_sync: [const { AtomicBool::new(true) }; FOLLOWERS],
        }
    }

    /// The offset below which every in-sync replica has every record.
    pub(crate) fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Whether a follower is in the in-sync set.
    pub(crate) fn is_in_sync(&self, follower: usize) -> bool {
        self.are_in_sync[follower].load(Ordering::Acquire)
    }

    /// The end of the leader's log.
    pub(crate) fn log_end(&self) -> u64 {
        self.leader.lock().log.end()
    }

    /// How far each follower is behind, as the leader knows it.
    pub(crate) fn lag(&self) -> [u64; FOLLOWERS] {
        let leader = self.leader.lock();
        leader.log_ends.map(|log_end| leader.log.end() - log_end)
    }

    /// Appends a record to the leader's log. Returns the high watermark that acknowledges it, and
    /// the present one where the append alone has moved it: the leader is the whole in-sync set.
    pub(crate) fn append(&self, record: Record) -> (u64, Option<u64>) {
        let mut leader = self.leader.lock();
        leader.log.records.push_back(record);
        (leader.log.end(), self.advance(&leader))
    }

    /// Serves a follower's fetch: it has everything below `log_end`, and gets what comes next.
    pub(crate) fn fetch(
        &self,
        follower: usize,
        log_end: u64,
        now: Duration,
        into: &mut Vec<Record>,
    ) -> Option<u64> {
        let mut leader = self.leader.lock();
        leader.log_ends[follower] = log_end;
        leader.fetched_at[follower] = now;
        if log_end >= self.high_watermark() {
            self.are_in_sync[follower].store(true, Ordering::Release);
        }
        let skip = (log_end - leader.log.start) as usize;
        let end = leader.log.records.len().min(skip + FETCH_MAX);
        into.extend(leader.log.records.range(skip..end));
        self.advance(&leader)
    }

    /// Takes the followers that have not fetched since `since` out of the in-sync set.
    pub(crate) fn shrink(&self, since: Duration) -> Option<u64> {
        let leader = self.leader.lock();
        for (in_sync, fetched_at) in self.are_in_sync.iter().zip(leader.fetched_at) {
            if fetched_at < since {
                in_sync.store(false, Ordering::Release);
            }
        }
        self.advance(&leader)
    }

    /// Moves the high watermark to the smallest log end in the set; it never goes back. The set was
    /// stored before: a thread that sees a high watermark sees the set that it comes from, or a
    /// later one.
    fn advance(&self, leader: &Leader) -> Option<u64> {
        let ends = self.in_sync().map(|follower| leader.log_ends[follower]);
        let lowest = ends.fold(leader.log.end(), u64::min);
        (lowest > self.high_watermark()).then(|| {
            self.high_watermark.store(lowest, Ordering::Release);
            lowest
        })
    }

    /// The followers in the in-sync set.
    pub(crate) fn in_sync(&self) -> impl Iterator<Item = usize> {
        (0..FOLLOWERS).filter(|&follower| self.is_in_sync(follower))
    }

    /// How many records of those that the leader's log still has are in every follower's log.
    pub(crate) fn shared(&self) -> u64 {
        let start = self.leader.lock().log.start;
        self.followers.iter().map(FollowerLog::end).fold(u64::MAX, u64::min) - start
    }

    /// Takes at most so many records off the front of the leader's log; returns the offset of the
    /// first, and them.
    pub(crate) fn take(&self, max: usize) -> (u64, Vec<Record>) {
        let log = &mut self.leader.lock().log;
        (log.start, log.take(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A partition with so many records.
    fn partition(records: u64) -> Partition {
        let partition = Partition::new(0);
        for number in 0..records {
            assert_eq!(partition.append(Record { number, line: 0 }), (number + 1, None));
        }
        partition
    }

    fn fetch(partition: &Partition, follower: usize, log_end: u64, now: Duration) -> Option<u64> {
        partition.fetch(follower, log_end, now, &mut Vec::new())
    }

    #[test]
    fn a_follower_is_believed_at_its_next_fetch_and_the_slowest_holds_the_high_watermark() {
        let partition = partition(10);
        let mut fetched = Vec::new();
        assert_eq!(partition.fetch(0, 4, ms(1), &mut fetched), None);
        assert_eq!(fetched.iter().map(|r| r.number).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
        assert_eq!(fetch(&partition, 1, 4, ms(1)), Some(4));
        assert_eq!(fetch(&partition, 1, 10, ms(2)), None);
        assert_eq!((partition.lag(), partition.high_watermark()), ([6, 0], 4));
        assert_eq!(fetch(&partition, 0, 10, ms(2)), Some(10));
        assert_eq!(fetch(&partition, 0, 10, ms(3)), None);
    }

    #[test]
    fn a_stalled_follower_leaves_and_comes_back_when_it_has_everything() {
        let partition = partition(10);
        assert_eq!(fetch(&partition, 0, 10, ms(50)), None);
        assert_eq!(fetch(&partition, 1, 0, ms(30)), None);
        assert_eq!(partition.shrink(ms(30)), None, "exactly at the bound it is still in");
        assert_eq!(partition.shrink(ms(31)), Some(10));
        assert_eq!((partition.is_in_sync(0), partition.is_in_sync(1)), (true, false));

        assert_eq!(fetch(&partition, 1, 9, ms(60)), None, "one record short: still out");
        assert!(!partition.is_in_sync(1));
        assert_eq!(fetch(&partition, 1, 10, ms(61)), None);
        assert!(partition.is_in_sync(1));
        let record = Record { number: 10, line: 0 };
        assert_eq!(partition.append(record), (11, None), "it counts again");
        assert_eq!(fetch(&partition, 0, 11, ms(62)), None);
        assert_eq!(fetch(&partition, 1, 11, ms(63)), Some(11));

        assert_eq!(partition.shrink(ms(100)), None);
        assert_eq!(partition.append(record), (12, Some(12)), "a leader left alone");
    }
}
