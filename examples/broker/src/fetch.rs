//! Fetch: a long poll that waits until there is enough to read. ListOffsets: where to begin.
//!
//! A consumer reads up to the high watermark. A follower (`replica_id` ≥ 0) reads to the log end,
//! and the offset it asks for tells the leader what it has. No fetch sessions: `session_id` is
//! always 0.

use std::sync::Arc;

use bytes::BytesMut;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    TopicName, fetch_request::*, fetch_response::*, list_offsets_request::*,
    list_offsets_response::*,
};
use purgatory::{DelayedOperation, Outcome};

use crate::replica_manager::{ReplicaManager, park_up_to};
use crate::topics::{Topics, WatchKey};
use crate::{api::millis, partition::UpTo, reply::Reply};

/// Bytes of records in one response (Kafka's `replica.fetch.max.bytes` and `fetch.max.bytes`).
pub(crate) const FETCH_BYTES_MAX: usize = 1 << 20;

/// Waits for `min_bytes` over all its partitions together. It is checked when one of them has
/// something new (the high watermark, for a follower the log end, passes the offset), and expires
/// after `max_wait_ms`. However it ends, it is answered with what there is.
pub(crate) struct DelayedFetch {
    request: FetchRequest,
    topics: Arc<Topics>,
    reply: Reply,
}

pub(crate) fn fetch(manager: &ReplicaManager, request: FetchRequest, reply: Reply) {
    let (replica, max_wait) = (request.replica_id.0, millis(request.max_wait_ms));
    let mut watermarks = Vec::new();
    for (topic, asked) in asked(&request) {
        let Ok(partition) = manager.topics.partition(topic, asked.partition) else {
            continue;
        };
        let key = partition.key.clone();
        let key = match up_to(&request) {
            UpTo::HighWatermark => WatchKey::HighWatermark(key),
            UpTo::LogEnd => {
                manager.note_fetch(
                    &partition,
                    replica,
                    asked.log_start_offset,
                    asked.fetch_offset,
                );
                WatchKey::LogEnd(key)
            }
        };
        watermarks.push((
            key,
            asked.fetch_offset.saturating_add(1).max(0).cast_unsigned(),
        ));
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
    park_up_to(
        &manager.fetches,
        operation,
        &watermarks,
        connection,
        max_wait,
    );
}

impl DelayedOperation for DelayedFetch {
    /// Completes when enough is there, or an error, or a consumer asks for nothing: then there is
    /// nothing to wait for. A follower that knows no partition yet waits for its time.
    fn try_complete(&mut self) -> bool {
        let mut bytes = 0;
        let nothing_asked = self.request.replica_id.0 < 0 && self.request.topics.is_empty();
        for (topic, asked) in asked(&self.request) {
            let partition = self.topics.partition(topic, asked.partition);
            let readable = |offset| partition?.readable_bytes(offset, up_to(&self.request));
            let Ok(readable) = readable(asked.fetch_offset) else {
                return true;
            };
            bytes += readable.min(size(asked.partition_max_bytes) as u64);
        }
        // What does not fit into the response is not waited for.
        let enough = size(self.request.min_bytes).min(bytes_max(&self.request));
        nothing_asked || bytes >= enough as u64
    }

    fn on_complete(self, outcome: Outcome) {
        tracing::debug!(
            "fetch of {} partitions: {outcome:?}",
            asked(&self.request).count()
        );
        let (request, topics) = (self.request, self.topics);
        self.reply.send_made(move || read(&topics, request));
    }
}

/// Reads what is there now, `max_bytes` of it; the first batch comes whatever its size, so that a
/// consumer is never stuck before a large one (KIP-74).
fn read(topics: &Topics, request: FetchRequest) -> FetchResponse {
    let (mut bytes_left, mut nothing_yet) = (bytes_max(&request), true);
    let up_to = up_to(&request);
    let mut data = |topic: &TopicName, asked: &FetchPartition| {
        let mut data = PartitionData::default().with_partition_index(asked.partition);
        data.high_watermark = -1;
        let partition = match topics.partition(topic, asked.partition) {
            Ok(partition) => partition,
            Err(error) => return data.with_error_code(error.code()),
        };
        let bytes = size(asked.partition_max_bytes).min(bytes_left);
        let read = partition.read(asked.fetch_offset, up_to, bytes, nothing_yet);
        let offsets = partition.offsets();
        // With an error, too: a follower whose offset is gone learns where to go on.
        data.log_start_offset = offsets.log_start;
        let batches = match read {
            Ok(batches) => batches,
            Err(error) => return data.with_error_code(error.code()),
        };
        let bytes = batches.iter().map(|batch| batch.bytes.len()).sum();
        let mut records = BytesMut::with_capacity(bytes);
        batches
            .iter()
            .for_each(|batch| records.extend_from_slice(&batch.bytes));
        nothing_yet &= records.is_empty();
        bytes_left = bytes_left.saturating_sub(records.len());
        data.high_watermark = offsets.high_watermark;
        data.last_stable_offset = offsets.high_watermark;
        data.with_records(Some(records.freeze()))
    };
    let mut responses = Vec::new();
    for topic in request.topics {
        let partitions = topic
            .partitions
            .iter()
            .map(|asked| data(&topic.topic, asked))
            .collect();
        let response = FetchableTopicResponse::default().with_partitions(partitions);
        responses.push(response.with_topic(topic.topic));
    }
    FetchResponse::default().with_responses(responses)
}

fn asked(request: &FetchRequest) -> impl Iterator<Item = (&TopicName, &FetchPartition)> {
    request.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(move |partition| (&topic.topic, partition))
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

/// Tells the earliest offset (timestamp -2) or the latest (-1); batches are not looked into, so
/// there is no other time to ask for.
pub(crate) fn list_offsets(topics: &Topics, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let found = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let offsets = topics.partition(topic, asked.partition_index)?.offsets();
        match asked.timestamp {
            -2 => Ok(offsets.log_start),
            -1 => Ok(offsets.high_watermark),
            _ => Err(ResponseError::UnsupportedForMessageFormat),
        }
    };
    let partition = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let response = ListOffsetsPartitionResponse::default();
        let response = response.with_partition_index(asked.partition_index);
        match found(topic, asked) {
            Ok(offset) => response.with_offset(offset),
            Err(error) => response.with_error_code(error.code()),
        }
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .map(|asked| partition(&topic.name, asked));
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}
