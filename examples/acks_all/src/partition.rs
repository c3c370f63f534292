//! One partition: the leader's log with its view of the replicas, the followers' logs, and the high
//! watermark.
//!
//! The leader's lock covers its log and its in-sync set. The high watermark is read without it:
//! that is the condition of a waiting produce, and a check must not need a lock that the thread
//! raising the event might hold.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::in_sync::{FOLLOWERS, HighWatermark, InSyncSet, Members, Replica};
use crate::log::{FollowerLog, Log};
use crate::record::Record;

/// The watch key of the purgatory: a produce waits under its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartitionKey(pub u32);

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// What became of an append.
#[derive(Debug, Clone, Copy)]
pub struct Appended {
    /// The high watermark that acknowledges the record.
    pub required_offset: u64,
    /// Whether the append alone moved the high watermark: so it is when the leader is the whole
    /// in-sync set.
    pub high_watermark: HighWatermark,
}

#[derive(Debug)]
struct Leader {
    log: Log,
    replicas: InSyncSet,
}

/// A partition and all its replicas.
#[derive(Debug)]
pub struct Partition {
    leader: CachePadded<Mutex<Leader>>,
    high_watermark: CachePadded<AtomicU64>,
    members: AtomicU8,
    followers: [FollowerLog; FOLLOWERS],
}

impl Partition {
    /// Empty logs, every replica in sync.
    pub fn new(shrink_after: Option<Duration>, now: Duration) -> Self {
        let leader = Leader { log: Log::default(), replicas: InSyncSet::new(shrink_after, now) };
        Self {
            leader: CachePadded::new(Mutex::new(leader)),
            high_watermark: CachePadded::new(AtomicU64::new(0)),
            members: AtomicU8::new(Members::ALL.0),
            followers: Default::default(),
        }
    }

    /// The offset below which every in-sync replica has every record.
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// The in-sync set.
    pub fn members(&self) -> Members {
        Members(self.members.load(Ordering::Acquire))
    }

    /// A follower's own log; none for the leader.
    pub fn follower_log(&self, follower: Replica) -> Option<&FollowerLog> {
        follower.follower_index().map(|index| &self.followers[index])
    }

    /// Appends a record to the leader's log.
    pub fn append(&self, record: Record) -> Appended {
        let mut leader = self.leader.lock();
        let required_offset = leader.log.push(record);
        let high_watermark = leader.replicas.appended(required_offset);
        self.show(&leader.replicas);
        Appended { required_offset, high_watermark }
    }

    /// Serves a follower's fetch from its log end on: takes note of that log end, and copies at
    /// most `max` records.
    pub fn fetch(
        &self,
        follower: Replica,
        log_end: u64,
        now: Duration,
        max: usize,
        into: &mut Vec<Record>,
    ) -> HighWatermark {
        let mut leader = self.leader.lock();
        let high_watermark = leader.replicas.fetched(follower, log_end, now);
        self.show(&leader.replicas);
        leader.log.read(log_end, max, into);
        high_watermark
    }

    /// Takes followers that have lagged too long out of the in-sync set.
    pub fn shrink(&self, now: Duration) -> HighWatermark {
        let mut leader = self.leader.lock();
        let high_watermark = leader.replicas.shrink(now);
        self.show(&leader.replicas);
        high_watermark
    }

    /// How far a follower is behind, as the leader knows it.
    pub fn lag(&self, follower: Replica) -> u64 {
        self.leader.lock().replicas.lag(follower)
    }

    /// Whether every in-sync replica's own log reaches `offset`, asked of the logs and not of the
    /// leader's view.
    pub fn in_sync_logs_reach(&self, offset: u64) -> bool {
        let members = self.members();
        let mut in_sync = Replica::followers().filter(|follower| members.contains(*follower));
        in_sync.all(|follower| self.follower_log(follower).is_some_and(|log| log.end() >= offset))
    }

    /// A replica's log end offset, asked of the log itself.
    pub fn log_end(&self, replica: Replica) -> u64 {
        match self.follower_log(replica) {
            Some(log) => log.end(),
            None => self.leader.lock().log.end(),
        }
    }

    /// Looks at a replica's log under its lock.
    pub fn with_log<R>(&self, replica: Replica, look: impl FnOnce(&mut Log) -> R) -> R {
        match self.follower_log(replica) {
            Some(log) => log.with(look),
            None => look(&mut self.leader.lock().log),
        }
    }

    /// Makes the leader's view readable without its lock. The set goes first: whoever sees a high
    /// watermark sees the set that it was computed over, or a later one.
    fn show(&self, replicas: &InSyncSet) {
        self.members.store(replicas.members().0, Ordering::Release);
        if self.high_watermark.load(Ordering::Relaxed) != replicas.high_watermark() {
            self.high_watermark.store(replicas.high_watermark(), Ordering::Release);
        }
    }
}

/// All partitions of the topic.
#[derive(Debug)]
pub struct Cluster {
    partitions: Vec<Partition>,
}

impl Cluster {
    /// A topic of `partitions` empty partitions.
    pub fn new(partitions: u32, shrink_after: Option<Duration>, now: Duration) -> Self {
        Self { partitions: (0..partitions).map(|_| Partition::new(shrink_after, now)).collect() }
    }

    /// How many partitions there are.
    pub fn len(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// Whether there is no partition.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// The partition of that key.
    pub fn partition(&self, key: PartitionKey) -> &Partition {
        &self.partitions[key.0 as usize]
    }

    /// Every partition with its key.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, &Partition)> {
        (0..).map(PartitionKey).zip(&self.partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordId;

    fn record(n: u64) -> Record {
        Record { id: RecordId::new(0, n), line: 0 }
    }

    #[test]
    fn a_follower_is_believed_at_its_next_fetch() {
        let partition = Partition::new(None, Duration::ZERO);
        let appended = partition.append(record(0));
        assert_eq!((appended.required_offset, appended.high_watermark), (1, HighWatermark::Same));
        for follower in Replica::followers() {
            let mut fetched = Vec::new();
            assert_eq!(
                partition.fetch(follower, 0, Duration::ZERO, 9, &mut fetched),
                HighWatermark::Same
            );
            assert_eq!(fetched, [record(0)]);
            partition.follower_log(follower).unwrap().append(&fetched);
        }
        assert_eq!(
            partition.high_watermark(),
            0,
            "fetched, but nobody has said that it was written"
        );
        assert!(partition.in_sync_logs_reach(1));

        let next = |follower| partition.fetch(follower, 1, Duration::ZERO, 9, &mut Vec::new());
        assert_eq!(next(Replica::follower(1)), HighWatermark::Same);
        assert_eq!(next(Replica::follower(2)), HighWatermark::Advanced);
        assert_eq!(partition.high_watermark(), 1);
    }

    #[test]
    fn the_logs_themselves_are_asked_and_only_the_in_sync_ones() {
        let partition = Partition::new(Some(Duration::from_millis(1)), Duration::ZERO);
        let _ = partition.append(record(0));
        partition.follower_log(Replica::follower(1)).unwrap().append(&[record(0)]);
        assert!(!partition.in_sync_logs_reach(1), "follower 2 has nothing");

        let now = Duration::from_millis(5);
        let _ = partition.fetch(Replica::follower(1), 1, now, 9, &mut Vec::new());
        assert_eq!(partition.shrink(now), HighWatermark::Advanced);
        assert!(!partition.members().contains(Replica::follower(2)));
        assert!(partition.in_sync_logs_reach(1));
        assert_eq!(partition.lag(Replica::follower(2)), 1);
    }
}
