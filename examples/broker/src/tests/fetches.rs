//! Tests of fetches with a long poll, on a manual timer.

use std::time::Duration;

use kafka_protocol::{
    ResponseError, messages::FetchResponse, messages::fetch_response::PartitionData,
};

use super::{Asked, Fixture, examples::*, record_batch};
use crate::fetch::LONG_POLL_MAX;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const BATCH_BYTES: usize = 98;
const CONSUMER: i32 = -1;

fn consume(broker: &Fixture, bytes_min: usize, offsets: &[(i32, i64)]) -> Asked<FetchResponse> {
    broker.ask(&fetch(CONSUMER, bytes_min, offsets))
}

fn partitions(fetch: &Asked<FetchResponse>) -> Option<Vec<PartitionData>> {
    let responses = fetch.answer()?.responses;
    let partitions = responses.into_iter().flat_map(|topic| topic.partitions);
    Some(partitions.collect())
}

/// Returns the bytes of records and the high watermark of each partition, once answered.
fn read(fetch: &Asked<FetchResponse>) -> Option<Vec<(usize, i64)>> {
    let partitions = partitions(fetch)?.into_iter();
    let read = partitions.map(|data| {
        assert_eq!(data.error_code, 0);
        (data.records.unwrap_or_default().len(), data.high_watermark)
    });
    Some(read.collect())
}

#[test]
fn consumer_waits_for_the_high_watermark() {
    let broker = Fixture::new(&[]);
    let consumer = consume(&broker, 1, &[(0, 0), (1, 0)]);
    assert_eq!(broker.append(), 0);
    broker.replicate(0, 0);
    assert_eq!(read(&consumer), None, "one follower does not have it");
    broker.replicate(1, 0);
    assert_eq!(read(&consumer), Some(vec![(BATCH_BYTES, 1), (0, 0)]));
    assert_eq!(broker.manager.fetches.stats().completed, 1);
    let late = consume(&broker, 1, &[(0, 0)]);
    assert_eq!(
        read(&late),
        Some(vec![(BATCH_BYTES, 1)]),
        "there already: at once"
    );
}

#[test]
fn long_poll_waits_for_min_bytes_of_all_partitions() {
    let broker = Fixture::new(&[]);
    let consumer = consume(&broker, 3 * BATCH_BYTES, &[(0, 0), (1, 0)]);
    broker.append_replicated();
    broker.append_replicated();
    assert_eq!(read(&consumer), None);
    broker.ask(&produce(1, 0, &[(1, record_batch(1))]));
    broker.replicate_to_all(1);
    assert_eq!(
        read(&consumer),
        Some(vec![(2 * BATCH_BYTES, 2), (BATCH_BYTES, 1)])
    );
}

#[test]
fn long_poll_expires_with_what_there_is() {
    let broker = Fixture::new(&[]);
    let empty = consume(&broker, 1, &[(1, 0)]);
    let some = consume(&broker, 1000, &[(0, 0)]);
    broker.append_replicated();
    broker.timer.advance(SECOND - MILLISECOND);
    assert_eq!((read(&empty), read(&some)), (None, None));
    broker.timer.advance(MILLISECOND);
    assert_eq!(read(&empty), Some(vec![(0, 0)]));
    assert_eq!(read(&some), Some(vec![(BATCH_BYTES, 1)]));
    assert_eq!(broker.manager.fetches.stats().expired, 2);
    for max_wait_ms in [0, -1] {
        let request = fetch(CONSUMER, 1, &[(1, 0)]).with_max_wait_ms(max_wait_ms);
        assert_eq!(read(&broker.ask(&request)), Some(vec![(0, 0)]));
    }
}

#[test]
fn long_poll_beyond_the_bound_is_cut_down() {
    let broker = Fixture::new(&[]);
    let request = fetch(CONSUMER, 1, &[(1, 0)]).with_max_wait_ms(i32::MAX);
    let longest = broker.ask(&request);
    broker.timer.advance(LONG_POLL_MAX - MILLISECOND);
    assert_eq!(read(&longest), None);
    broker.timer.advance(MILLISECOND);
    assert_eq!(read(&longest), Some(vec![(0, 0)]));
}

#[test]
fn follower_waits_for_the_log_end() {
    let broker = Fixture::new(&[]);
    // A follower asks for all partitions.
    let all = |offset| [(0, offset), (1, 0), (2, 0)];
    let ask = |replica, offset| broker.ask(&fetch(replica, 1, &all(offset)));
    let consumer = consume(&broker, 1, &[(0, 0)]);
    let followers = [ask(2, 0), ask(3, 0)];
    assert_eq!(broker.append(), 0);
    for follower in &followers {
        assert_eq!(read(follower), Some(vec![(BATCH_BYTES, 0), (0, 0), (0, 0)]));
    }
    let first = ask(2, 1);
    assert_eq!((read(&first), read(&consumer)), (None, None));
    let second = ask(3, 1);
    assert_eq!(read(&consumer), Some(vec![(BATCH_BYTES, 1)]));
    broker.timer.advance(SECOND);
    for follower in [first, second] {
        assert_eq!(read(&follower), Some(vec![(0, 1), (0, 0), (0, 0)]));
    }
}

