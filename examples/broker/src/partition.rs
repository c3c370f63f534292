//! One partition at its leader: the log, and the two watermarks that follow from the replicas'
//! progress.
//!
//! *High watermark*: the smallest log end offset over the in-sync replicas; it stands still while
//! fewer than `min.insync.replicas` are in sync (as in Kafka since 3.7). *Low watermark*: the
//! smallest log start offset over the in-sync replicas. Neither ever goes back. *Epoch* of a
//! follower: the connection by which it fetches. When that ends, the follower's log may have gone
//! with its process, so the follower is no longer in sync.
//!
//! Everything here takes one lock and never waits; a caller that advances a watermark signals it to
//! the purgatories afterwards, without this lock.

use parking_lot::Mutex;

use crate::{
    api::OrError, batch::IncomingBatch, batch::RecordBatch, log::Log, topics::TopicConfig,
    topics::TopicPartition,
};

pub(crate) const LEADER_ID: i32 = 1;
pub(crate) const FOLLOWER_IDS: [i32; 2] = [2, 3];
/// The number of checks for lagging followers in `--replica-lag-time-max-ms`, as in Kafka.
pub(crate) const LAG_PERIODS: u32 = 2;

pub(crate) struct Partition {
    pub(crate) key: TopicPartition,
    pub(crate) config: TopicConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Log,
    high_watermark: i64,
    low_watermark: i64,
    replicas: Replicas,
}

pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// The log end after the append, which the high watermark must reach.
    pub(crate) required_offset: i64,
    pub(crate) log_start_offset: i64,
    /// True if a watermark advanced.
    pub(crate) advanced: bool,
}

pub(crate) struct Deleted {
    /// The log start after the deletion, which the low watermark must reach.
    pub(crate) required_offset: i64,
    /// True if a watermark advanced.
    pub(crate) advanced: bool,
}

/// The fetch of a follower, which shows where its log starts and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowerFetch {
    pub(crate) id: i32,
    /// The number of its connection.
    pub(crate) connection: u64,
    pub(crate) log_start: i64,
    pub(crate) log_end: i64,
}

/// The offset up to which a fetch may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpTo {
    /// For consumers: the records that every in-sync replica has.
    HighWatermark,
    /// For followers: all records.
    LogEnd,
}

/// A partition's offsets at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) high_watermark: i64,
    pub(crate) low_watermark: i64,
    pub(crate) log_start: i64,
    pub(crate) log_end: i64,
}

impl Partition {
    pub(crate) fn new(key: TopicPartition, config: TopicConfig) -> Partition {
        Partition {
            key,
            config,
            state: Mutex::default(),
        }
    }

    /// Appends all batches, or none. NOT_ENOUGH_REPLICAS: with `acks_all`, fewer replicas than the
    /// minimum are in sync. KAFKA_STORAGE_ERROR: the log is full of records that are not replicated
    /// yet.
    pub(crate) fn append(&self, batches: Vec<IncomingBatch>, acks_all: bool) -> OrError<Appended> {
        let mut state = self.state.lock();
        let too_few = state.replicas.in_sync() < self.in_sync_min();
        refuse!(acks_all && too_few, NotEnoughReplicas);
        // Read the offset of the first record before the append moves the end.
        let base_offset = state.log.log_end_offset;
        state.append(batches, self.config.max_log)?;
        Ok(Appended {
            base_offset,
            required_offset: state.log.log_end_offset,
            log_start_offset: state.log.log_start_offset,
            advanced: state.advance(self.in_sync_min()),
        })
    }

    /// Notes what a follower's fetch shows. Returns true if a watermark advanced.
    pub(crate) fn note_fetch(&self, fetch: FollowerFetch) -> bool {
        let mut state = self.state.lock();
        let in_sync_before = state.replicas.in_sync();
        let leader = state.offsets();
        state.replicas.note_fetch(fetch, leader);
        if state.replicas.in_sync() > in_sync_before {
            let id = fetch.id;
            tracing::info!("replica {id} is back in the in-sync set of {}", self.key);
        }
        state.advance(self.in_sync_min())
    }

    /// Takes the follower whose connection has ended out of the in-sync set. Returns true if a
    /// watermark advanced.
    pub(crate) fn end_connection(&self, connection: u64) -> bool {
        let mut state = self.state.lock();
        let removed = state.replicas.end_connection(connection);
        self.have_left(&removed);
        state.advance(self.in_sync_min())
    }

