//! Fetch: what to read, and the response with the records when it is its turn.
//!
//! A consumer reads up to the high watermark. A follower (`replica_id` ≥ 0) reads to the log end, and
//! the offset it asks for tells the leader what it has. No fetch sessions: `session_id` is always 0.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    ResponseError,
    messages::{
        FetchRequest, FetchResponse, TopicName,
        fetch_request::FetchPartition,
        fetch_response::{FetchableTopicResponse, PartitionData},
    },
};
use purgatory::{DelayedOperation, Outcome};

use crate::{
    api::{Client, millis},
    batch::RecordBatch,
    delayed_fetch::DelayedFetch,
    partition::{Partition, UpTo},
    pipeline::Reply,
    replica_manager::{FETCH_BYTES_MAX, ReplicaManager},
};

/// What a fetch asks for, and all that is kept of it while it is parked.
pub(crate) struct FetchPlan {
    pub(crate) up_to: UpTo,
    bytes_max: usize,
    topics: Vec<(TopicName, Vec<PartitionPlan>)>,
}

pub(crate) struct PartitionPlan {
    index: i32,
    pub(crate) partition: Result<Arc<Partition>, ResponseError>,
    pub(crate) offset: i64,
    bytes_max: usize,
}

pub(crate) fn fetch(
    manager: &ReplicaManager,
    client: &Client,
    request: FetchRequest,
    reply: Reply,
) {
    let bytes_min = u64::try_from(request.min_bytes).unwrap_or(0);
    let max_wait = millis(request.max_wait_ms);
    let plan = FetchPlan::new(manager, request);
    // What does not fit into the response is not waited for.
    let bytes_min = bytes_min.min(plan.bytes_max as u64);
    let operation = DelayedFetch { plan, bytes_min, reply };
    if max_wait == Duration::ZERO {
        return operation.on_complete(Outcome::Completed);
    }
    let watermarks = operation.watermarks();
    ReplicaManager::park(&manager.fetches, operation, &watermarks, client.connection, max_wait);
}

impl FetchPlan {
    fn new(manager: &ReplicaManager, request: FetchRequest) -> FetchPlan {
        let follower = (request.replica_id.0 >= 0).then_some(request.replica_id.0);
        let partition = |topic: &TopicName, asked: &FetchPartition| {
            let partition = manager.topics.partition(topic, asked.partition);
            let partition = partition.ok_or(ResponseError::UnknownTopicOrPartition);
            if let (Some(id), Ok(partition)) = (follower, &partition) {
                manager.note_fetch(partition, id, asked.log_start_offset, asked.fetch_offset);
            }
            PartitionPlan {
                index: asked.partition,
                partition,
                offset: asked.fetch_offset,
                bytes_max: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
            }
        };
        let topics = request.topics.into_iter().map(|topic| {
            let asked = topic.partitions.iter();
            let partitions = asked.map(|asked| partition(&topic.topic, asked)).collect();
            (topic.topic, partitions)
        });
        FetchPlan {
            up_to: if follower.is_some() { UpTo::LogEnd } else { UpTo::HighWatermark },
            bytes_max: usize::try_from(request.max_bytes).unwrap_or(0).min(FETCH_BYTES_MAX),
            topics: topics.collect(),
        }
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = &PartitionPlan> {
        self.topics.iter().flat_map(|(_, partitions)| partitions)
    }

    /// Reads what is there now, `max_bytes` of it; the first batch comes whatever its size, so that
    /// a consumer is never stuck before a large one (KIP-74).
    pub(crate) fn response(self, version: i16) -> FetchResponse {
        let (mut bytes_left, mut nothing_yet) = (self.bytes_max, true);
        let mut partition = |plan: PartitionPlan| {
            let data = PartitionData::default().with_partition_index(plan.index);
            let read = plan.partition.and_then(|partition| {
                let bytes_max = plan.bytes_max.min(bytes_left);
                let batches = partition.read(plan.offset, self.up_to, bytes_max, nothing_yet)?;
                Ok((batches, partition.offsets()))
            });
            match read {
                Ok((batches, offsets)) => {
                    let records = concat(&batches);
                    nothing_yet &= records.is_empty();
                    bytes_left = bytes_left.saturating_sub(records.len());
                    let log_start_offset = if version >= 5 { offsets.log_start } else { -1 };
                    data.with_records(Some(records))
                        .with_high_watermark(offsets.high_watermark)
                        .with_last_stable_offset(offsets.high_watermark)
                        .with_log_start_offset(log_start_offset)
                }
                Err(error) => data.with_error_code(error.code()).with_high_watermark(-1),
            }
        };
        let topics = self.topics.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(&mut partition).collect();
            FetchableTopicResponse::default().with_topic(topic).with_partitions(partitions)
        });
        FetchResponse::default().with_responses(topics.collect())
    }
}

impl PartitionPlan {
    /// How many bytes of it the response could have now.
    pub(crate) fn readable_bytes(&self, up_to: UpTo) -> Result<u64, ResponseError> {
        let partition = self.partition.as_ref().map_err(|error| *error)?;
        Ok(partition.readable_bytes(self.offset, up_to)?.min(self.bytes_max as u64))
    }
}

fn concat(batches: &[RecordBatch]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(batches.iter().map(|batch| batch.bytes.len()).sum());
    batches.iter().for_each(|batch| bytes.extend_from_slice(&batch.bytes));
    bytes.freeze()
}
