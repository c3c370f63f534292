//! APIs that are advertised so that librdkafka compresses (see [`crate::api::APIS`]), and answered
//! with an error until they are served.

use kafka_protocol::{
    ResponseError,
    messages::{
        FetchRequest, FetchResponse, FindCoordinatorResponse,
        fetch_response::{FetchableTopicResponse, PartitionData},
    },
    protocol::StrBytes,
};

/// UNSUPPORTED_VERSION for every partition: consumers report it and back off.
pub(crate) fn fetch(request: FetchRequest) -> FetchResponse {
    let error = ResponseError::UnsupportedVersion.code();
    let partition = |index| {
        let partition = PartitionData::default().with_partition_index(index);
        partition.with_error_code(error).with_high_watermark(-1)
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| partition(asked.partition)).collect();
        FetchableTopicResponse::default().with_topic(topic.topic).with_partitions(partitions)
    });
    FetchResponse::default().with_responses(topics.collect())
}

/// COORDINATOR_NOT_AVAILABLE: no group is coordinated here.
pub(crate) fn find_coordinator(version: i16) -> FindCoordinatorResponse {
    let message = StrBytes::from_static_str("this broker serves no groups");
    let response = FindCoordinatorResponse::default().with_node_id((-1).into()).with_port(-1);
    response
        .with_error_code(ResponseError::CoordinatorNotAvailable.code())
        .with_error_message((version >= 1).then_some(message))
}
