//! The high watermark of a partition, as Kafka's leader derives it from the in-sync set and each
//! follower's log end. [`ReplicaSets`](purgatory::ReplicaSets) does all of this itself.
//!
//! The high watermark is read without a lock: it is the condition of a waiting produce, and a check
//! must not need a lock that the thread signalling the key might hold.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::partition::{FOLLOWERS, LogEnd};

/// The offset below which every in-sync replica has every record.
#[derive(Debug, Default)]
pub(crate) struct HighWatermark {
    offset: AtomicU64,
    epoch: AtomicU64,
    replicas: Mutex<Replicas>,
}

/// The leader's knowledge of the followers.
#[derive(Debug, Default)]
struct Replicas {
    log_ends: [u64; FOLLOWERS],
    fallen_out: [bool; FOLLOWERS],
    /// The leader's log end when its epoch began.
    epoch_start: u64,
}

/// The effect of a fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    /// The high watermark rose.
    pub(crate) advanced: bool,
    /// The follower is in the in-sync set.
    pub(crate) in_sync: bool,
}

impl HighWatermark {
    /// Returns true if the high watermark has reached the end of a log, in the same epoch.
    pub(crate) fn has_reached(&self, end: LogEnd) -> bool {
        // Read the epoch last: if it is not over by then, the offset is not of a later epoch.
        let offset = self.offset.load(Ordering::Acquire);
        offset >= end.offset && !self.is_over(end.epoch)
    }

    /// Returns true if another leader's epoch has begun.
    pub(crate) fn is_over(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Acquire) != epoch
    }

    /// Notes that a follower has every record below an end, in its epoch. A follower that had
    /// fallen out is in sync again if it has caught up.
    pub(crate) fn note(&self, follower: usize, end: LogEnd) -> Noted {
        let replicas = &mut *self.replicas.lock();
        // A fetch from an earlier leader says nothing about this leader's log.
        let mut advanced = false;
        if !self.is_over(end.epoch) {
            replicas.log_ends[follower] = end.offset;
            let high_watermark = self.offset.load(Ordering::Acquire);
            let needed = high_watermark.max(replicas.epoch_start);
            replicas.fallen_out[follower] &= end.offset < needed;
            advanced = self.advance(replicas);
        }
        Noted {
            advanced,
            in_sync: !replicas.fallen_out[follower],
        }
    }

    /// Takes a follower out of the in-sync set.
    pub(crate) fn falls_out(&self, follower: usize) {
        let replicas = &mut *self.replicas.lock();
        replicas.fallen_out[follower] = true;
        self.advance(replicas);
    }

    /// Begins the epoch of a leader whose log ends at `start`. The leader knows only that its
    /// in-sync followers have the records below the high watermark.
    pub(crate) fn begin_epoch(&self, start: LogEnd) {
        let replicas = &mut *self.replicas.lock();
        self.epoch.store(start.epoch, Ordering::Release);
        let high_watermark = self.offset.load(Ordering::Acquire);
        replicas.log_ends = [high_watermark; FOLLOWERS];
        replicas.epoch_start = start.offset;
    }

    /// Raises the high watermark to the in-sync followers' smallest log end; the leader has all of
    /// their records. Returns true if it rose.
    fn advance(&self, replicas: &Replicas) -> bool {
        let followers = replicas.log_ends.iter().zip(replicas.fallen_out);
        let in_sync = followers.filter(|(_, fallen_out)| !fallen_out);
        // A leader without an in-sync follower acknowledges nothing.
        let lowest = in_sync.map(|(log_end, _)| *log_end).min().unwrap_or(0);
        self.offset.fetch_max(lowest, Ordering::AcqRel) < lowest
    }
}
