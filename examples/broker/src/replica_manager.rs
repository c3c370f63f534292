//! The replicas, and the purgatories where requests wait for them. Every change of a partition
//! comes through here, so that every advance of a watermark is signalled to the purgatories.
//!
//! Requests wait under plain keys. A `ReplicaSets` would keep the high watermark of one partition.
//! But a request waits for several partitions at once, and for bytes or deletions besides
//! watermarks, and ends with its connection: one operation under all of these keys is one wait.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, atomic::AtomicI64};
use std::{any::type_name, time::Duration};

use example_support::Stop;
use kafka_protocol::{ResponseError, protocol::Encodable, protocol::HeaderVersion};
use purgatory::{CancelReason, DelayedOperation, Outcome, Purgatory, Stats};
use timer_core::{BuildError, Timer};

use crate::{
    args::Args, batch, fetch::DelayedFetch, partition::Appended, partition::FollowerFetch,
    partition::Partition, produce::DelayedDeleteRecords, produce::DelayedProduce,
    replica_fetcher::Follower, reply::Reply, server::Counters, topics::TopicPartition,
    topics::Topics, topics::WatchKey,
};

/// The longest time that a shutdown waits for running callbacks.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// The number of keys and operations of each purgatory that a snapshot shows.
const SHOWN: usize = 10;

/// Calls a method of each purgatory, and pairs the result with a name.
macro_rules! each_purgatory {
    ($manager:ident.$method:ident($($limit:expr)?)) => {
        [
            ("produces", $manager.produces.$method($($limit)?)),
            ("fetches", $manager.fetches.$method($($limit)?)),
            ("delete-records", $manager.delete_records.$method($($limit)?)),
        ]
    };
}

pub(crate) struct ReplicaManager {
    pub(crate) args: Args,
    /// Each process has another id, since its logs go with it.
    pub(crate) cluster_id: String,
    pub(crate) topics: Arc<Topics>,
    /// The followers inside this process.
    pub(crate) followers: Arc<[Follower]>,
    pub(crate) produces: Purgatory<WatchKey, DelayedProduce>,
    pub(crate) fetches: Purgatory<WatchKey, DelayedFetch>,
    pub(crate) delete_records: Purgatory<WatchKey, DelayedDeleteRecords>,
    /// The next producer id.
    pub(crate) producer_ids: AtomicI64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Stop,
}

/// The place of a partition in a response.
pub(crate) struct Place {
    /// The index of its topic.
    pub(crate) topic: usize,
    /// Its index in that topic.
    pub(crate) partition: usize,
}

/// One partition of a request that waits for its replicas.
pub(crate) struct Wait {
    pub(crate) place: Place,
    pub(crate) partition: Arc<Partition>,
    pub(crate) required_offset: i64,
}

/// A response with partitions that wait for their replicas. Each of these partitions starts with
/// REQUEST_TIMED_OUT, and keeps it if it is not done in time, so an expired operation has nothing
/// to decide.
pub(crate) struct DelayedAnswer<R> {
    response: R,
    waits: Vec<Wait>,
    followers: Arc<[Follower]>,
    counters: Arc<Counters>,
    reply: Reply,
}

pub(crate) trait Statuses: Encodable + HeaderVersion + Send + 'static {
    /// Sets the status of a partition whose watermark is reached; returns false while it waits.
    fn try_complete(&mut self, wait: &Wait, followers: &[Follower], counters: &Counters) -> bool;

    /// Returns the error code of a partition.
    fn error_code(&mut self, wait: &Wait) -> &mut i16;
}

impl<R: Statuses> DelayedOperation for DelayedAnswer<R> {
    fn try_complete(&mut self) -> bool {
        let response = &mut self.response;
        let waits_on = |wait: &Wait| !response.try_complete(wait, &self.followers, &self.counters);
        // Partitions that are done are not checked again.
        self.waits.retain(waits_on);
        self.waits.is_empty()
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("{} waited for replicas: {outcome:?}", type_name::<R>());
        if let Outcome::Cancelled(_) = outcome {
            // At a shutdown Kafka's leader moves away and says so; clients retry. (Or the client is
            // gone.)
            for wait in &self.waits {
                *self.response.error_code(wait) = ResponseError::NotLeaderOrFollower.code();
            }
        }
        self.reply.send(self.response);
    }
}

/// Parks an operation for `timeout` at most, or until its client is gone. The operation is checked
/// when one of its watermarks has advanced, and completes when its check says so. A purgatory that
/// was shut down ends it at once.
pub(crate) fn park<O: DelayedOperation + Send>(
    purgatory: &Purgatory<WatchKey, O>,
    operation: O,
    watermarks: Vec<WatchKey>,
    connection: u64,
    timeout: Duration,
) {
    // The connection is a key like any other.
    let mut keys = watermarks;
    keys.push(WatchKey::Connection(connection));
    if let Err(refused) = purgatory.try_complete_else_watch(operation, &keys, timeout) {
        let operation = refused.into_inner();
        operation.on_complete(Outcome::Cancelled(CancelReason::Shutdown));
    }
}

impl ReplicaManager {
    pub(crate) fn new(args: &Args, timer: &Timer) -> Result<Self, BuildError> {
        let mut followers = Vec::new();
        for id in args.followers_here() {
            followers.push(Follower::new(*id, args.pause_followers));
        }
        Ok(ReplicaManager {
            args: args.clone(),
            cluster_id: format!("purgatory-example-{:x}", RandomState::new().hash_one(())),
            topics: Arc::new(Topics::new(args)),
            followers: followers.into(),
            produces: Purgatory::builder("produce").timer(timer).build()?,
            fetches: Purgatory::builder("fetch").timer(timer).build()?,
            delete_records: Purgatory::builder("delete-records").timer(timer).build()?,
            producer_ids: AtomicI64::new(0),
            counters: Arc::default(),
            stop: Stop::new(),
        })
    }

