//! ListOffsets: the earliest offset, the latest, or the first since a timestamp.
//!
//! Batches are opaque here, so "since a timestamp" is answered with the beginning of the first batch
//! that has such a record; a consumer that starts there sees a few earlier records of that batch.

use kafka_protocol::{
    ResponseError,
    messages::{TopicName, list_offsets_request::*, list_offsets_response::*},
};

use crate::{
    partition::{LEADER_EPOCH, UpTo},
    topics::Topics,
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// No record is that late.
const NONE: (i64, i64) = (-1, -1);

pub(crate) fn list_offsets(
    topics: &Topics,
    request: ListOffsetsRequest,
    version: i16,
) -> ListOffsetsResponse {
    let up_to = if request.replica_id.0 >= 0 { UpTo::LogEnd } else { UpTo::HighWatermark };
    let partition = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let response = ListOffsetsPartitionResponse::default();
        let response = response.with_partition_index(asked.partition_index);
        match found(topics, topic, asked, up_to) {
            Ok((timestamp, offset)) => response
                .with_timestamp(timestamp)
                .with_offset(offset)
                .with_leader_epoch(if version >= 4 { LEADER_EPOCH } else { -1 }),
            Err(error) => response.with_error_code(error.code()),
        }
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| partition(&topic.name, asked));
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn found(
    topics: &Topics,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    up_to: UpTo,
) -> Result<(i64, i64), ResponseError> {
    let partition = topics.partition(topic, asked.partition_index)?;
    match asked.timestamp {
        EARLIEST => Ok((-1, partition.offsets().log_start)),
        LATEST => Ok((-1, partition.offsets().end(up_to))),
        0.. => Ok(partition.offset_since(asked.timestamp, up_to).unwrap_or(NONE)),
        _ => Err(ResponseError::InvalidRequest),
    }
}