#[test]
fn error_in_one_partition_is_answered_at_once() {
    let broker = Fixture::new(&[]);
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let out_of_range = ResponseError::OffsetOutOfRange.code();
    for (bad, code) in [
        ((9, 0), unknown),
        ((0, 1), out_of_range),
        ((0, -1), out_of_range),
    ] {
        let consumer = consume(&broker, 1, &[(1, 0), bad]);
        let codes = partitions(&consumer)
            .unwrap()
            .into_iter()
            .map(|data| data.error_code);
        assert_eq!(codes.collect::<Vec<_>>(), [0, code], "{bad:?}");
    }
    // The largest and the smallest offset are out of range, too.
    let extreme = consume(&broker, 1, &[(0, i64::MAX), (0, i64::MIN)]);
    assert!(
        partitions(&extreme)
            .unwrap()
            .iter()
            .all(|data| data.error_code == out_of_range)
    );
    let nothing = broker.ask(&fetch(CONSUMER, 1, &[]).with_topics(vec![]));
    assert_eq!(
        read(&nothing),
        Some(vec![]),
        "how a client closes a fetch session"
    );
}

#[test]
fn fetch_of_deleted_records_is_answered_at_once() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    broker.append_replicated();
    let [below, above] = [0, 1].map(|from| consume(&broker, 1000, &[(0, from)]));
    broker.ask(&delete_records(&[(0, 1)]));
    let code = partitions(&below).unwrap()[0].error_code;
    assert_eq!(code, ResponseError::OffsetOutOfRange.code());
    assert_eq!(read(&above), None);
}

#[test]
fn response_is_bounded_but_has_the_first_batch() {
    let broker = Fixture::new(&[]);
    for _ in 0..5 {
        broker.append_replicated();
    }
    // Reads three times from one partition; returns how many batches each part brought.
    let ask = |response_max: usize, partition_max: usize| {
        let mut request = fetch(CONSUMER, 1 << 20, &[(0, 0), (0, 1), (0, 2)]);
        request.max_bytes = response_max as i32;
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = partition_max as i32;
        }
        let client = broker.ask(&request.with_max_wait_ms(0));
        let batches = read(&client)
            .unwrap()
            .into_iter()
            .map(|(bytes, _)| bytes / BATCH_BYTES);
        batches.collect::<Vec<_>>()
    };
    assert_eq!(ask(1, 1), [1, 0, 0]);
    assert_eq!(ask(1 << 20, 2 * BATCH_BYTES), [2, 2, 2]);
    assert_eq!(ask(3 * BATCH_BYTES, 2 * BATCH_BYTES), [2, 1, 0]);
}

#[test]
fn gone_client_has_only_its_own_requests_cancelled() {
    let broker = Fixture::new(&[]);
    let gone = consume(&broker, 1, &[(0, 0)]);
    let other = consume(&broker, 1, &[(0, 0)]);
    let produce = broker.ask(&produce(-1, 1000, &[(0, record_batch(1))]));
    // A fetch and a produce lose their clients, another fetch does not.
    for connection in [gone.connection, produce.connection] {
        broker
            .manager
            .end_connection(connection, "client disconnected");
    }
    assert!(read(&gone).is_some() && read(&other).is_none());
    assert_eq!(
        (broker.manager.fetches.len(), broker.manager.produces.len()),
        (1, 0)
    );
    broker.manager.shutdown();
    assert_eq!(
        read(&other),
        Some(vec![(0, 0)]),
        "a shutdown answers with what there is"
    );
}

/// Returns the error code and the offset of partition 0.
fn list(broker: &Fixture, timestamp: i64) -> (i16, i64) {
    let response = broker
        .ask(&list_offsets(&[(0, timestamp)]))
        .answer()
        .unwrap();
    let found = &response.topics[0].partitions[0];
    (found.error_code, found.offset)
}

#[test]
fn earliest_and_latest_offset_are_listed() {
    let broker = Fixture::new(&[]);
    broker.ask(&produce(1, 0, &[(0, record_batch(30))]));
    assert_eq!(list(&broker, -1), (0, 0), "consumers know of nothing yet");
    broker.replicate_to_all(0);
    assert_eq!((list(&broker, -2), list(&broker, -1)), ((0, 0), (0, 30)));
    broker.partition(0).delete_records(10).unwrap();
    assert_eq!((list(&broker, -2), list(&broker, -1)), ((0, 10), (0, 30)));
}
