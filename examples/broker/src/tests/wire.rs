//! What goes over the wire: each API at each version it serves, and whatever is not a request.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsRequest, ApiVersionsResponse, FetchRequest, FetchResponse,
        FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
        ProduceResponse, ResponseHeader,
        fetch_request::{FetchPartition, FetchTopic},
        metadata_request::MetadataRequestTopic,
    },
    protocol::{Decodable, HeaderVersion},
};
use timer_core::ManualTimer;

use super::{CORRELATION_ID, args, produce, record_batch, request, topic_name};
use crate::{
    api::{self, APIS},
    replica_manager::ReplicaManager,
};

fn manager() -> ReplicaManager {
    let manager = ReplicaManager::new(&args(&[]), &ManualTimer::new()).unwrap();
    manager.topics.get_or_create("t").unwrap();
    manager
}

fn answer(manager: &ReplicaManager, frame: impl Into<Bytes>) -> anyhow::Result<Option<BytesMut>> {
    api::answer(manager, SocketAddr::from((Ipv4Addr::LOCALHOST, 9092)), frame.into())
}

fn decoded<T: Decodable + HeaderVersion>(version: i16, frame: BytesMut) -> T {
    let mut frame = frame.freeze();
    assert_eq!(frame.get_i32() as usize, frame.len(), "the length in front");
    let header = ResponseHeader::decode(&mut frame, T::header_version(version)).unwrap();
    assert_eq!(header.correlation_id, CORRELATION_ID);
    let response = T::decode(&mut frame, version).unwrap();
    assert!(frame.is_empty(), "{} bytes follow", frame.len());
    response
}

fn each_version() -> impl Iterator<Item = (ApiKey, i16)> {
    let versions = |api: &'static api::Api| api.served_from..=api.advertised.1;
    APIS.iter().flat_map(move |api| versions(api).map(|version| (api.key, version)))
}

fn example(key: ApiKey, version: i16) -> Bytes {
    let name = topic_name("t");
    match key {
        ApiKey::Produce => {
            let data = [(0, record_batch(3)), (1, Bytes::new()), (9, record_batch(1))];
            request(key, version, &produce(1, 0, &data))
        }
        ApiKey::Fetch => {
            let partitions = [0, 1].map(|index| FetchPartition::default().with_partition(index));
            let topic = FetchTopic::default().with_topic(name).with_partitions(partitions.to_vec());
            request(key, version, &FetchRequest::default().with_topics(vec![topic]))
        }
        ApiKey::Metadata => {
            let topics = ["t", "new", "not legal"].map(|name| Some(topic_name(name)));
            let topics = topics.map(|name| MetadataRequestTopic::default().with_name(name));
            request(key, version, &MetadataRequest::default().with_topics(Some(topics.to_vec())))
        }
        ApiKey::FindCoordinator => {
            request(key, version, &FindCoordinatorRequest::default().with_key(name.0))
        }
        ApiKey::ApiVersions => {
            let name = if version >= 3 { name.0 } else { Default::default() };
            let body = ApiVersionsRequest::default().with_client_software_name(name.clone());
            request(key, version, &body.with_client_software_version(name))
        }
        other => panic!("no example of {other:?}"),
    }
}

