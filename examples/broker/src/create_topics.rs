//! CreateTopics. Every topic has the leader and both followers as its replicas, so a smaller
//! replication factor is taken and the real one told; assignments by hand are refused.

use kafka_protocol::{
    ResponseError,
    messages::{
        CreateTopicsRequest, CreateTopicsResponse, create_topics_request::CreatableTopic,
        create_topics_response::CreatableTopicResult,
    },
};

use crate::{replica_state::FOLLOWER_IDS, topics::Topics};

/// The leader counts.
const REPLICAS: i16 = 1 + FOLLOWER_IDS.len() as i16;

pub(crate) fn create_topics(
    topics: &Topics,
    request: CreateTopicsRequest,
    version: i16,
) -> CreateTopicsResponse {
    let result = |topic: CreatableTopic| {
        let created = created(topics, &topic, request.validate_only);
        let result = CreatableTopicResult::default().with_name(topic.name);
        match created {
            Ok(partitions) if version >= 5 => {
                result.with_num_partitions(partitions).with_replication_factor(REPLICAS)
            }
            Ok(_) => result,
            Err(error) => result
                .with_error_code(error.code())
                .with_error_message(Some(error.to_string().into())),
        }
    };
    CreateTopicsResponse::default().with_topics(request.topics.into_iter().map(result).collect())
}

/// The number of partitions.
fn created(
    topics: &Topics,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<i32, ResponseError> {
    if !topic.assignments.is_empty() {
        return Err(ResponseError::InvalidReplicaAssignment);
    }
    if topic.replication_factor != -1 && !(1..=REPLICAS).contains(&topic.replication_factor) {
        return Err(ResponseError::InvalidReplicationFactor);
    }
    let partitions =
        if topic.num_partitions == -1 { topics.partitions } else { topic.num_partitions };
    topics.create(&topic.name, partitions, validate_only)?;
    Ok(partitions)
}
