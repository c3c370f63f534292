//! Requests as the tests make them; and one of each API at each version it serves, with parts that
//! succeed and parts that fail.

use bytes::Bytes;
use kafka_protocol::messages::{
    create_topics_request::*, delete_records_request::*, fetch_request::*, join_group_request::*,
    list_offsets_request::*, metadata_request::*, offset_commit_request::*,
    offset_fetch_request::*, produce_request::*, sync_group_request::*, *,
};
use kafka_protocol::protocol::StrBytes;

use super::{record_batch, request};
use crate::schemas::APIS;

pub(crate) fn each_version() -> impl Iterator<Item = (ApiKey, i16)> {
    APIS.iter().flat_map(|api| versions(api.key).map(|version| (api.key, version)))
}

pub(crate) fn versions(key: ApiKey) -> impl Iterator<Item = i16> {
    let api = APIS.iter().find(|api| api.key == key).expect("it is served");
    api.served_from..=api.advertised.1
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A produce to topic `t`: (partition, records).
pub(crate) fn produce(acks: i16, timeout_ms: i32, data: &[(i32, Bytes)]) -> ProduceRequest {
    let partition = |(index, records): &(i32, Bytes)| {
        PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
    };
    let partitions = data.iter().map(partition).collect();
    let topic = TopicProduceData::default().with_name(text("t").into());
    let request = ProduceRequest::default().with_acks(acks).with_timeout_ms(timeout_ms);
    request.with_topic_data(vec![topic.with_partition_data(partitions)])
}

/// Of topic `t`, for one second: (partition, offset).
pub(crate) fn fetch(replica: i32, bytes_min: usize, offsets: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, offset): &(i32, i64)| {
        let partition = FetchPartition::default().with_partition(*index).with_fetch_offset(*offset);
        partition.with_partition_max_bytes(1 << 20).with_log_start_offset(0)
    };
    let topic = FetchTopic::default().with_topic(text("t").into());
    let topic = topic.with_partitions(offsets.iter().map(partition).collect());
    FetchRequest::default()
        .with_replica_id(replica.into())
        .with_max_wait_ms(1000)
        .with_min_bytes(bytes_min as i32)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
}

/// Of topic `t`: (partition, timestamp).
pub(crate) fn list_offsets(asked: &[(i32, i64)]) -> ListOffsetsRequest {
    let partition = |(index, timestamp): &(i32, i64)| {
        ListOffsetsPartition::default().with_partition_index(*index).with_timestamp(*timestamp)
    };
    let topic = ListOffsetsTopic::default().with_name(text("t").into());
    let topic = topic.with_partitions(asked.iter().map(partition).collect());
    ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic])
}

pub(crate) fn metadata(topics: &[&str]) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic::default().with_name(Some(text(name).into()));
    MetadataRequest::default().with_topics(Some(topics.iter().map(topic).collect()))
}

/// Name and value.
pub(crate) type Config<'a> = (&'a str, Option<&'a str>);

pub(crate) fn creatable(name: &str, parts: i32, replicas: i16, of: &[Config]) -> CreatableTopic {
    let config = |(name, value): &Config| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(value.map(text))
    };
    CreatableTopic::default()
        .with_name(text(name).into())
        .with_num_partitions(parts)
        .with_replication_factor(replicas)
        .with_configs(of.iter().map(config).collect())
}

/// In topic `t`, with a timeout of one second: (partition, offset).
pub(crate) fn delete_records(offsets: &[(i32, i64)]) -> DeleteRecordsRequest {
    let partition = |(index, offset): &(i32, i64)| {
        DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset)
    };
    let topic = DeleteRecordsTopic::default().with_name(text("t").into());
    let topic = topic.with_partitions(offsets.iter().map(partition).collect());
    DeleteRecordsRequest::default().with_timeout_ms(1000).with_topics(vec![topic])
}

pub(crate) type Part<'a> = (&'a str, &'static str);

/// Of group `g`, as are those that follow.
pub(crate) fn join(member: &str, protocols: &[&str]) -> JoinGroupRequest {
    let protocol = |name: &&str| {
        let protocol = JoinGroupRequestProtocol::default().with_name(text(name));
        protocol.with_metadata(Bytes::from_static(b"topics"))
    };
    JoinGroupRequest::default()
        .with_group_id(text("g").into())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member))
        .with_protocol_type("consumer".into())
        .with_protocols(protocols.iter().map(protocol).collect())
}

