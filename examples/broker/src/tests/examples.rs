//! The requests that tests make, and a request of each API at each served version, with parts that
//! succeed and parts that fail.

use bytes::Bytes;
use kafka_protocol::messages::{
    create_topics_request::*, delete_records_request::*, fetch_request::*, list_offsets_request::*,
    metadata_request::*, produce_request::*, *,
};
use kafka_protocol::protocol::StrBytes;

use super::{record_batch, request};
use crate::schemas::APIS;

pub(crate) fn each_version() -> impl Iterator<Item = (ApiKey, i16)> {
    APIS.iter()
        .flat_map(|api| versions(api.key).map(|version| (api.key, version)))
}

pub(crate) fn versions(key: ApiKey) -> impl Iterator<Item = i16> {
    let api = APIS
        .iter()
        .find(|api| api.key == key)
        .expect("it is served");
    api.served_from..=*api.advertised.end()
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Makes a produce to topic `t`, by (partition, records).
pub(crate) fn produce(acks: i16, timeout_ms: i32, data: &[(i32, Bytes)]) -> ProduceRequest {
    let partition = |(index, records): &(i32, Bytes)| {
        PartitionProduceData::default()
            .with_index(*index)
            .with_records(Some(records.clone()))
    };
    let partitions = data.iter().map(partition).collect();
    let topic = TopicProduceData::default().with_name(text("t").into());
    let request = ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(timeout_ms);
    request.with_topic_data(vec![topic.with_partition_data(partitions)])
}

/// Makes a fetch of topic `t`, for one second, by (partition, offset).
pub(crate) fn fetch(replica: i32, bytes_min: usize, offsets: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, offset): &(i32, i64)| {
        let partition = FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset);
        partition
            .with_partition_max_bytes(1 << 20)
            .with_log_start_offset(0)
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

/// Makes a ListOffsets request for topic `t`, by (partition, timestamp).
pub(crate) fn list_offsets(asked: &[(i32, i64)]) -> ListOffsetsRequest {
    let partition = |(index, timestamp): &(i32, i64)| {
        ListOffsetsPartition::default()
            .with_partition_index(*index)
            .with_timestamp(*timestamp)
    };
    let topic = ListOffsetsTopic::default().with_name(text("t").into());
    let topic = topic.with_partitions(asked.iter().map(partition).collect());
    ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic])
}

pub(crate) fn metadata(topics: &[&str]) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic::default().with_name(Some(text(name).into()));
    MetadataRequest::default().with_topics(Some(topics.iter().map(topic).collect()))
}

/// Makes a deletion in topic `t`, with a timeout of one second, by (partition, offset).
pub(crate) fn delete_records(offsets: &[(i32, i64)]) -> DeleteRecordsRequest {
    let partition = |(index, offset): &(i32, i64)| {
        DeleteRecordsPartition::default()
            .with_partition_index(*index)
            .with_offset(*offset)
    };
    let topic = DeleteRecordsTopic::default().with_name(text("t").into());
    let topic = topic.with_partitions(offsets.iter().map(partition).collect());
    DeleteRecordsRequest::default()
        .with_timeout_ms(1000)
        .with_topics(vec![topic])
}

/// Makes a request for a broker that has topic `t`. The request is answered at once: with `acks=1`,
/// or with errors.
pub(crate) fn example(key: ApiKey, version: i16) -> Bytes {
    match key {
        ApiKey::Produce => {
            let data = [
                (0, record_batch(3)),
                (1, Bytes::new()),
                (9, record_batch(1)),
            ];
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
            request(version, &list_offsets(&[(0, -1), (0, -2), (0, 0), (9, -1)]))
        }
        ApiKey::Metadata => request(version, &metadata(&["t", "new", "not legal"])),
        ApiKey::CreateTopics => {
            let topic = |name: &str, partitions, replicas| {
                let topic = CreatableTopic::default().with_name(text(name).into());
                topic
                    .with_num_partitions(partitions)
                    .with_replication_factor(replicas)
            };
            let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()]);
            let config = CreatableTopicConfig::default().with_name(text("retention.ms"));
            let topics = vec![
                topic("made", 2, 3),
                topic("t", 1, 3),
                topic("not legal", 1, 3),
                topic("none", 0, 3),
                topic("many", 1, 9),
                topic("by-hand", -1, -1).with_assignments(vec![assignment]),
                topic("configured", -1, -1).with_configs(vec![config]),
            ];
            request(version, &CreateTopicsRequest::default().with_topics(topics))
        }
        ApiKey::DeleteRecords => {
            request(version, &delete_records(&[(0, -1), (0, 1 << 40), (9, 0)]))
        }
        ApiKey::FindCoordinator => request(
            version,
            &FindCoordinatorRequest::default().with_key(text("t")),
        ),
        ApiKey::ApiVersions => request(version, &ApiVersionsRequest::default()),
        ApiKey::InitProducerId => request(
            version,
            &InitProducerIdRequest::default().with_transactional_id(None),
        ),
        other => panic!("no example of {other:?}"),
    }
}
