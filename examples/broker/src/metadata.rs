//! Metadata: the leader of each partition. Asking for a topic makes it, as Kafka does with
//! `auto.create.topics.enable`. CreateTopics makes one as it is asked to.

use std::{net::SocketAddr, sync::Arc};

use kafka_protocol::{
    ResponseError, messages::create_topics_request::*, messages::create_topics_response::*,
    messages::metadata_request::*, messages::metadata_response::*, messages::*, protocol::StrBytes,
};

use crate::partition::{FOLLOWER_IDS, LEADER_ID, Partition};
use crate::topics::{Topic, Topics};
use crate::{api::OrError, replica_manager::ReplicaManager, reply::Reply};

/// `address` is where this client reached the broker, so it is also what the client is told. Topics
/// are made now, and described when the answer is written.
pub(crate) fn metadata(
    manager: &ReplicaManager,
    request: MetadataRequest,
    address: SocketAddr,
    reply: Reply,
) {
    let topics = Arc::clone(&manager.topics);
    let found = |asked: MetadataRequestTopic| {
        let found = match asked.name.as_deref() {
            None => Err(ResponseError::InvalidTopicException),
            Some(name) if request.allow_auto_topic_creation => topics.get_or_create(name),
            Some(name) => topics
                .get(name)
                .ok_or(ResponseError::UnknownTopicOrPartition),
        };
        found.map_err(|error| (asked.name, error))
    };
    let asked = request
        .topics
        .map(|asked| asked.into_iter().map(found).collect::<Vec<_>>());
    reply.send_made(move || {
        let found = asked.unwrap_or_else(|| topics.all().into_iter().map(Ok).collect());
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
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_topics(topics.collect())
            .with_controller_id(LEADER_ID.into())
            .with_cluster_id(Some("purgatory-example".into()))
    });
}

fn described(topic: &Topic) -> MetadataResponseTopic {
    let name = StrBytes::from_string(topic[0].key.topic.to_string()).into();
    let partition = |partition: &Arc<Partition>| {
        let nodes = |followers: &[i32]| {
            let ids = [&[LEADER_ID], followers].concat();
            ids.into_iter().map(BrokerId).collect()
        };
        MetadataResponsePartition::default()
            .with_partition_index(partition.key.partition)
            .with_leader_id(LEADER_ID.into())
            .with_replica_nodes(nodes(&FOLLOWER_IDS))
            .with_isr_nodes(nodes(&partition.in_sync_followers()))
    };
    let partitions = topic.iter().map(partition).collect();
    MetadataResponseTopic::default()
        .with_name(Some(name))
        .with_partitions(partitions)
}

/// Makes topics with as many partitions as each says, and all three replicas; other replication
/// factors, assignments by hand and configurations are refused.
pub(crate) fn create_topics(topics: &Topics, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let result = |topic: CreatableTopic| {
        let created = match request.validate_only {
            true => Err(ResponseError::InvalidRequest),
            false => created(topics, &topic),
        };
        let code = created.map_or_else(|error| error.code(), |()| 0);
        CreatableTopicResult::default()
            .with_name(topic.name)
            .with_error_code(code)
    };
    let results = request.topics.into_iter().map(result).collect();
    CreateTopicsResponse::default().with_topics(results)
}

fn created(topics: &Topics, topic: &CreatableTopic) -> OrError<()> {
    const REPLICAS: i16 = 1 + FOLLOWER_IDS.len() as i16;
    refuse!(!topic.assignments.is_empty(), InvalidReplicaAssignment);
    refuse!(!topic.configs.is_empty(), InvalidConfig);
    refuse!(
        ![-1, REPLICAS].contains(&topic.replication_factor),
        InvalidReplicationFactor
    );
    let asked = Some(topic.num_partitions).filter(|partitions| *partitions != -1);
    topics
        .create(&topic.name, asked.unwrap_or(topics.defaults.partitions))
        .map(drop)
}