/// Assigns a part to each of these members.
pub(crate) fn sync(member: &str, generation: i32, parts: &[Part]) -> SyncGroupRequest {
    let part = |(member, part): &Part| {
        let assigned = SyncGroupRequestAssignment::default().with_member_id(text(member));
        assigned.with_assignment((*part).into())
    };
    SyncGroupRequest::default()
        .with_group_id(text("g").into())
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_assignments(parts.iter().map(part).collect())
}

pub(crate) fn heartbeat(member: &str, generation: i32) -> HeartbeatRequest {
    let request = HeartbeatRequest::default().with_group_id(text("g").into());
    request.with_generation_id(generation).with_member_id(text(member))
}

pub(crate) fn leave(member: &str) -> LeaveGroupRequest {
    LeaveGroupRequest::default().with_group_id(text("g").into()).with_member_id(text(member))
}

/// In topic `t`: partition, offset, metadata.
pub(crate) type Offset<'a> = (i32, i64, &'a str);

pub(crate) fn commit(member: &str, generation: i32, offsets: &[Offset]) -> OffsetCommitRequest {
    let partition = |(index, offset, metadata): &Offset| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(*index)
            .with_committed_offset(*offset)
            .with_committed_metadata(Some(text(metadata)))
    };
    let topic = OffsetCommitRequestTopic::default().with_name(text("t").into());
    OffsetCommitRequest::default()
        .with_group_id(text("g").into())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_topics(vec![topic.with_partitions(offsets.iter().map(partition).collect())])
}

/// Of topic `t`.
pub(crate) fn fetch_offsets(partitions: &[i32]) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopic::default().with_name(text("t").into());
    let topics = vec![topic.with_partition_indexes(partitions.to_vec())];
    OffsetFetchRequest::default().with_group_id(text("g").into()).with_topics(Some(topics))
}

/// For a broker that has topic `t`; with `acks=1` and errors it is answered at once.
pub(crate) fn example(key: ApiKey, version: i16) -> Bytes {
    match key {
        ApiKey::Produce => {
            let data = [(0, record_batch(3)), (1, Bytes::new()), (9, record_batch(1))];
            request(version, &produce(1, 0, &data))
        }
        ApiKey::Fetch => {
            let mut body = fetch(-1, 1, &[(0, 0), (0, 1 << 40), (9, 0)]);
            if version >= 7 {
                let forgotten = ForgottenTopic::default().with_topic(text("t").into());
                body.forgotten_topics_data = vec![forgotten.with_partitions(vec![1, 2])];
            }
            request(version, &body)
        }
        ApiKey::ListOffsets => {
            request(version, &list_offsets(&[(0, -1), (0, -2), (0, 0), (0, -9), (9, -1)]))
        }
        ApiKey::Metadata => request(version, &metadata(&["t", "new", "not legal"])),
        ApiKey::CreateTopics => {
            let made = format!("made-{version}");
            let with = |name, partitions, replicas| {
                creatable(name, partitions, replicas, &[("min.insync.replicas", Some("1"))])
            };
            let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()]);
            let topics = vec![
                with(&made, 2, 1),
                with("t", 1, 1),
                with("not legal", 1, 1),
                with("none", 0, 1),
                with("many", 1, 9),
                with("by-hand", -1, -1).with_assignments(vec![assignment]),
            ];
            request(version, &CreateTopicsRequest::default().with_topics(topics))
        }
        ApiKey::DeleteRecords => {
            request(version, &delete_records(&[(0, -1), (0, 1 << 40), (9, 0)]))
        }
        ApiKey::FindCoordinator => {
            request(version, &FindCoordinatorRequest::default().with_key(text("t")))
        }
        ApiKey::ApiVersions => request(version, &ApiVersionsRequest::default()),
        ApiKey::JoinGroup => request(version, &join("member", &["range"])),
        ApiKey::SyncGroup => request(version, &sync("member", 0, &[("member", "part")])),
        ApiKey::Heartbeat => request(version, &heartbeat("member", 0)),
        ApiKey::LeaveGroup => request(version, &leave("member")),
        ApiKey::OffsetCommit => {
            let long = "x".repeat(5000);
            request(version, &commit("", -1, &[(0, 0, ""), (1, 0, &long), (9, 0, "")]))
        }
        ApiKey::OffsetFetch => request(version, &fetch_offsets(&[0, 9])),
        ApiKey::InitProducerId => {
            request(version, &InitProducerIdRequest::default().with_transactional_id(None))
        }
        ApiKey::ConsumerGroupHeartbeat => {
            request(version, &ConsumerGroupHeartbeatRequest::default())
        }
        other => panic!("no example of {other:?}"),
    }
}
