//! ListOffsets: the earliest offset and the latest. Batches are opaque here, so no offset is known by
//! its timestamp: UNSUPPORTED_FOR_MESSAGE_FORMAT, as for messages without.

use kafka_protocol::{
    ResponseError,
    messages::{TopicName, list_offsets_request::*, list_offsets_response::*},
};

use crate::topics::Topics;

pub(crate) fn list_offsets(topics: &Topics, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let found = |topic: &TopicName, asked: &ListOffsetsPartition| {
        let offsets = topics.partition(topic, asked.partition_index)?.offsets();
        match asked.timestamp {
            -2 => Ok(offsets.log_start),      // the earliest
            -1 => Ok(offsets.high_watermark), // the latest
            0.. => Err(ResponseError::UnsupportedForMessageFormat),
            _ => Err(ResponseError::InvalidRequest),
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
        let partitions = topic.partitions.iter().map(|asked| partition(&topic.name, asked));
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}
