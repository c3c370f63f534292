//! Metadata: who leads which partition; asking for a topic makes it, as Kafka does with
//! `auto.create.topics.enable`. CreateTopics makes one as it is asked to.

use std::{net::SocketAddr, sync::Arc};

use kafka_protocol::{
    ResponseError, messages::create_topics_request::*, messages::create_topics_response::*,
    messages::metadata_request::*, messages::metadata_response::*, messages::*, protocol::StrBytes,
};

use crate::api::{ELEMENT_BYTES, OrError};
use crate::partition::{FOLLOWER_IDS, LEADER_ID};
use crate::topics::{Topic, Topics};
use crate::{partition::Partition, pipeline::Reply, replica_manager::ReplicaManager};

const MESSAGE_MAX: u32 = i32::MAX as u32;
/// What is said of any other configuration of a topic: it is not taken in silence.
const CONFIGS: &str =
    "a topic's configuration may be min.insync.replicas (1 to 3) and max.message.bytes";

/// `address` is where this client reached the broker, so it is also what the client is told. Topics
/// are made now, and described when it is the answer's turn.
pub(crate) fn metadata(
    manager: &ReplicaManager,
    request: MetadataRequest,
    address: SocketAddr,
    reply: Reply,
) {
    let (topics, version) = (Arc::clone(&manager.topics), reply.version);
    let found = |asked: MetadataRequestTopic| {
        let found = match asked.name.as_deref() {
            None => Err(ResponseError::UnknownTopicId),
            Some(name) if request.allow_auto_topic_creation => topics.get_or_create(name),
            Some(name) => topics.get(name).ok_or(ResponseError::UnknownTopicOrPartition),
        };
        found.map_err(|error| (asked.name, error))
    };
    // Version 0 asks for all topics with an empty list, later ones with none.
    let asked = request.topics.filter(|asked| version > 0 || !asked.is_empty());
    let asked = asked.map(|asked| asked.into_iter().map(found).collect::<Vec<_>>());
    manager.complete_topics();
    reply.send_in_turn(move |share| {
        let found = asked.unwrap_or_else(|| topics.all().into_iter().map(Ok).collect());
        let partitions = found.iter().flatten().map(|topic| topic.len()).sum::<usize>();
        share.take((found.len() + partitions) * ELEMENT_BYTES)?;
        let topics = found.iter().map(|found| match found {
            Ok(topic) => described(topic),
            Err((name, error)) => {
                let topic = MetadataResponseTopic::default().with_error_code(error.code());
                topic.with_name(name.clone())
            }
        });
        let broker = MetadataResponseBroker::default()
            .with_node_id(LEADER_ID.into())
            .with_host(address.ip().to_string().into())
            .with_port(address.port().into());
        Ok(MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_topics(topics.collect())
            .with_controller_id(LEADER_ID.into())
            .with_cluster_id(Some("purgatory-example".into())))
    });
}

fn described(topic: &Topic) -> MetadataResponseTopic {
    let name = StrBytes::from_string(topic[0].key.topic.to_string()).into();
    let partition = |partition: &Arc<Partition>| {
        let ids = |followers: &[i32]| [&[LEADER_ID], followers].concat().into_iter().map(BrokerId);
        MetadataResponsePartition::default()
            .with_partition_index(partition.key.partition)
            .with_leader_id(LEADER_ID.into())
            .with_replica_nodes(
                ids(&FOLLOWER_IDS[..usize::from(partition.config.replicas) - 1]).collect(),
            )
            .with_isr_nodes(ids(&partition.in_sync_followers()).collect())
    };
    let partitions = topic.iter().map(partition).collect();
    MetadataResponseTopic::default().with_name(Some(name)).with_partitions(partitions)
}

/// A topic has the leader as its replica, and as many followers as its replication factor says;
/// assignments by hand are refused.
pub(crate) fn create_topics(
    manager: &ReplicaManager,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let result = |topic: CreatableTopic| {
        let created = created(&manager.topics, &topic, request.validate_only);
        let result = CreatableTopicResult::default().with_name(topic.name);
        match created {
            Ok(()) => result,
            Err(error) => {
                let invalid_config = error == ResponseError::InvalidConfig;
                let text = if invalid_config { CONFIGS.to_owned() } else { error.to_string() };
                result.with_error_code(error.code()).with_error_message(Some(text.into()))
            }
        }
    };
    let results = request.topics.into_iter().map(result).collect();
    manager.complete_topics();
    CreateTopicsResponse::default().with_topics(results)
}

fn created(topics: &Topics, topic: &CreatableTopic, validate_only: bool) -> OrError<()> {
    refuse!(!topic.assignments.is_empty(), InvalidReplicaAssignment);
    let mut config = topics.defaults;
    if topic.num_partitions != -1 {
        config.partitions = topic.num_partitions;
    }
    if topic.replication_factor != -1 {
        let replicas = u8::try_from(topic.replication_factor).unwrap_or(0);
        let possible = (1..=config.replicas).contains(&replicas);
        config.replicas =
            possible.then_some(replicas).ok_or(ResponseError::InvalidReplicationFactor)?;
    }
    for given in &topic.configs {
        let value = given.value.as_ref().and_then(|value| value.parse().ok());
        match (given.name.as_str(), value.ok_or(ResponseError::InvalidConfig)?) {
            ("min.insync.replicas", value @ 1..=3) => config.min_insync_replicas = value as u8,
            ("max.message.bytes", value @ 0..=MESSAGE_MAX) => config.message_max_bytes = value,
            _ => return Err(ResponseError::InvalidConfig),
        }
    }
    topics.create(&topic.name, config, validate_only).map(drop)
}
