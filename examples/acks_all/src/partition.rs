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

use crate::in_sync::{FOLLOWERS, InSyncSet, Members};
use crate::log::{FollowerLog, Log, Record};

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
    /// The high watermark, where the append alone moved it: so it is when the leader is the whole
    /// in-sync set.
    pub advanced: Option<u64>,
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

    /// The followers' own logs.
    pub fn followers(&self) -> &[FollowerLog; FOLLOWERS] {
        &self.followers
    }

    /// Appends a record to the leader's log.
    pub fn append(&self, record: Record) -> Appended {
        let mut leader = self.leader.lock();
        let required_offset = leader.log.push(record);
        let advanced = leader.replicas.appended(required_offset);
        self.show(&leader.replicas);
        Appended { required_offset, advanced }
    }

    /// Serves a follower's fetch from its log end on: takes note of that log end, and copies at
    /// most `max` records. Returns the high watermark where that has moved it.
    #[must_use]
    pub fn fetch(
        &self,
        follower: usize,
        log_end: u64,
        now: Duration,
        max: usize,
        into: &mut Vec<Record>,
    ) -> Option<u64> {
        let mut leader = self.leader.lock();
        let advanced = leader.replicas.fetched(follower, log_end, now);
        self.show(&leader.replicas);
        leader.log.read(log_end, max, into);
        advanced
    }

    /// Takes followers that have lagged too long out of the in-sync set. Returns the high watermark
    /// where that has moved it.
    #[must_use]
    pub fn shrink(&self, now: Duration) -> Option<u64> {
        let mut leader = self.leader.lock();
        let advanced = leader.replicas.shrink(now);
        self.show(&leader.replicas);
        advanced
    }

    /// How far each follower is behind, as the leader knows it.
    pub fn lag(&self) -> [u64; FOLLOWERS] {
        let leader = self.leader.lock();
        std::array::from_fn(|follower| leader.replicas.lag(follower))
    }

    /// Whether the own log of every follower in sync reaches `offset`, asked of the logs and not of
    /// the leader's view.
    pub fn in_sync_logs_reach(&self, offset: u64) -> bool {
        let members = self.members();
        let mut logs = self.followers.iter().enumerate();
        logs.all(|(follower, log)| !members.contains(follower) || log.end() >= offset)
    }

    /// Looks at the leader's log under its lock.
    pub fn with_log<R>(&self, look: impl FnOnce(&mut Log) -> R) -> R {
        look(&mut self.leader.lock().log)
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
pub struct Cluster(Vec<Partition>);

impl Cluster {
    /// A topic of `partitions` empty partitions.
    pub fn new(partitions: u32, shrink_after: Option<Duration>) -> Self {
        Self((0..partitions).map(|_| Partition::new(shrink_after, Duration::ZERO)).collect())
    }

    /// The key of the partition for a producer's record: each producer deals its records round,
    /// starting at a partition of its own.
    pub fn key(&self, producer: u16, sequence: u64) -> PartitionKey {
        PartitionKey(((sequence + u64::from(producer)) % self.0.len() as u64) as u32)
    }

    /// The partition of that key.
    pub fn partition(&self, key: PartitionKey) -> &Partition {
        &self.0[key.0 as usize]
    }

    /// Every partition with its key.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, &Partition)> {
        (0..).map(PartitionKey).zip(&self.0)
    }

    /// How many records the leader's logs have got.
    pub fn produced(&self) -> u64 {
        self.0.iter().map(|partition| partition.with_log(|log| log.end())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record { producer: 0, line: 0, sequence: 0 };

    #[test]
    fn a_follower_is_believed_at_its_next_fetch() {
        let partition = Partition::new(None, Duration::ZERO);
        let appended = partition.append(RECORD);
        assert_eq!((appended.required_offset, appended.advanced), (1, None));
        for (follower, log) in partition.followers().iter().enumerate() {
            let mut fetched = Vec::new();
            assert_eq!(partition.fetch(follower, 0, Duration::ZERO, 9, &mut fetched), None);
            assert_eq!(fetched, [RECORD]);
            log.append(&fetched);
        }
        assert_eq!(partition.high_watermark(), 0, "nobody has said that it was written");
        assert!(partition.in_sync_logs_reach(1));

        let next = |follower| partition.fetch(follower, 1, Duration::ZERO, 9, &mut Vec::new());
        assert_eq!((next(0), next(1), partition.high_watermark()), (None, Some(1), 1));
    }

    #[test]
    fn the_logs_themselves_are_asked_and_only_the_in_sync_ones() {
        let partition = Partition::new(Some(Duration::from_millis(1)), Duration::ZERO);
        let _ = partition.append(RECORD);
        partition.followers()[0].append(&[RECORD]);
        assert!(!partition.in_sync_logs_reach(1), "the second has nothing");

        let now = Duration::from_millis(5);
        let _ = partition.fetch(0, 1, now, 9, &mut Vec::new());
        assert_eq!(partition.shrink(now), Some(1));
        assert!(!partition.members().contains(1));
        assert!(partition.in_sync_logs_reach(1));
        assert_eq!(partition.lag(), [0, 1]);
    }

    #[test]
    fn a_producer_goes_round_all_partitions() {
        let cluster = Cluster::new(3, None);
        let keys: Vec<u32> = (0..6).map(|sequence| cluster.key(1, sequence).0).collect();
        assert_eq!(keys, [1, 2, 0, 1, 2, 0]);
    }
}
