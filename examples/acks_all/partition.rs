//! The logs of one partition: the leader's, the followers', and what the leader keeps for them.
//!
//! As in Kafka, a fetch from an offset says that the follower has everything below it. A leader
//! leads for an *epoch*. The next one may have less: what it lacks is [taken back](Log::take_back)
//! by every other replica, the follower's as it fetches next.
//!
//! A log is its end and a digest of every record below it, so that a run of any length can be
//! audited. The leader keeps the records that a follower still has to fetch. Its lock covers its
//! log and what it knows of the followers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::VecDeque, fmt};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::high_watermark::HighWatermark;

/// The number of followers of a partition, which are numbered from 0; the leader comes on top.
pub(crate) const FOLLOWERS: usize = 2;

/// The follower that leads next; the leader takes its place.
pub(crate) const NEXT_LEADER: usize = 0;

/// The most records that one fetch brings.
const FETCH_MAX: usize = 16 * 1024;

/// The factor of the digest, and its inverse: their product is 1.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;
const TURN: u32 = 29;
const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);

/// The watch key of the purgatory: a produce waits under its partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey(pub(crate) u32);

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// An entry of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Its place among the records of all producers.
    pub(crate) number: u64,
    /// The line that it carries, by its number in the text.
    pub(crate) line: u32,
}

impl Record {
    fn entry(self) -> u64 {
        self.number << 32 ^ u64::from(self.line)
    }
}

/// A log's end, in the epoch of a leader. Below the end of its epoch a record stays the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
}

/// A replica's log. The replica's own thread appends, others read the end without a lock.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The epoch of the leader that it follows, or that it is.
    epoch: AtomicU64,
    end: AtomicU64,
    digest: AtomicU64,
}

impl Log {
    /// Returns the epoch of its leader.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the log end offset; every record below it is in the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Differs where a record, or the order of the records, does.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }

    pub(crate) fn append(&self, records: &[Record]) {
        let mut digest = self.digest();
        for record in records {
            digest = (digest ^ record.entry())
                .wrapping_mul(MIX)
                .rotate_left(TURN);
        }
        // The digest before the end: a thread that sees the end sees the digest of the records
        // below it.
        self.digest.store(digest, Ordering::Release);
        let end = self.end() + records.len() as u64;
        self.end.store(end, Ordering::Release);
    }

    /// Returns its digest without its last records, which must be these: it undoes them one by one.
    fn digest_before<'a>(&self, records: impl DoubleEndedIterator<Item = &'a Record>) -> u64 {
        let undo = |digest: u64, record: &Record| {
            digest.rotate_right(TURN).wrapping_mul(UNMIX) ^ record.entry()
        };
        records.rev().fold(self.digest(), undo)
    }

    /// Takes its last records back, which must be these.
    pub(crate) fn take_back(&self, records: &[Record]) {
        let digest = self.digest_before(records.iter());
        let end = self.end() - records.len() as u64;
        self.end.store(end, Ordering::Release);
        self.digest.store(digest, Ordering::Release);
    }

    fn begin_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }
}

/// The records that the leader keeps, and what it knows of its followers.
#[derive(Debug, Default)]
struct LeaderState {
    epoch: u64,
    /// The leader's log end as its epoch began.
    epoch_start: u64,
    /// The records from the smallest log end of the followers on.
    kept: VecDeque<Record>,
    kept_from: u64,
    /// The followers' log ends, as their fetches say; the highest value for one that has left.
    log_ends: [u64; FOLLOWERS],
    /// The records of the last leader's log that this one lacks, from the start of its epoch on.
    taken_back: Vec<Record>,
}

impl LeaderState {
    /// Drops the records that every follower has.
    fn trim(&mut self) {
        let lowest = self.log_ends.iter().min().copied().unwrap_or(u64::MAX);
        let had_by_all = lowest.saturating_sub(self.kept_from);
        let count = self.kept.len().min(had_by_all as usize);
        self.kept.drain(..count);
        self.kept_from += count as u64;
    }
}

/// A change of the leader.
#[derive(Debug)]
pub(crate) struct Change {
    /// The new leader's log end, at which its epoch starts.
    pub(crate) start: LogEnd,
    /// The records that the last leader has taken back.
    pub(crate) taken_back: u64,
    /// Both logs are the same up to the start.
    pub(crate) alike: bool,
}

/// A partition and all its replicas.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// The watch key of its produces.
    pub(crate) key: PartitionKey,
    /// The leader's log, written under its lock.
    pub(crate) log: Log,
    /// The followers' own logs.
    pub(crate) followers: [Log; FOLLOWERS],
    /// The offset that Kafka's way of waiting goes by.
    pub(crate) high_watermark: CachePadded<HighWatermark>,
    /// The records ever appended by a leader.
    produced: AtomicU64,
    leader: CachePadded<Mutex<LeaderState>>,
}