    /// Moves the log start to `offset`, at most to the high watermark, which -1 stands for.
    pub(crate) fn delete_records(&self, offset: i64) -> OrError<Deleted> {
        let mut state = self.state.lock();
        let offset = if offset == -1 {
            state.high_watermark
        } else {
            offset
        };
        refuse!(
            !(0..=state.high_watermark).contains(&offset),
            OffsetOutOfRange
        );
        state.log.start_at(offset);
        Ok(Deleted {
            required_offset: offset,
            advanced: state.advance(self.in_sync_min()),
        })
    }

    /// Reads whole batches from the one with `offset` on, up to `bytes_max`; with `at_least_one`,
    /// the first batch even if it is larger. An offset outside the log is OFFSET_OUT_OF_RANGE; an
    /// offset inside it but past `up_to` reads nothing yet.
    pub(crate) fn read(
        &self,
        offset: i64,
        up_to: UpTo,
        bytes_max: usize,
        at_least_one: bool,
    ) -> OrError<Vec<RecordBatch>> {
        let state = self.state.lock();
        let end = state.readable_end(offset, up_to)?;
        let mut batches = Vec::new();
        let mut size_bytes = 0;
        for batch in state.log.read(offset, end) {
            size_bytes += batch.bytes.len();
            let must_fit = !(at_least_one && batches.is_empty());
            if must_fit && size_bytes > bytes_max {
                break;
            }
            batches.push(batch.clone());
        }
        Ok(batches)
    }

    /// Returns the number of bytes that [`Partition::read`] would find.
    pub(crate) fn readable_bytes(&self, offset: i64, up_to: UpTo) -> OrError<u64> {
        let state = self.state.lock();
        let end = state.readable_end(offset, up_to)?;
        Ok(state.log.bytes_between(offset, end))
    }

    pub(crate) fn offsets(&self) -> Offsets {
        self.state.lock().offsets()
    }

    /// Begins the next lag period. Each follower that was behind for [`LAG_PERIODS`] whole periods
    /// is taken out of the in-sync set. Returns true if a watermark advanced.
    pub(crate) fn shrink_in_sync(&self) -> bool {
        let mut state = self.state.lock();
        let log_end = state.log.log_end_offset;
        let removed = state.replicas.begin_lag_period(log_end);
        self.have_left(&removed);
        state.advance(self.in_sync_min())
    }

    /// Logs which followers have left the in-sync set.
    fn have_left(&self, ids: &[i32]) {
        for id in ids {
            tracing::warn!("replica {id} left the in-sync set of {}", self.key);
        }
    }

    fn in_sync_min(&self) -> usize {
        self.config.min_insync_replicas.into()
    }

    pub(crate) fn in_sync_followers(&self) -> Vec<i32> {
        self.state.lock().replicas.in_sync_followers()
    }
}

impl State {
    fn append(&mut self, batches: Vec<IncomingBatch>, log_bytes_max: usize) -> OrError<()> {
        // Only replicated records may be dropped to make room.
        self.log.trim(self.high_watermark, log_bytes_max);
        refuse!(self.log.size_bytes > log_bytes_max, KafkaStorageError);
        // Note this before the append: a follower with the whole log is behind from here on.
        self.replicas.note_caught_up(self.log.log_end_offset);
        for batch in batches {
            self.log.append(batch.assign(self.log.log_end_offset));
        }
        Ok(())
    }

    fn offsets(&self) -> Offsets {
        Offsets {
            high_watermark: self.high_watermark,
            low_watermark: self.low_watermark,
            log_start: self.log.log_start_offset,
            log_end: self.log.log_end_offset,
        }
    }

    /// Returns the offset at which a fetch from `offset` on ends.
    fn readable_end(&self, offset: i64, up_to: UpTo) -> OrError<i64> {
        let offsets = self.offsets();
        let log = offsets.log_start..=offsets.log_end;
        refuse!(!log.contains(&offset), OffsetOutOfRange);
        match up_to {
            UpTo::LogEnd => Ok(offsets.log_end),
            UpTo::HighWatermark => Ok(offsets.high_watermark),
        }
    }

    /// Advances the watermarks as far as the replicas allow. Returns true if one advanced.
    fn advance(&mut self, in_sync_min: usize) -> bool {
        let before = self.offsets();
        // With too few replicas in sync the high watermark stands still.
        if self.replicas.in_sync() >= in_sync_min {
            let smallest_end = self.replicas.smallest_end(before.log_end);
            self.high_watermark = before.high_watermark.max(smallest_end);
        }
        let smallest_start = self.replicas.smallest_start(before.log_start);
        self.low_watermark = before.low_watermark.max(smallest_start);
        self.high_watermark > before.high_watermark || self.low_watermark > before.low_watermark
    }
}

/// The leader's knowledge of the followers, one fetch late: where their logs start and end, and
/// which are in sync.
#[derive(Default)]
struct Replicas {
    /// The followers, in the order of [`FOLLOWER_IDS`].
    followers: [FollowerState; FOLLOWER_IDS.len()],
    /// The number of checks for lagging replicas, which stands for the time: no clock is read.
    lag_period: u64,
}

