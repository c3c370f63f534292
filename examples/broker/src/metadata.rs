//! Metadata: who leads which partition; asking for a topic makes it, as Kafka does with
//! `auto.create.topics.enable`. CreateTopics makes one as it is asked to.

use std::{net::SocketAddr, sync::Arc};

use kafka_protocol::{
    ResponseError,
    messages::{
        BrokerId, create_topics_request::*, create_topics_response::*, metadata_request::*,
        metadata_response::*,
    },
    protocol::StrBytes,
};

use crate::{
    partition::Partition,
    replica_manager::ReplicaManager,
    replica_state::{FOLLOWER_IDS, LEADER_ID},
    topics::{Topic, Topics},
};

/// The leader counts.
const REPLICAS: i16 = 1 + FOLLOWER_IDS.len() as i16;

/// `address` is where this client reached the broker, so it is also what the client is told.
pub(crate) fn metadata(
    manager: &ReplicaManager,
    request: &MetadataRequest,
    version: i16,
    address: SocketAddr,
) -> MetadataResponse {
    let topics = &manager.topics;
    let found = |asked: &MetadataRequestTopic| {
        let name = asked.name.as_ref().ok_or(ResponseError::UnknownTopicId)?;
        if request.allow_auto_topic_creation {
            return topics.get_or_create(name);
        }
        topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition)
    };
    let topic = |asked: &MetadataRequestTopic| match found(asked) {
        Ok(topic) => described(&topic),
        Err(error) => {
            let topic = MetadataResponseTopic::default().with_error_code(error.code());
            topic.with_name(asked.name.clone())
        }
    };
    let topics = match &request.topics {
        // Version 0 asks for all topics with an empty list, later ones with none.
        Some(asked) if version > 0 || !asked.is_empty() => asked.iter().map(topic).collect(),
        _ => topics.all().iter().map(described).collect(),
    };
    manager.complete_topics();
    let broker = MetadataResponseBroker::default()
        .with_node_id(LEADER_ID.into())
        .with_host(StrBytes::from_string(address.ip().to_string()))
        .with_port(address.port().into());
    let cluster = StrBytes::from_static_str("purgatory-example");
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(topics)
        .with_controller_id(if version >= 1 { LEADER_ID } else { -1 }.into())
        .with_cluster_id((version >= 2).then_some(cluster))
}

fn described(topic: &Topic) -> MetadataResponseTopic {
    let name = StrBytes::from_string(topic[0].key.topic.to_string()).into();
    let partition = |partition: &Arc<Partition>| {
        let ids = |followers: &[i32]| [&[LEADER_ID], followers].concat().into_iter().map(BrokerId);
        MetadataResponsePartition::default()
            .with_partition_index(partition.key.partition)
            .with_leader_id(LEADER_ID.into())
            .with_replica_nodes(ids(&FOLLOWER_IDS).collect())
            .with_isr_nodes(ids(&partition.in_sync_followers()).collect())
    };
    let partitions = topic.iter().map(partition).collect();
    MetadataResponseTopic::default().with_name(Some(name)).with_partitions(partitions)
}

/// Every topic has the leader and both followers as its replicas, so a smaller replication factor is
/// taken and the real one told; assignments by hand are refused.
pub(crate) fn create_topics(
    manager: &ReplicaManager,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let result = |topic: CreatableTopic| {
        let created = created(&manager.topics, &topic, request.validate_only);
        let result = CreatableTopicResult::default().with_name(topic.name);
        match created {
            Ok(()) => result,
            Err(error) => result
                .with_error_code(error.code())
                .with_error_message(Some(error.to_string().into())),
        }
    };
    let results = request.topics.into_iter().map(result).collect();
    manager.complete_topics();
    CreateTopicsResponse::default().with_topics(results)
}

fn created(
    topics: &Topics,
    topic: &CreatableTopic,
    validate_only: bool,
) -> Result<(), ResponseError> {
    if !topic.assignments.is_empty() {
        return Err(ResponseError::InvalidReplicaAssignment);
    }
    if topic.replication_factor != -1 && !(1..=REPLICAS).contains(&topic.replication_factor) {
        return Err(ResponseError::InvalidReplicationFactor);
    }
    let partitions =
        if topic.num_partitions == -1 { topics.partitions } else { topic.num_partitions };
    topics.create(&topic.name, partitions, validate_only).map(drop)
}
