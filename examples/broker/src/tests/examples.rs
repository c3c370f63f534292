//! A request of each API at each version it serves, with parts that succeed and parts that fail.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ConsumerGroupHeartbeatRequest, CreateTopicsRequest,
    DeleteRecordsRequest, FetchRequest, FindCoordinatorRequest, HeartbeatRequest,
    InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListOffsetsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, TopicName,
    create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig},
    delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    fetch_request::{FetchPartition, FetchTopic, ForgottenTopic},
    join_group_request::JoinGroupRequestProtocol,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    metadata_request::MetadataRequestTopic,
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    offset_fetch_request::OffsetFetchRequestTopic,
    sync_group_request::SyncGroupRequestAssignment,
};

use super::{produce, record_batch, request, topic_name};
use crate::schemas::{APIS, Api};

pub(crate) fn each_version() -> impl Iterator<Item = (ApiKey, i16)> {
    let versions = |api: &'static Api| api.served_from..=api.advertised.1;
    APIS.iter().flat_map(move |api| versions(api).map(|version| (api.key, version)))
}

/// For a broker that has topic `t`; with `acks=1` and short waits it is answered at once.
pub(crate) fn example(key: ApiKey, version: i16) -> Bytes {
    let name = topic_name("t");
    match key {
        ApiKey::Produce => {
            let data = [(0, record_batch(3)), (1, Bytes::new()), (9, record_batch(1))];
            request(key, version, &produce(1, 0, &data))
        }
        ApiKey::Fetch => request(key, version, &fetch(name, version)),
        ApiKey::ListOffsets => {
            let partition = |(index, timestamp)| {
                let partition = ListOffsetsPartition::default().with_partition_index(index);
                partition.with_timestamp(timestamp)
            };
            let partitions = [(0, -1), (0, -2), (0, 0), (0, -9), (9, -1)].map(partition);
            let topic = ListOffsetsTopic::default().with_name(name);
            let topics = vec![topic.with_partitions(partitions.to_vec())];
            let body = ListOffsetsRequest::default().with_replica_id((-1).into());
            request(key, version, &body.with_topics(topics))
        }
        ApiKey::Metadata => {
            let topics = ["t", "new", "not legal"].map(|name| Some(topic_name(name)));
            let topics = topics.map(|name| MetadataRequestTopic::default().with_name(name));
            request(key, version, &MetadataRequest::default().with_topics(Some(topics.to_vec())))
        }
        ApiKey::CreateTopics => {
            let topics = vec![
                creatable(&format!("made-{version}"), 2, 1),
                creatable("t", 1, 1),
                creatable("not legal", 1, 1),
                creatable("none", 0, 1),
                creatable("many", 1, 9),
                creatable("by-hand", -1, -1).with_assignments(vec![
                    CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()]),
                ]),
            ];
            request(key, version, &CreateTopicsRequest::default().with_topics(topics))
        }
        ApiKey::DeleteRecords => {
            let partition = |(index, offset)| {
                DeleteRecordsPartition::default().with_partition_index(index).with_offset(offset)
            };
            let partitions = [(0, -1), (0, 1 << 40), (9, 0)].map(partition).to_vec();
            let topic = DeleteRecordsTopic::default().with_name(name).with_partitions(partitions);
            request(key, version, &DeleteRecordsRequest::default().with_topics(vec![topic]))
        }
        ApiKey::FindCoordinator => {
            request(key, version, &FindCoordinatorRequest::default().with_key(name.0))
        }
        ApiKey::ApiVersions => {
            let name = if version >= 3 { name.0 } else { Default::default() };
            let body = ApiVersionsRequest::default().with_client_software_name(name.clone());
            request(key, version, &body.with_client_software_version(name))
        }
        ApiKey::JoinGroup => {
            let protocol = JoinGroupRequestProtocol::default().with_name(name.0.clone());
            let protocols = vec![protocol.with_metadata(Bytes::from_static(b"topics"))];
            let body = JoinGroupRequest::default()
                .with_group_id(name.0.clone().into())
                .with_session_timeout_ms(6000)
                .with_member_id(name.0.clone())
                .with_protocol_type(name.0);
            request(key, version, &body.with_protocols(protocols))
        }
        ApiKey::SyncGroup => {
            let assigned = SyncGroupRequestAssignment::default().with_member_id(name.0.clone());
            let body = SyncGroupRequest::default().with_group_id(name.0.into());
            request(key, version, &body.with_assignments(vec![assigned]))
        }
        ApiKey::Heartbeat => {
            request(key, version, &HeartbeatRequest::default().with_group_id(name.0.into()))
        }
        ApiKey::LeaveGroup => {
            request(key, version, &LeaveGroupRequest::default().with_group_id(name.0.into()))
        }
        ApiKey::OffsetCommit => {
            let partition = |(index, text): (_, &str)| {
                let partition = OffsetCommitRequestPartition::default().with_partition_index(index);
                partition.with_committed_metadata(Some(text.to_owned().into()))
            };
            let long = "x".repeat(5000);
            let partitions = [(0, ""), (1, &long), (9, "")].map(partition).to_vec();
            let topic = OffsetCommitRequestTopic::default().with_name(name.clone());
            let body = OffsetCommitRequest::default().with_group_id(name.0.into());
            request(key, version, &body.with_topics(vec![topic.with_partitions(partitions)]))
        }
        ApiKey::OffsetFetch => {
            let topic = OffsetFetchRequestTopic::default().with_name(name.clone());
            let body = OffsetFetchRequest::default().with_group_id(name.0.into());
            let topics = vec![topic.with_partition_indexes(vec![0, 9])];
            request(key, version, &body.with_topics(Some(topics)))
        }
        ApiKey::InitProducerId => {
            request(key, version, &InitProducerIdRequest::default().with_transactional_id(None))
        }
        ApiKey::ConsumerGroupHeartbeat => {
            request(key, version, &ConsumerGroupHeartbeatRequest::default())
        }
        other => panic!("no example of {other:?}"),
    }
}

fn fetch(name: TopicName, version: i16) -> FetchRequest {
    let partition = |(index, offset)| {
        let partition = FetchPartition::default().with_partition(index).with_fetch_offset(offset);
        partition.with_partition_max_bytes(1 << 20)
    };
    let partitions = [(0, 0), (0, 1 << 40), (9, 0)].map(partition);
    let topic = FetchTopic::default().with_topic(name.clone());
    let body = FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic.with_partitions(partitions.to_vec())]);
    if version < 7 {
        return body;
    }
    let forgotten = ForgottenTopic::default().with_topic(name).with_partitions(vec![1, 2]);
    body.with_forgotten_topics_data(vec![forgotten])
}

fn creatable(name: &str, partitions: i32, replicas: i16) -> CreatableTopic {
    let config = CreatableTopicConfig::default().with_name(topic_name("min.insync.replicas").0);
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replicas)
        .with_configs(vec![config.with_value(Some(topic_name("1").0))])
}