#[derive(Default)]
struct FollowerState {
    /// The lowest number of a connection whose fetches count; `None` before the first fetch.
    epoch: Option<u64>,
    log_start: i64,
    log_end: i64,
    out_of_sync: bool,
    /// The lag period in which the follower last had the whole log.
    caught_up: u64,
    /// The leader's log end at its last fetch.
    leader_end_seen: i64,
    /// The lag period of its last fetch.
    seen_in: u64,
}

impl FollowerState {
    /// Notes a fetch. A follower that has everything up to the high watermark is in sync again.
    fn note_fetch(&mut self, fetch: FollowerFetch, leader: Offsets, lag_period: u64) {
        let epoch = Some(fetch.connection);
        if epoch < self.epoch {
            return; // the fetch is of a process that may be gone
        }
        // A fetch over another connection may be of another process, which has to catch up first.
        self.out_of_sync |= epoch > self.epoch;
        self.epoch = epoch;
        // A follower may claim more than the leader has: that does not count.
        self.log_start = fetch.log_start;
        self.log_end = fetch.log_end.min(leader.log_end);
        self.out_of_sync &= fetch.log_end < leader.high_watermark;
        // Under load a follower is always a fetch behind, so the leader's log end at the previous
        // fetch counts.
        if fetch.log_end >= self.leader_end_seen {
            self.caught_up = self.caught_up.max(self.seen_in);
        }
        self.leader_end_seen = leader.log_end;
        self.seen_in = lag_period;
    }
}

impl Replicas {
    /// Returns the number of in-sync replicas, the leader included.
    fn in_sync(&self) -> usize {
        1 + self.followers().count()
    }

    fn in_sync_followers(&self) -> Vec<i32> {
        self.followers().map(|(id, _)| id).collect()
    }

    /// Returns the followers in sync.
    fn followers(&self) -> impl Iterator<Item = (i32, &FollowerState)> {
        FOLLOWER_IDS
            .into_iter()
            .zip(&self.followers)
            .filter(|(_, follower)| !follower.out_of_sync)
    }

    fn smallest_end(&self, leaders: i64) -> i64 {
        let ends = self.followers().map(|(_, follower)| follower.log_end);
        ends.fold(leaders, i64::min)
    }

    fn smallest_start(&self, leaders: i64) -> i64 {
        let starts = self.followers().map(|(_, follower)| follower.log_start);
        starts.fold(leaders, i64::min)
    }

    /// Notes a fetch, which is answered with the offsets of the `leader`.
    fn note_fetch(&mut self, fetch: FollowerFetch, leader: Offsets) {
        let lag_period = self.lag_period;
        // A fetch with any other id changes no follower.
        let index = FOLLOWER_IDS
            .iter()
            .position(|follower| *follower == fetch.id);
        if let Some(follower) = index.and_then(|index| self.followers.get_mut(index)) {
            follower.note_fetch(fetch, leader, lag_period);
        }
        self.note_caught_up(leader.log_end);
    }

    /// Takes the follower whose latest fetch came over this connection out of the in-sync set;
    /// returns its id.
    fn end_connection(&mut self, connection: u64) -> Vec<i32> {
        let mut removed = Vec::new();
        for (id, follower) in FOLLOWER_IDS.into_iter().zip(&mut self.followers) {
            if follower.epoch != Some(connection) {
                continue;
            }
            // A fetch that was sent before the end may still come; it does not count.
            follower.epoch = Some(connection + 1);
            if !follower.out_of_sync {
                follower.out_of_sync = true;
                removed.push(id);
            }
        }
        removed
    }

    /// Notes the current lag period for each follower that has the whole log.
    fn note_caught_up(&mut self, leaders_end: i64) {
        for follower in &mut self.followers {
            if follower.log_end == leaders_end {
                follower.caught_up = self.lag_period;
            }
        }
    }

    /// Takes followers that lagged for too long out of the in-sync set; returns their ids.
    fn begin_lag_period(&mut self, leaders_end: i64) -> Vec<i32> {
        self.note_caught_up(leaders_end);
        self.lag_period += 1;
        let mut removed = Vec::new();
        // Only whole periods count: a follower that fell behind within a period is not late yet.
        for (id, follower) in FOLLOWER_IDS.into_iter().zip(&mut self.followers) {
            let lags = self.lag_period - follower.caught_up > u64::from(LAG_PERIODS);
            if lags && !follower.out_of_sync {
                follower.out_of_sync = true;
                removed.push(id);
            }
        }
        removed
    }
}