impl Partition {
    /// Makes a partition with empty logs.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            key: PartitionKey(number),
            ..Self::default()
        }
    }

    /// Returns the number of records ever appended, also of those that were taken back.
    pub(crate) fn produced(&self) -> u64 {
        self.produced.load(Ordering::Acquire)
    }

    /// Appends a record to the leader's log, and shows the new end to `appended` before a follower
    /// can fetch the record. Returns that end: the watermark that acknowledges the record.
    pub(crate) fn append(&self, record: Record, appended: impl FnOnce(LogEnd)) -> LogEnd {
        // The record is kept until every follower has fetched it.
        let mut leader = self.leader.lock();
        leader.kept.push_back(record);
        self.log.append(&[record]);
        let produced = self.produced() + 1;
        self.produced.store(produced, Ordering::Release);
        let end = LogEnd {
            epoch: leader.epoch,
            offset: self.log.end(),
        };
        appended(end);
        end
    }

    /// Serves a fetch, on the follower's thread: `into` gets what comes next in the log. Returns
    /// the end of the follower's log, which has everything below.
    pub(crate) fn fetch(&self, follower: usize, into: &mut Vec<Record>) -> LogEnd {
        let leader = &mut *self.leader.lock();
        let log = &self.followers[follower];

        // The first fetch from a new leader: what this one lacks is taken back.
        if log.epoch() != leader.epoch {
            let beyond = log.end().saturating_sub(leader.epoch_start);
            log.take_back(&leader.taken_back[..beyond as usize]);
            log.begin_epoch(leader.epoch);
        }

        // What the follower has, and what comes next.
        let offset = log.end();
        leader.log_ends[follower] = offset;
        leader.trim();
        let skip = (offset - leader.kept_from) as usize;
        let end = leader.kept.len().min(skip + FETCH_MAX);
        into.extend(leader.kept.range(skip..end));
        LogEnd {
            epoch: leader.epoch,
            offset,
        }
    }

    /// Makes [`NEXT_LEADER`] the leader, once in a run and on its own thread; the last leader
    /// follows in its place. `begin` is shown the start of the new epoch before anything is
    /// appended in it.
    pub(crate) fn change_leader(&self, begin: impl FnOnce(LogEnd)) -> Change {
        // 1. The epoch starts at the end of the new leader's log.
        let leader = &mut *self.leader.lock();
        let next = &self.followers[NEXT_LEADER];
        let start = LogEnd {
            epoch: leader.epoch + 1,
            offset: next.end(),
        };
        leader.epoch = start.epoch;
        leader.epoch_start = start.offset;
        begin(start);

        // 2. What the new leader lacks is taken back: by the last leader here, by the other
        // follower as it fetches next.
        let remaining = (start.offset - leader.kept_from) as usize;
        leader.taken_back = leader.kept.split_off(remaining).into();
        self.log.take_back(&leader.taken_back);
        for log_end in &mut leader.log_ends {
            if *log_end < u64::MAX {
                *log_end = start.offset.min(*log_end);
            }
        }

        // 3. Their logs have the same end now, and change places.
        let alike = self.log.digest() == next.digest();
        let last_leaders = self.log.digest.swap(next.digest(), Ordering::AcqRel);
        next.digest.store(last_leaders, Ordering::Release);
        self.log.begin_epoch(start.epoch);
        next.begin_epoch(start.epoch);
        Change {
            start,
            taken_back: leader.taken_back.len() as u64,
            alike,
        }
    }

    /// Calls `call` with the present epoch under the leader's lock, so that neither the epoch nor
    /// the log changes meanwhile.
    pub(crate) fn in_order<R>(&self, call: impl FnOnce(u64) -> R) -> R {
        let leader = self.leader.lock();
        call(leader.epoch)
    }

    /// Returns the digest of the leader's log up to this end; `None` if the log does not come so far,
    /// or the records beyond are not kept, as for a follower that has left for good.
    pub(crate) fn digest_at(&self, end: u64) -> Option<u64> {
        let leader = self.leader.lock();
        let remaining = end.checked_sub(leader.kept_from)? as usize;
        if remaining > leader.kept.len() {
            return None;
        }
        Some(self.log.digest_before(leader.kept.range(remaining..)))
    }

    /// Keeps no more records for a follower that has left for good.
    pub(crate) fn forget(&self, follower: usize) {
        let mut leader = self.leader.lock();
        leader.log_ends[follower] = u64::MAX;
        leader.trim();
    }
}
