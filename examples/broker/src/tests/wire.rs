//! What goes over the wire: each API at each version it serves, and whatever is not a request.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, ConsumerGroupHeartbeatResponse, CreateTopicsResponse,
    DeleteRecordsResponse, FetchResponse, FindCoordinatorResponse, HeartbeatResponse,
    InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse, ListOffsetsResponse,
    MetadataRequest, MetadataResponse, OffsetCommitResponse, OffsetFetchResponse, ProduceResponse,
    SyncGroupResponse,
};

use super::{
    CORRELATION_ID, Fixture, decoded,
    examples::{each_version, example},
    request,
};
use crate::{partition::UpTo, schemas::APIS};

/// The error codes of its answer, which is decoded again.
fn error_codes(key: ApiKey, version: i16, frame: BytesMut) -> Vec<i16> {
    match key {
        ApiKey::Produce => {
            let topics = decoded::<ProduceResponse>(version, frame).responses;
            topics[0].partition_responses.iter().map(|status| status.error_code).collect()
        }
        ApiKey::Fetch => {
            let topics = decoded::<FetchResponse>(version, frame).responses;
            topics[0].partitions.iter().map(|data| data.error_code).collect()
        }
        ApiKey::ListOffsets => {
            let topics = decoded::<ListOffsetsResponse>(version, frame).topics;
            topics[0].partitions.iter().map(|found| found.error_code).collect()
        }
        ApiKey::Metadata => {
            let response: MetadataResponse = decoded(version, frame);
            let broker = &response.brokers[0];
            assert_eq!((broker.host.as_str(), broker.port), ("127.0.0.1", 9092));
            let partitions = &response.topics[1].partitions;
            assert!(partitions.iter().all(|partition| partition.isr_nodes.len() == 3));
            response.topics.iter().map(|topic| topic.error_code).collect()
        }
        ApiKey::CreateTopics => {
            let topics = decoded::<CreateTopicsResponse>(version, frame).topics;
            topics.iter().map(|topic| topic.error_code).collect()
        }
        ApiKey::DeleteRecords => {
            let topics = decoded::<DeleteRecordsResponse>(version, frame).topics;
            topics[0].partitions.iter().map(|result| result.error_code).collect()
        }
        ApiKey::FindCoordinator => {
            let response: FindCoordinatorResponse = decoded(version, frame);
            assert_eq!((response.host.as_str(), response.port), ("127.0.0.1", 9092));
            vec![response.error_code]
        }
        ApiKey::JoinGroup => vec![decoded::<JoinGroupResponse>(version, frame).error_code],
        ApiKey::SyncGroup => vec![decoded::<SyncGroupResponse>(version, frame).error_code],
        ApiKey::Heartbeat => vec![decoded::<HeartbeatResponse>(version, frame).error_code],
        ApiKey::LeaveGroup => vec![decoded::<LeaveGroupResponse>(version, frame).error_code],
        ApiKey::OffsetCommit => {
            let topics = decoded::<OffsetCommitResponse>(version, frame).topics;
            topics[0].partitions.iter().map(|committed| committed.error_code).collect()
        }
        ApiKey::OffsetFetch => {
            let topics = decoded::<OffsetFetchResponse>(version, frame).topics;
            assert!(topics[0].partitions.iter().all(|found| found.committed_offset == -1));
            topics[0].partitions.iter().map(|found| found.error_code).collect()
        }
        ApiKey::InitProducerId => {
            let response: InitProducerIdResponse = decoded(version, frame);
            assert!(response.producer_id.0 >= 0 && response.producer_epoch == 0);
            vec![response.error_code]
        }
        ApiKey::ApiVersions => {
            let response: ApiVersionsResponse = decoded(version, frame);
            let versions = |api: &crate::schemas::Api| (api.key as i16, api.advertised);
            let told = response.api_keys.iter();
            let told = told.map(|api| (api.api_key, (api.min_version, api.max_version)));
            assert_eq!(told.collect::<Vec<_>>(), APIS.iter().map(versions).collect::<Vec<_>>());
            vec![response.error_code]
        }
        ApiKey::ConsumerGroupHeartbeat => {
            vec![decoded::<ConsumerGroupHeartbeatResponse>(version, frame).error_code]
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_api_answers_at_every_version_errors_too() {
    for (key, version) in each_version() {
        let broker = Fixture::new(&[]);
        let frame = broker.answer(example(key, version)).unwrap().unwrap();
        let expected: &[i16] = match key {
            ApiKey::Produce => &[0, 87, 3],
            ApiKey::Fetch => &[0, 1, 3],
            ApiKey::ListOffsets => &[0, 0, 0, 42, 3],
            ApiKey::Metadata => &[0, 0, 17],
            ApiKey::CreateTopics => &[0, 36, 17, 37, 38, 39],
            ApiKey::DeleteRecords => &[0, 1, 3],
            ApiKey::JoinGroup | ApiKey::SyncGroup | ApiKey::Heartbeat | ApiKey::LeaveGroup => &[25],
            ApiKey::OffsetCommit => &[0, 12, 3],
            ApiKey::OffsetFetch => &[0, 0],
            ApiKey::ConsumerGroupHeartbeat => &[35], // there are classic groups only
            _ => &[0],
        };
        assert_eq!(error_codes(key, version, frame), expected, "{key:?} {version}");
    }
}

#[test]
fn a_fetch_has_the_records_at_every_version() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    for (key, version) in each_version().filter(|(key, _)| *key == ApiKey::Fetch) {
        let frame = broker.answer(example(key, version)).unwrap().unwrap();
        let data = &decoded::<FetchResponse>(version, frame).responses[0].partitions[0];
        let stored = &broker.partition(0).read(0, UpTo::LogEnd, 98, false).unwrap()[0];
        assert_eq!((data.high_watermark, data.last_stable_offset), (1, 1));
        assert_eq!(data.records.as_ref(), Some(&stored.bytes), "version {version}");
    }
}

#[test]
fn an_empty_list_asks_for_all_topics_in_version_0_only() {
    let broker = Fixture::new(&[]);
    for (version, topics, count) in [(0, Some(vec![]), 1), (1, Some(vec![]), 0), (6, None, 1)] {
        let body = MetadataRequest::default().with_topics(topics);
        let frame = broker.answer(request(ApiKey::Metadata, version, &body)).unwrap().unwrap();
        let response: MetadataResponse = decoded(version, frame);
        assert_eq!(response.topics.len(), count, "version {version}");
    }
}

/// A request without client id whose body is `body`, whatever that is.
fn raw(key: i16, version: i16, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(CORRELATION_ID);
    frame.put_i16(-1);
    frame.put_slice(body);
    frame
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0_and_others_close() {
    let broker = Fixture::new(&[]);
    for version in [3, 99, i16::MAX, -1] {
        let response = broker.answer(raw(18, version, &[])).unwrap().unwrap();
        let response: ApiVersionsResponse = decoded(0, response);
        assert_eq!((response.error_code, response.api_keys.len()), (35, APIS.len()));
    }
    for (key, version) in [(0, 2), (0, 9), (3, 7), (1, 3), (-1, 0), (32000, 0), (11, 4)] {
        let reason = broker.answer(raw(key, version, &[])).unwrap_err().to_string();
        assert!(reason.ends_with("is not served"), "{reason}");
    }
}

#[test]
fn a_giant_count_is_refused_before_anything_is_allocated() {
    let broker = Fixture::new(&[]);
    let count = &[0x7f, 0xff, 0xff, 0xff];
    let acks_and_timeout = [0, 1, 0, 0, 0, 0];
    let one_topic = [0, 0, 0, 1, 0, 1, b't'];
    let frames = [
        raw(3, 4, count), // topics
        raw(0, 3, &[&[0xff, 0xff], &acks_and_timeout[..], count].concat()),
        // Partitions.
        raw(0, 3, &[&[0xff, 0xff], &acks_and_timeout[..], &one_topic, count].concat()),
        raw(1, 4, &[&[0; 17][..], count].concat()),
    ];
    for frame in frames {
        let reason = format!("{:#}", broker.answer(frame).unwrap_err());
        assert!(reason.contains("elements announced"), "{reason}");
    }
    let reason = format!("{:#}", broker.answer(raw(3, 4, &[0xff, 0, 0, 0])).unwrap_err());
    assert!(reason.contains("a length of -16777216"), "{reason}");
}

#[test]
fn a_cut_request_is_refused() {
    let broker = Fixture::new(&[]);
    let unread = |key| key == ApiKey::ConsumerGroupHeartbeat; // refused, whatever it says
    for (key, version) in each_version().filter(|(key, _)| !unread(*key)) {
        let whole = example(key, version);
        for end in 8..whole.len() {
            let cut = broker.answer(whole.slice(..end));
            assert!(cut.is_err(), "{key:?} {version} cut at {end}");
        }
    }
}