#[test]
fn every_api_answers_at_every_version() {
    let manager = manager();
    for (key, version) in each_version() {
        let frame = answer(&manager, example(key, version)).unwrap().unwrap();
        match key {
            ApiKey::Produce => {
                let response: ProduceResponse = decoded(version, frame);
                let statuses = response.responses[0].partition_responses.iter();
                assert_eq!(
                    statuses.map(|status| status.error_code).collect::<Vec<_>>(),
                    [0, 87, 3]
                );
            }
            ApiKey::Fetch => {
                let response: FetchResponse = decoded(version, frame);
                let mut partitions = response.responses[0].partitions.iter();
                assert!(partitions.len() == 2 && partitions.all(|status| status.error_code == 35));
            }
            ApiKey::Metadata => {
                let response: MetadataResponse = decoded(version, frame);
                let broker = &response.brokers[0];
                assert_eq!((broker.host.as_str(), broker.port), ("127.0.0.1", 9092));
                let topics = response.topics.iter();
                assert_eq!(topics.map(|topic| topic.error_code).collect::<Vec<_>>(), [0, 0, 17]);
                let partitions = &response.topics[1].partitions;
                assert!(partitions.iter().all(|partition| partition.isr_nodes.len() == 3));
            }
            ApiKey::FindCoordinator => {
                assert_eq!(decoded::<FindCoordinatorResponse>(version, frame).error_code, 15);
            }
            ApiKey::ApiVersions => {
                let apis = decoded::<ApiVersionsResponse>(version, frame).api_keys;
                let versions =
                    apis.iter().map(|api| (api.api_key, api.min_version, api.max_version));
                let expected = [(0, 0, 12), (1, 4, 12), (3, 0, 12), (10, 0, 3), (18, 0, 3)];
                assert_eq!(versions.collect::<Vec<_>>(), expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_empty_list_asks_for_all_topics_in_version_0_only() {
    let manager = manager();
    for (version, topics, count) in [(0, Some(vec![]), 1), (1, Some(vec![]), 0), (12, None, 1)] {
        let body = MetadataRequest::default().with_topics(topics);
        let frame = answer(&manager, request(ApiKey::Metadata, version, &body)).unwrap().unwrap();
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
    if ApiKey::try_from(key).is_ok_and(|key| key.request_header_version(version) >= 2) {
        frame.put_u8(0); // no tagged fields
    }
    frame.put_slice(body);
    frame
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0_and_others_close() {
    let manager = manager();
    for version in [4, 99, i16::MAX, -1] {
        let response = answer(&manager, raw(18, version, &[])).unwrap().unwrap();
        let response: ApiVersionsResponse = decoded(0, response);
        assert_eq!((response.error_code, response.api_keys.len()), (35, APIS.len()));
    }
    for (key, version) in [(0, 2), (0, 13), (3, 13), (1, 3), (-1, 0), (32000, 0), (11, 5)] {
        let reason = answer(&manager, raw(key, version, &[])).unwrap_err().to_string();
        assert!(reason.ends_with("is not served"), "{reason}");
    }
}

#[test]
fn a_giant_count_is_refused_before_anything_is_allocated() {
    let manager = manager();
    let (classic, compact) = (&[0x7f, 0xff, 0xff, 0xff], &[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let acks_and_timeout = [0, 1, 0, 0, 0, 0];
    let frames = [
        raw(3, 4, classic), // topics
        raw(3, 9, compact),
        raw(0, 3, &[&[0xff, 0xff], &acks_and_timeout[..], classic].concat()),
        raw(0, 9, &[&[0], &acks_and_timeout[..], compact].concat()),
        raw(0, 9, &[&[0], &acks_and_timeout[..], &[2, 2, b't'], compact].concat()), // partitions
        raw(0, 9, &[&[0], &acks_and_timeout[..], &[1], compact].concat()),          // tagged fields
        raw(1, 4, &[&[0; 17][..], classic].concat()),
    ];
    for frame in frames {
        let reason = format!("{:#}", answer(&manager, frame).unwrap_err());
        assert!(reason.contains("elements announced"), "{reason}");
    }
    let reason = format!("{:#}", answer(&manager, raw(3, 4, &[0xff, 0, 0, 0])).unwrap_err());
    assert!(reason.contains("a length of -16777216"), "{reason}");
}

#[test]
fn garbage_is_answered_or_refused_and_a_cut_request_is_refused() {
    let manager = manager();
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()
    };
    for (key, version) in each_version() {
        let whole = example(key, version);
        for end in 8..whole.len() {
            let cut = answer(&manager, whole.slice(..end));
            assert!(cut.is_err(), "{key:?} {version} cut at {end}");
        }
        for _ in 0..200 {
            let mut changed = whole.to_vec();
            let [high, low, value, ..] = random();
            let at = usize::from(u16::from_be_bytes([high, low])) % (changed.len() - 8);
            changed[8 + at] = value;
            let _ = answer(&manager, changed);
            let noise: Vec<u8> = (0..8).flat_map(|_| random()).collect();
            let _ = answer(&manager, raw(key as i16, version, &noise));
        }
    }
}
