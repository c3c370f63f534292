//! ListOffsets: the earliest offset, the latest, and the first at a time or later; -1 when all are
//! earlier, as in Kafka.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{TopicName, list_offsets_request::*, list_offsets_response::*};

use crate::topics::Topics;

pub(crate) fn list_offsets(topics: &Topics, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let found = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let partition = topics.partition(topic, asked.partition_index)?;
        match asked.timestamp {
            -2 => Ok((partition.offsets().log_start, -1)), // the earliest
            -1 => Ok((partition.offsets().high_watermark, -1)), // the latest
            timestamp @ 0.. => Ok(partition.first_at(timestamp).unwrap_or((-1, -1))),
            _ => Err(ResponseError::InvalidRequest),
        }
    };
    let partition = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let response = ListOffsetsPartitionResponse::default();
        let response = response.with_partition_index(asked.partition_index);
        match found(topic, asked) {
            Ok((offset, timestamp)) => response.with_offset(offset).with_timestamp(timestamp),
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
