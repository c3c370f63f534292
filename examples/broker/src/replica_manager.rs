//! The replicas, and the purgatories where requests wait for them. Every change of a partition
//! comes through here, so that what is parked hears of every advance of a watermark.

use std::sync::{Arc, atomic::AtomicI64};
use std::{any::type_name, time::Duration};

use example_support::Stop;
use kafka_protocol::{ResponseError, protocol::Encodable, protocol::HeaderVersion};
use purgatory::{CancelReason, DelayedOperation, Outcome, Purgatory, Stats, Watches};
use timer_core::{BuildError, Timer};

use crate::{
    args::Args, batch, fetch::DelayedFetch, partition::Appended, partition::Partition,
    produce::DelayedDeleteRecords, produce::DelayedProduce, replica_fetcher::Follower,
    reply::Reply, server::Counters, topics::TopicPartition, topics::Topics, topics::WatchKey,
};

/// How long a shutdown waits for answers that are under way.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// How many keys and operations of each purgatory a snapshot shows.
const SHOWN: usize = 10;

/// Calls a method of each purgatory; its result is beside the name.
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
    pub(crate) topics: Arc<Topics>,
    /// The followers inside this process.
    pub(crate) followers: Arc<[Follower]>,
    pub(crate) produces: Purgatory<WatchKey, DelayedProduce>,
    pub(crate) fetches: Purgatory<WatchKey, DelayedFetch>,
    pub(crate) delete_records: Purgatory<WatchKey, DelayedDeleteRecords>,
    /// The next one.
    pub(crate) producer_ids: AtomicI64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Stop,
}

/// One partition of a request that waits for its replicas.
pub(crate) struct Wait {
    /// Where it is in the response: topic, partition.
    pub(crate) at: (usize, usize),
    pub(crate) partition: Arc<Partition>,
    pub(crate) required_offset: i64,
}

/// A response with partitions that wait for their replicas. Each of them starts with
/// REQUEST_TIMED_OUT, so an expired operation has nothing to decide: what was not done in time
/// keeps it.
pub(crate) struct DelayedAnswer<R> {
    response: R,
    waits: Vec<Wait>,
    followers: Arc<[Follower]>,
    counters: Arc<Counters>,
    reply: Reply,
}

pub(crate) trait Statuses: Encodable + HeaderVersion + Send + 'static {
    /// Sets the status of a partition, unless it is to wait: then false.
    fn settle(&mut self, wait: &Wait, followers: &[Follower], counters: &Counters) -> bool;

    fn error_code(&mut self, wait: &Wait) -> &mut i16;
}

impl<R: Statuses> DelayedOperation for DelayedAnswer<R> {
    fn try_complete(&mut self) -> bool {
        let Self {
            response,
            waits,
            followers,
            counters,
            ..
        } = self;
        waits.retain(|wait| !response.settle(wait, followers, counters));
        waits.is_empty()
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("{} waited for replicas: {outcome:?}", type_name::<R>());
        if let Outcome::Cancelled(_) = outcome {
            // Shutting down: Kafka's leader moves away and says so; clients retry. (Or the client
            // is gone.)
            for wait in &self.waits {
                *self.response.error_code(wait) = ResponseError::NotLeaderOrFollower.code();
            }
        }
        self.reply.send(self.response);
    }
}

/// Parks an operation until its watermarks are reached, for `timeout` at most, or until its client
/// is gone. They are its earliest moments: it is checked then, and completes when its check says
/// so. A purgatory that was shut down ends it at once.
pub(crate) fn park_up_to<O: DelayedOperation + Send>(
    purgatory: &Purgatory<WatchKey, O>,
    operation: O,
    watermarks: &[(WatchKey, u64)],
    connection: u64,
    timeout: Duration,
) {
    let connection = [WatchKey::Connection(connection)];
    let watches = Watches::up_to(watermarks).checked().with_keys(&connection);
    if let Err(refused) = purgatory.try_complete_else_watch(operation, watches, timeout) {
        refused
            .into_inner()
            .on_complete(Outcome::Cancelled(CancelReason::Shutdown));
    }
}

