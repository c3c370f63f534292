//! Metadata tells the leader of each partition, and makes topics that are asked for, as Kafka does
//! with `auto.create.topics.enable`. CreateTopics makes topics with a given number of partitions.

use std::{collections::HashSet, net::SocketAddr, sync::Arc};

use kafka_protocol::{
    ResponseError, messages::create_topics_request::*, messages::create_topics_response::*,
    messages::metadata_request::*, messages::metadata_response::*, messages::*, protocol::StrBytes,
};

use crate::partition::{FOLLOWER_IDS, LEADER_ID, Partition};
use crate::topics::{Topic, Topics};
use crate::{api::OrError, replica_manager::ReplicaManager, reply::Reply};

/// Answers with the one broker and the topics asked for. Topics are made now, and described when
/// the answer is written. The broker's address in the answer is `address`, which this client
/// connected to.
pub(crate) fn metadata(
    manager: &ReplicaManager,
    request: MetadataRequest,
    address: SocketAddr,
    reply: Reply,
) {
    let topics = Arc::clone(&manager.topics);
    let cluster_id = StrBytes::from_string(manager.cluster_id.clone());
    // A missing list stands for all topics, which are looked up when the answer is made.
    let may_create = request.allow_auto_topic_creation;
    let asked = request.topics.map(|asked| {
        // Find each topic once, as in Kafka: its description may be thousands of times as long as
        // its name.
        let mut names = HashSet::new();
        let mut found = Vec::new();
        for topic in asked {
            if names.insert(topic.name.clone()) {
                found.push(find(&topics, topic, may_create));
            }
        }
        found
    });
    reply.send_made(move || {
        let described = match asked {
            Some(found) => found.iter().map(answer).collect(),
            None => topics.all().iter().map(described).collect(),
        };
        let broker = MetadataResponseBroker::default()
            .with_node_id(LEADER_ID.into())
            .with_host(address.ip().to_string().into())
            .with_port(address.port().into());
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_topics(described)
            .with_controller_id(LEADER_ID.into())
            .with_cluster_id(Some(cluster_id))
    });
}

/// A topic, or the error for this name.
type Found = Result<Topic, (Option<TopicName>, ResponseError)>;

/// Finds a topic, or makes it.
fn find(topics: &Topics, asked: MetadataRequestTopic, may_create: bool) -> Found {
    let found = match asked.name.as_deref() {
        None => Err(ResponseError::InvalidTopicException),
        Some(name) if may_create => topics.get_or_create(name),
        Some(name) => topics
            .get(name)
            .ok_or(ResponseError::UnknownTopicOrPartition),
    };
    found.map_err(|error| (asked.name, error))
}

fn answer(found: &Found) -> MetadataResponseTopic {
    match found {
        Ok(topic) => described(topic),
        Err((name, error)) => MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(name.clone()),
    }
}

/// Describes a topic: the leader, replicas and in-sync replicas of each partition.
fn described(topic: &Topic) -> MetadataResponseTopic {
    let name = StrBytes::from_string(topic[0].key.topic.to_string()).into();
    let partition = |partition: &Arc<Partition>| {
        // The leader is in every list, and first.
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

/// Makes topics with the partitions that are asked for, and all three replicas; refuses other
/// replication factors, assignments of replicas and configurations.
pub(crate) fn create_topics(topics: &Topics, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let result = |topic: CreatableTopic| {
        // Validation without creation is not offered: it gets an error, not a silent yes.
        let created = if request.validate_only {
            Err(ResponseError::InvalidRequest)
        } else {
            created(topics, &topic)
        };
        let code = match created {
            Ok(()) => 0,
            Err(error) => error.code(),
        };
        CreatableTopicResult::default()
            .with_name(topic.name)
            .with_error_code(code)
    };
    let results = request.topics.into_iter().map(result).collect();
    CreateTopicsResponse::default().with_topics(results)
}

/// Makes one topic.
fn created(topics: &Topics, topic: &CreatableTopic) -> OrError<()> {
    const REPLICAS: i16 = 1 + FOLLOWER_IDS.len() as i16;
    refuse!(!topic.assignments.is_empty(), InvalidReplicaAssignment);
    refuse!(!topic.configs.is_empty(), InvalidConfig);
    refuse!(
        ![-1, REPLICAS].contains(&topic.replication_factor),
        InvalidReplicationFactor
    );
    // -1 stands for the default.
    let partitions = match topic.num_partitions {
        -1 => topics.defaults.partitions,
        asked => asked,
    };
    topics.create(&topic.name, partitions)?;
    Ok(())
}