    /// Appends to the leader's log; with acks=all (-1) only while enough replicas are in sync.
    pub(crate) fn append(
        &self,
        topic: &str,
        index: i32,
        records: &[u8],
        acks: i16,
    ) -> Result<(Arc<Partition>, Appended), ResponseError> {
        // Refuse before the append.
        refuse!(!(-1..=1).contains(&acks), InvalidRequiredAcks);
        let partition = self.topics.partition(topic, index)?;
        let batches = batch::parse(records, partition.config.message_max_bytes as usize)?;
        refuse!(batches.is_empty(), InvalidRecord);
        let mut counts = Vec::new();
        for batch in &batches {
            counts.push((batch.codec, u64::from(batch.records.unsigned_abs())));
        }
        let appended = partition.append(batches, acks == -1)?;
        self.count(&counts);

        // The followers' fetches wait for the log end, everything else for the high watermark.
        let log_end = WatchKey::LogEnd(partition.key.clone());
        self.fetches.check_and_complete(&log_end);
        self.signal_advance(&partition, appended.advanced);
        Ok((partition, appended))
    }

    /// Counts batches that were appended, by (codec, records).
    fn count(&self, batches: &[(usize, u64)]) {
        let mut counters = self.counters.lock();
        for (codec, records) in batches {
            counters.records += records;
            counters.batches[*codec] += 1;
        }
    }

    /// Makes an answer that waits for these partitions.
    pub(crate) fn delayed<R: Statuses>(
        &self,
        response: R,
        waits: Vec<Wait>,
        reply: Reply,
    ) -> DelayedAnswer<R> {
        DelayedAnswer {
            response,
            waits,
            followers: Arc::clone(&self.followers),
            counters: Arc::clone(&self.counters),
            reply,
        }
    }

    /// Parks an answer until the watermarks of its partitions have reached their offsets.
    pub(crate) fn park_answer<R: Statuses>(
        &self,
        purgatory: &Purgatory<WatchKey, DelayedAnswer<R>>,
        answer: DelayedAnswer<R>,
        key: fn(TopicPartition) -> WatchKey,
        timeout: Duration,
    ) {
        let mut watermarks = Vec::new();
        for wait in &answer.waits {
            watermarks.push(key(wait.partition.key.clone()));
        }
        let connection = answer.reply.connection;
        park(purgatory, answer, watermarks, connection, timeout);
    }

    /// Moves a partition's log start; returns the low watermark to wait for.
    pub(crate) fn delete_records(
        &self,
        topic: &str,
        index: i32,
        offset: i64,
    ) -> Result<(Arc<Partition>, i64), ResponseError> {
        let partition = self.topics.partition(topic, index)?;
        let deleted = partition.delete_records(offset)?;
        // A consumer's fetch from below the log start has nothing to wait for any more.
        let key = WatchKey::HighWatermark(partition.key.clone());
        self.fetches.check_and_complete(&key);
        self.signal_advance(&partition, deleted.advanced);
        Ok((partition, deleted.required_offset))
    }

    /// Notes a follower's fetch.
    pub(crate) fn note_fetch(&self, partition: &Partition, fetch: FollowerFetch) {
        let advanced = partition.note_fetch(fetch);
        self.signal_advance(partition, advanced);
    }

    /// Takes lagging followers out of the in-sync sets. To be called once in each lag period.
    pub(crate) fn shrink_in_sync(&self) {
        self.change_all(Partition::shrink_in_sync);
    }

    /// Changes every partition; `change` returns true if a watermark advanced.
    fn change_all(&self, change: impl Fn(&Partition) -> bool) {
        for topic in self.topics.all() {
            for partition in &*topic {
                let advanced = change(partition);
                self.signal_advance(partition, advanced);
            }
        }
    }

    /// Checks the requests that wait for a partition's watermarks, with no lock held.
    fn signal_advance(&self, partition: &Partition, advanced: bool) {
        if !advanced {
            return;
        }
        let key = WatchKey::HighWatermark(partition.key.clone());
        self.produces.check_and_complete(&key);
        self.fetches.check_and_complete(&key);
        let key = WatchKey::LowWatermark(partition.key.clone());
        self.delete_records.check_and_complete(&key);
    }

    /// Cancels the requests of a client that is gone. A follower that is gone leaves the in-sync
    /// sets.
    pub(crate) fn end_connection(&self, connection: u64, reason: &'static str) {
        let key = WatchKey::Connection(connection);
        self.produces.cancel_for_key(&key, reason);
        self.fetches.cancel_for_key(&key, reason);
        self.delete_records.cancel_for_key(&key, reason);
        self.change_all(|partition| partition.end_connection(connection));
    }

    /// Describes the requests that wait.
    pub(crate) fn snapshots(&self) -> String {
        let mut text = String::new();
        for (_, snapshot) in each_purgatory!(self.snapshot(SHOWN)) {
            text += &snapshot.to_string();
        }
        text
    }

    /// Returns the counts of each purgatory: how parked operations ended.
    pub(crate) fn stats(&self) -> [(&'static str, Stats); 3] {
        each_purgatory!(self.stats())
    }

    /// Answers the parked requests, and from now on every request at once.
    pub(crate) fn shutdown(&self) {
        each_purgatory!(self.shutdown(SHUTDOWN_WITHIN));
    }
}
