//! Fetch: a long poll that waits until there is enough to read. ListOffsets: where to begin.
//!
//! A consumer reads up to the high watermark. A follower (`replica_id` ≥ 0) reads to the log end,
//! and the offset it asks for shows the leader what it has. There are no fetch sessions:
//! `session_id` is always 0.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    TopicName, fetch_request::*, fetch_response::*, list_offsets_request::*,
    list_offsets_response::*,
};
use purgatory::{DelayedOperation, Outcome};

use crate::replica_manager::{ReplicaManager, park};
use crate::topics::{Topics, WatchKey};
use crate::{api::OrError, api::millis, partition::FollowerFetch, partition::UpTo, reply::Reply};

/// The most bytes of records in a response (Kafka's `replica.fetch.max.bytes`, `fetch.max.bytes`).
pub(crate) const FETCH_BYTES_MAX: usize = 1 << 20;

/// The longest wait of a fetch; a longer `max_wait_ms` is shortened to it without an error.
/// librdkafka does not let its users ask for more (`fetch.wait.max.ms`).
pub(crate) const LONG_POLL_MAX: Duration = Duration::from_secs(300);

/// A fetch that waits for `min_bytes` over all its partitions together. It is checked when a
/// partition has something new: the high watermark, or for a follower the log end, has advanced. A
/// consumer's fetch is also checked when records were deleted by request. A fetch expires after
/// `max_wait_ms`, at most [`LONG_POLL_MAX`]. However it ends, the answer has the records that are
/// there.
pub(crate) struct DelayedFetch {
    request: FetchRequest,
    topics: Arc<Topics>,
    reply: Reply,
}

/// Notes what a follower has, then waits until there is enough to read.
pub(crate) fn fetch(manager: &ReplicaManager, request: FetchRequest, reply: Reply) {
    let max_wait = millis(request.max_wait_ms).min(LONG_POLL_MAX);
    let mut watermarks = Vec::new();
    for (topic, asked) in partitions_of(&request) {
        // An unknown partition is an error, which the first check finds.
        let Ok(partition) = manager.topics.partition(topic, asked.partition) else {
            continue;
        };
        let key = partition.key.clone();
        let key = match up_to(&request) {
            UpTo::HighWatermark => WatchKey::HighWatermark(key),
            UpTo::LogEnd => WatchKey::LogEnd(key),
        };
        // Note what a follower has, which its offset says, before it waits for more.
        if up_to(&request) == UpTo::LogEnd {
            let fetch = FollowerFetch {
                id: request.replica_id.0,
                connection: reply.connection,
                log_start: asked.log_start_offset,
                log_end: asked.fetch_offset,
            };
            manager.note_fetch(&partition, fetch);
        }
        watermarks.push(key);
    }

    let operation = DelayedFetch {
        request,
        topics: Arc::clone(&manager.topics),
        reply,
    };
    if max_wait.is_zero() {
        return operation.on_complete(Outcome::Expired);
    }
    let connection = operation.reply.connection;
    let purgatory = &manager.fetches;
    park(purgatory, operation, watermarks, connection, max_wait);
}

impl DelayedOperation for DelayedFetch {
    /// Completes when there is enough to read, when a partition has an error, or when a consumer
    /// asks for no partition and so has nothing to wait for. A follower that knows no partition yet
    /// waits for its timeout.
    fn try_complete(&mut self) -> bool {
        let request = &self.request;
        let is_consumer = request.replica_id.0 < 0;
        if is_consumer && request.topics.is_empty() {
            return true;
        }
        let mut bytes = 0_u64;
        for (topic, asked) in partitions_of(request) {
            // An error in one partition is answered at once.
            let Ok(partition) = self.topics.partition(topic, asked.partition) else {
                return true;
            };
            let Ok(readable) = partition.readable_bytes(asked.fetch_offset, up_to(request)) else {
                return true;
            };
            let bytes_max = size(asked.partition_max_bytes) as u64;
            bytes = bytes.saturating_add(readable.min(bytes_max));
        }
        // The fetch waits for no more than fits into the response.
        let enough = size(request.min_bytes).min(bytes_max(request));
        bytes >= enough as u64
    }

