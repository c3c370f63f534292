//! One partition at its leader: the log, where the followers are, who is in sync, and the high
//! watermark.
//!
//! *High watermark*: the smallest log end offset over the in-sync replicas; it never goes back.
//! Everything here is one lock and no waiting; whoever advances the high watermark tells the
//! purgatory afterwards, without this lock.

use kafka_protocol::ResponseError;
use parking_lot::Mutex;

use crate::{
    batch::{IncomingBatch, RecordBatch},
    log::Log,
    topics::TopicPartition,
};

pub(crate) const LEADER_ID: i32 = 1;
pub(crate) const FOLLOWER_IDS: [i32; 2] = [2, 3];
pub(crate) const LEADER_EPOCH: i32 = 0;

pub(crate) struct Partition {
    pub(crate) key: TopicPartition,
    state: Mutex<State>,
}

struct State {
    log: Log,
    high_watermark: i64,
    followers: [FollowerState; FOLLOWER_IDS.len()],
    /// Halves of the longest lag, counted: no clock is read.
    lag_period: u64,
}

/// What the leader knows of a follower: from its last fetch, so one fetch late.
struct FollowerState {
    id: i32,
    log_end_offset: i64,
    in_sync: bool,
    /// The lag period in which it last had the whole log.
    caught_up: u64,
    /// The log end at its last fetch, and the lag period of that.
    last_fetch: (i64, u64),
}

pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// The log end after the append: what the high watermark must reach.
    pub(crate) required_offset: i64,
    pub(crate) log_start_offset: i64,
    /// The high watermark, if it advanced.
    pub(crate) advanced_to: Option<i64>,
}

pub(crate) struct Fetched {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) log_start_offset: i64,
    /// The high watermark, if it advanced.
    pub(crate) advanced_to: Option<i64>,
}

/// How far the replicas are with a required offset.
pub(crate) enum Replication {
    Pending,
    Enough,
    /// The high watermark is there, but fewer replicas are in sync than the minimum.
    TooFewInSync,
}

impl Partition {
    pub(crate) fn new(key: TopicPartition) -> Partition {
        let followers = FOLLOWER_IDS.map(|id| FollowerState {
            id,
            log_end_offset: 0,
            in_sync: true,
            caught_up: 0,
            last_fetch: (0, 0),
        });
        let state = State { log: Log::default(), high_watermark: 0, followers, lag_period: 0 };
        Partition { key, state: Mutex::new(state) }
    }

    /// Appends all batches or none. NOT_ENOUGH_REPLICAS when fewer than `in_sync_min` are in sync,
    /// KAFKA_STORAGE_ERROR when the log is full of records that are not replicated yet.
    pub(crate) fn append(
        &self,
        batches: Vec<IncomingBatch>,
        in_sync_min: usize,
        log_bytes_max: usize,
    ) -> Result<Appended, ResponseError> {
        let mut state = self.state.lock();
        if state.in_sync() < in_sync_min {
            return Err(ResponseError::NotEnoughReplicas);
        }
        let high_watermark = state.high_watermark;
        state.log.trim(high_watermark, log_bytes_max);
        if state.log.size_bytes() > log_bytes_max {
            return Err(ResponseError::KafkaStorageError);
        }
        let base_offset = state.log.log_end_offset();
        state.note_caught_up();
        for batch in batches {
            let offset = state.log.log_end_offset();
            state.log.append(batch.assign(offset, LEADER_EPOCH));
        }
        Ok(Appended {
            base_offset,
            required_offset: state.log.log_end_offset(),
            log_start_offset: state.log.log_start_offset(),
            advanced_to: state.advance_high_watermark(),
        })
    }

    /// A follower's fetch: `offset` is its log end offset. Up to the high watermark is in sync.
    pub(crate) fn fetch_as_follower(&self, id: i32, offset: i64, bytes_max: usize) -> Fetched {
        let mut state = self.state.lock();
        let State { log, high_watermark, followers, lag_period } = &mut *state;
        if let Some(follower) = followers.iter_mut().find(|follower| follower.id == id) {
            follower.log_end_offset = offset.min(log.log_end_offset());
            follower.in_sync |= offset >= *high_watermark;
            // Under load it is always a fetch behind: what counts is the log end it was told then.
            let (told_end, told_in) = follower.last_fetch;
            if offset >= told_end {
                follower.caught_up = follower.caught_up.max(told_in);
            }
            follower.last_fetch = (log.log_end_offset(), *lag_period);
        }
        state.note_caught_up();
        Fetched {
            batches: state.log.read(offset, bytes_max),
            log_start_offset: state.log.log_start_offset(),
            advanced_to: state.advance_high_watermark(),
        }
    }

    /// Begins the next lag period: called every half of the longest lag, it takes out of the
    /// in-sync set who was behind for two whole ones. Returns the high watermark if it advanced.
    pub(crate) fn shrink_in_sync(&self) -> Option<i64> {
        let mut state = self.state.lock();
        state.note_caught_up();
        state.lag_period += 1;
        let lag_period = state.lag_period;
        for follower in &mut state.followers {
            if follower.in_sync && lag_period - follower.caught_up > 2 {
                follower.in_sync = false;
                tracing::warn!("replica {} left the in-sync set of {}", follower.id, self.key);
            }
        }
        state.advance_high_watermark()
    }

    pub(crate) fn replication(&self, required_offset: i64, in_sync_min: usize) -> Replication {
        let state = self.state.lock();
        if state.high_watermark < required_offset {
            Replication::Pending
        } else if state.in_sync() >= in_sync_min {
            Replication::Enough
        } else {
            Replication::TooFewInSync
        }
    }

    pub(crate) fn in_sync_followers(&self) -> Vec<i32> {
        let state = self.state.lock();
        let in_sync = state.followers.iter().filter(|follower| follower.in_sync);
        in_sync.map(|follower| follower.id).collect()
    }
}

impl State {
    /// The in-sync replicas, the leader included.
    fn in_sync(&self) -> usize {
        1 + self.followers.iter().filter(|follower| follower.in_sync).count()
    }

    fn note_caught_up(&mut self) {
        let log_end_offset = self.log.log_end_offset();
        for follower in &mut self.followers {
            if follower.log_end_offset == log_end_offset {
                follower.caught_up = self.lag_period;
            }
        }
    }

    fn advance_high_watermark(&mut self) -> Option<i64> {
        let followers = self.followers.iter().filter(|follower| follower.in_sync);
        let ends = followers.map(|follower| follower.log_end_offset);
        let smallest = ends.fold(self.log.log_end_offset(), i64::min);
        let advanced = smallest > self.high_watermark;
        self.high_watermark = self.high_watermark.max(smallest);
        advanced.then_some(self.high_watermark)
    }
}
