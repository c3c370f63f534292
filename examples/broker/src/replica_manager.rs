//! The replicas, and the purgatory where requests wait for them. Who changes a partition comes
//! through here, so that what is parked hears of every advance of a high watermark.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use purgatory::Purgatory;
use timer_core::{BuildError, Timer};

use crate::{
    args::Args,
    batch,
    counters::Counters,
    delayed_produce::DelayedProduce,
    follower::Followers,
    partition::{Appended, Fetched, Partition},
    signal::Signal,
    topics::{TopicPartition, Topics},
};

/// Bytes in one fetch of a follower (Kafka's `replica.fetch.max.bytes`).
const FETCH_BYTES_MAX: usize = 1 << 20;

pub(crate) struct ReplicaManager {
    pub(crate) args: Args,
    pub(crate) topics: Topics,
    pub(crate) followers: Arc<Followers>,
    pub(crate) produces: Purgatory<TopicPartition, DelayedProduce>,
    pub(crate) counters: Arc<Counters>,
    /// Wakes the followers after an append.
    pub(crate) signal: Signal,
}

impl ReplicaManager {
    pub(crate) fn new(args: &Args, timer: &impl Timer) -> Result<Self, BuildError> {
        Ok(ReplicaManager {
            args: args.clone(),
            topics: Topics::new(args.partitions, args.max_topics),
            followers: Arc::new(Followers::new(args.pause_followers)),
            produces: Purgatory::builder("produce").timer(timer).build()?,
            counters: Arc::default(),
            signal: Signal::default(),
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
        let in_sync_min = match acks {
            -1 => self.args.min_insync_replicas.into(),
            0 | 1 => 0,
            _ => return Err(ResponseError::InvalidRequiredAcks),
        };
        let unknown = ResponseError::UnknownTopicOrPartition;
        let partition = self.topics.partition(topic, index).ok_or(unknown)?;
        let batches = batch::parse(records)?;
        let sizes: Vec<_> = batches.iter().map(|batch| (batch.codec, batch.records)).collect();
        let appended = partition.append(batches, in_sync_min, self.args.max_log)?;
        let mut counters = self.counters.lock();
        for (codec, records) in sizes {
            counters.records += u64::from(records.unsigned_abs());
            counters.batches[codec] += 1;
        }
        drop(counters);
        self.signal.notify();
        self.complete_parked(&partition, appended.advanced_to);
        Ok((partition, appended))
    }

    /// What a follower gets from `offset` on. That it asks for `offset` tells what it has.
    pub(crate) fn fetch_as_follower(&self, partition: &Partition, id: i32, offset: i64) -> Fetched {
        let fetched = partition.fetch_as_follower(id, offset, FETCH_BYTES_MAX);
        self.complete_parked(partition, fetched.advanced_to);
        fetched
    }

    /// To be called every half of `--replica-lag-time-max`.
    pub(crate) fn shrink_in_sync(&self) {
        for topic in self.topics.all() {
            for partition in &topic.partitions {
                self.complete_parked(partition, partition.shrink_in_sync());
            }
        }
    }

    /// The high watermark has advanced and no lock is held: now the event, for those that it reaches.
    fn complete_parked(&self, partition: &Partition, advanced_to: Option<i64>) {
        if let Some(high_watermark) = advanced_to {
            self.produces.complete_up_to(&partition.key, high_watermark.cast_unsigned());
        }
    }
}