    fn on_complete(self, outcome: Outcome) {
        let count = partitions_of(&self.request).count();
        tracing::debug!("fetch of {count} partitions: {outcome:?}");
        let request = self.request;
        let topics = self.topics;
        self.reply.send_made(move || read(&topics, request));
    }
}

/// Reads the records that are there now, up to `max_bytes`. The first batch is returned whatever
/// its size, so that a consumer is never stuck before a large one (KIP-74).
fn read(topics: &Topics, request: FetchRequest) -> FetchResponse {
    let mut budget = Budget {
        up_to: up_to(&request),
        bytes: bytes_max(&request),
        is_empty: true,
    };
    let mut responses = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            partitions.push(budget.read(topics, &topic.topic, asked));
        }
        let response = FetchableTopicResponse::default().with_partitions(partitions);
        responses.push(response.with_topic(topic.topic));
    }
    FetchResponse::default().with_responses(responses)
}

/// The space that is left for records in a response.
struct Budget {
    up_to: UpTo,
    /// The bytes that still fit.
    bytes: usize,
    /// No records have been read yet.
    is_empty: bool,
}

impl Budget {
    /// Reads one partition, as far as its records fit.
    fn read(
        &mut self,
        topics: &Topics,
        topic: &TopicName,
        asked: &FetchPartition,
    ) -> PartitionData {
        let mut data = PartitionData::default().with_partition_index(asked.partition);
        data.high_watermark = -1;
        let partition = match topics.partition(topic, asked.partition) {
            Ok(partition) => partition,
            Err(error) => return data.with_error_code(error.code()),
        };

        // Read the records before the offsets: a watermark may be newer than the records beside it.
        let bytes = size(asked.partition_max_bytes).min(self.bytes);
        let read = partition.read(asked.fetch_offset, self.up_to, bytes, self.is_empty);
        let offsets = partition.offsets();
        // Set this even with an error: a follower whose offset is gone learns where to go on.
        data.log_start_offset = offsets.log_start;
        let batches = match read {
            Ok(batches) => batches,
            Err(error) => return data.with_error_code(error.code()),
        };

        let records_bytes = batches.iter().map(|batch| batch.bytes.len()).sum();
        let mut records = BytesMut::with_capacity(records_bytes);
        for batch in &batches {
            records.extend_from_slice(&batch.bytes);
        }
        self.is_empty &= records.is_empty();
        self.bytes = self.bytes.saturating_sub(records.len());
        data.high_watermark = offsets.high_watermark;
        data.last_stable_offset = offsets.high_watermark;
        data.with_records(Some(records.freeze()))
    }
}

/// Returns the partitions that a request asks for, each with its topic.
fn partitions_of(request: &FetchRequest) -> impl Iterator<Item = (&TopicName, &FetchPartition)> {
    request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(move |partition| (&topic.topic, partition))
    })
}

fn up_to(request: &FetchRequest) -> UpTo {
    if request.replica_id.0 >= 0 {
        UpTo::LogEnd
    } else {
        UpTo::HighWatermark
    }
}

fn bytes_max(request: &FetchRequest) -> usize {
    size(request.max_bytes).min(FETCH_BYTES_MAX)
}

fn size(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

/// Answers with the earliest offset (timestamp -2) or the latest (-1). Other times are refused,
/// since batches are not opened.
pub(crate) fn list_offsets(topics: &Topics, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let mut responses = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let response = ListOffsetsPartitionResponse::default();
            let response = response.with_partition_index(asked.partition_index);
            partitions.push(match listed_offset(topics, &topic.name, asked) {
                Ok(offset) => response.with_offset(offset),
                Err(error) => response.with_error_code(error.code()),
            });
        }
        let response = ListOffsetsTopicResponse::default().with_name(topic.name);
        responses.push(response.with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(responses)
}

fn listed_offset(topics: &Topics, topic: &TopicName, asked: &ListOffsetsPartition) -> OrError<i64> {
    let offsets = topics.partition(topic, asked.partition_index)?.offsets();
    match asked.timestamp {
        -2 => Ok(offsets.log_start),
        -1 => Ok(offsets.high_watermark),
        _ => Err(ResponseError::UnsupportedForMessageFormat),
    }
}