impl ReplicaManager {
    pub(crate) fn new(args: &Args, timer: &impl Timer) -> Result<Self, BuildError> {
        Ok(ReplicaManager {
            args: args.clone(),
            topics: Arc::new(Topics::new(args)),
            followers: (args.followers_here().iter())
                .map(|id| Follower::new(*id, args.pause_followers))
                .collect(),
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
        refuse!(!(-1..=1).contains(&acks), InvalidRequiredAcks);
        let partition = self.topics.partition(topic, index)?;
        let batches = batch::parse(records, partition.config.message_max_bytes as usize)?;
        refuse!(batches.is_empty(), InvalidRecord);
        let sizes: Vec<_> = batches
            .iter()
            .map(|batch| (batch.codec, batch.records))
            .collect();
        let appended = partition.append(batches, acks == -1)?;
        let mut counters = self.counters.lock();
        for (codec, records) in sizes {
            counters.records += u64::from(records.unsigned_abs());
            counters.batches[codec] += 1;
        }
        drop(counters);
        let log_end = WatchKey::LogEnd(partition.key.clone());
        self.fetches
            .complete_up_to(&log_end, appended.required_offset.cast_unsigned());
        self.complete_parked(&partition, appended.advanced);
        Ok((partition, appended))
    }

    /// Parks a response until the watermarks of its partitions are reached.
    pub(crate) fn park_answer<R: Statuses>(
        &self,
        purgatory: &Purgatory<WatchKey, DelayedAnswer<R>>,
        (response, waits, reply): (R, Vec<Wait>, Reply),
        key: fn(TopicPartition) -> WatchKey,
        timeout: Duration,
    ) {
        let offset = |wait: &Wait| wait.required_offset.cast_unsigned(); // never negative
        let watermark = |wait: &Wait| (key(wait.partition.key.clone()), offset(wait));
        let watermarks = waits.iter().map(watermark).collect::<Vec<_>>();
        let (followers, counters) = (Arc::clone(&self.followers), Arc::clone(&self.counters));
        let connection = reply.connection;
        let operation = DelayedAnswer {
            response,
            waits,
            followers,
            counters,
            reply,
        };
        park_up_to(purgatory, operation, &watermarks, connection, timeout);
    }

    /// Moves a partition's log start; returns the low watermark to wait for.
    pub(crate) fn delete_records(
        &self,
        topic: &str,
        index: i32,
        offset: i64,
    ) -> Result<(Arc<Partition>, i64), ResponseError> {
        let partition = self.topics.partition(topic, index)?;
        let (required_offset, advanced) = partition.delete_records(offset)?;
        self.complete_parked(&partition, advanced);
        Ok((partition, required_offset))
    }

    /// A follower fetches: that tells where its log starts and ends.
    pub(crate) fn note_fetch(&self, partition: &Partition, id: i32, start: i64, end: i64) {
        self.complete_parked(partition, partition.note_fetch(id, start, end));
    }

    /// To be called once in each lag period.
    pub(crate) fn shrink_in_sync(&self) {
        for topic in self.topics.all() {
            for partition in &*topic {
                self.complete_parked(partition, partition.shrink_in_sync());
            }
        }
    }

    /// Raises the events of a watermark that has advanced, with no lock held.
    fn complete_parked(&self, partition: &Partition, advanced: bool) {
        if advanced {
            let offsets = partition.offsets();
            let high_watermark = WatchKey::HighWatermark(partition.key.clone());
            self.produces
                .complete_up_to(&high_watermark, offsets.high_watermark.cast_unsigned());
            self.fetches
                .complete_up_to(&high_watermark, offsets.high_watermark.cast_unsigned());
            let low_watermark = WatchKey::LowWatermark(partition.key.clone());
            self.delete_records
                .complete_up_to(&low_watermark, offsets.low_watermark.cast_unsigned());
        }
    }

    /// Cancels the requests of a client that is gone.
    pub(crate) fn cancel_for_connection(&self, connection: u64, reason: &'static str) {
        let key = WatchKey::Connection(connection);
        self.produces.cancel_for_key(&key, reason);
        self.fetches.cancel_for_key(&key, reason);
        self.delete_records.cancel_for_key(&key, reason);
    }

    /// Hands what is counted to the metrics recorder.
    pub(crate) fn publish(&self) {
        each_purgatory!(self.publish());
    }

    /// What waits, as text.
    pub(crate) fn snapshots(&self) -> String {
        each_purgatory!(self.snapshot(SHOWN))
            .map(|(_, snapshot)| snapshot.to_string())
            .concat()
    }

    pub(crate) fn stats(&self) -> [(&'static str, Stats); 3] {
        each_purgatory!(self.stats())
    }

    /// Answers whatever is parked, and whatever comes later at once.
    pub(crate) fn shutdown(&self) {
        each_purgatory!(self.shutdown(SHUTDOWN_WITHIN));
    }
}
