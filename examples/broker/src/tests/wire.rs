//! Tests of the bytes on the wire: each API at each served version, and malformed frames.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Decodable;

use super::{
    CORRELATION_ID, Fixture, decoded,
    examples::{each_version, example, metadata, versions},
};
use crate::{partition::UpTo, schemas::APIS};

/// Decodes an answer, and returns it as text.
fn shown(key: ApiKey, version: i16, frame: BytesMut) -> String {
    let mut frame = frame.freeze().split_off(4);
    ResponseHeader::decode(&mut frame, key.response_header_version(version)).unwrap();
    let response = ResponseKind::decode(key, &mut frame, version).unwrap();
    assert!(frame.is_empty(), "{} bytes follow", frame.len());
    format!("{response:?}")
}

/// Returns the values of a field, wherever an answer has it.
fn values(shown: &str, field: &str) -> Vec<i16> {
    let field = format!(" {field}: ");
    let found = shown.split(&field).skip(1);
    found
        .map(|rest| rest.split([',', ' ']).next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn every_api_answers_at_every_version_errors_too() {
    for (key, version) in each_version() {
        let broker = Fixture::new(&[]);
        let answer = shown(
            key,
            version,
            broker.answer(example(key, version)).unwrap().unwrap(),
        );
        // The example's error codes, in the order of the answer.
        let error_codes: &[i16] = match key {
            ApiKey::Produce => &[0, 87, 3],
            ApiKey::Fetch => &[0, 0, 1, 3], // the fetch's own code first
            ApiKey::ListOffsets => &[0, 0, 43, 3],
            ApiKey::Metadata => &[0, 0, 0, 0, 0, 0, 0, 0, 17, 0], // two have three partitions
            ApiKey::CreateTopics => &[0, 36, 17, 37, 38, 39, 40],
            ApiKey::DeleteRecords => &[0, 1, 3],
            ApiKey::FindCoordinator => &[15], // there is no coordinator
            _ => &[0],
        };
        assert_eq!(
            values(&answer, "error_code"),
            error_codes,
            "{key:?} {version}"
        );
        let address = ("host: \"127.0.0.1\", port: 9092", 1); // that the client connected to
        // Other fields of the answers that have to be right.
        let also: &[_] = match key {
            ApiKey::Metadata => &[address, ("isr_nodes: [1, 2, 3]", 6)],
            ApiKey::InitProducerId => &[("producer_epoch: 0", 1)],
            _ => &[],
        };
        for (also, times) in also {
            assert_eq!(
                answer.matches(also).count(),
                *times,
                "{key:?} {version}: {answer}"
            );
        }
    }
}

#[test]
fn a_fetch_has_the_records_at_every_version() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    for version in versions(ApiKey::Fetch) {
        // The records in the answer are the bytes that the leader stores.
        let frame = broker
            .answer(example(ApiKey::Fetch, version))
            .unwrap()
            .unwrap();
        let data = &decoded::<FetchResponse>(version, frame).responses[0].partitions[0];
        let stored = &broker
            .partition(0)
            .read(0, UpTo::LogEnd, 98, false)
            .unwrap()[0];
        assert_eq!((data.high_watermark, data.last_stable_offset), (1, 1));
        assert_eq!(
            data.records.as_ref(),
            Some(&stored.bytes),
            "version {version}"
        );
    }
}

/// Makes a request without client id, with any `body`.
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
fn unknown_version_is_answered_for_api_versions_only() {
    let broker = Fixture::new(&[]);
    for version in [3, 99, i16::MAX, -1] {
        let response = broker.answer(raw(18, version, &[])).unwrap().unwrap();
        let response: ApiVersionsResponse = decoded(0, response);
        // The answer lists the versions to ask with.
        let listed = response.api_keys.iter();
        let listed = listed.map(|api| (api.api_key, api.min_version..=api.max_version));
        assert!(
            listed.eq(APIS
                .iter()
                .map(|api| (api.key as i16, api.advertised.clone())))
        );
        assert_eq!(response.error_code, 35);
    }
    for (key, version) in [(0, 2), (0, 9), (3, 7), (1, 3), (-1, 0), (32000, 0), (11, 4)] {
        let reason = broker
            .answer(raw(key, version, &[]))
            .unwrap_err()
            .to_string();
        assert!(reason.ends_with("is not served"), "{reason}");
    }
}

#[test]
fn giant_count_is_refused_before_allocation() {
    let broker = Fixture::new(&[]);
    let count = &[0x7f, 0xff, 0xff, 0xff];
    let one_topic = [0, 0, 0, 1, 0, 1, b't'];
    // The count is of topics, then of partitions of a topic.
    for frame in [
        raw(3, 4, count),
        raw(1, 4, &[&[0; 17][..], &one_topic, count].concat()),
    ] {
        let reason = format!("{:#}", broker.answer(frame).unwrap_err());
        assert!(reason.contains("elements announced"), "{reason}");
    }
    let reason = format!(
        "{:#}",
        broker.answer(raw(3, 4, &[0xff, 0, 0, 0])).unwrap_err()
    );
    assert!(reason.contains("a length of -16777216"), "{reason}");
}

/// A name of three bytes may ask for the description of a thousand partitions.
#[test]
fn a_topic_asked_for_many_times_is_described_once() {
    let broker = Fixture::new(&["--partitions", "1000"]);
    let names = [&["t"; 60_000][..], &["not legal"; 5_000]].concat();
    let response = broker.ask(&metadata(&names)).answer().unwrap();
    let partitions = response.topics.iter().map(|topic| topic.partitions.len());
    assert_eq!(partitions.collect::<Vec<_>>(), [1000, 0]);
}

#[test]
fn a_cut_request_is_refused() {
    let broker = Fixture::new(&[]);
    for (key, version) in each_version() {
        let whole = example(key, version);
        for end in 8..whole.len() {
            let cut = broker.answer(whole.slice(..end));
            assert!(cut.is_err(), "{key:?} {version} cut at {end}");
        }
    }
}
