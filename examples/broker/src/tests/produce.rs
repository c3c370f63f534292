//! Tests of Produce and DeleteRecords, on a manual timer; followers fetch when the test says. The
//! settings of a topic decide how its produces end.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{DeleteRecordsResponse, ProduceResponse};

use super::{Asked, Fixture, examples::*, record_batch};
use crate::partition::{FollowerFetch, UpTo};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const TIMED_OUT: i16 = ResponseError::RequestTimedOut.code();

impl Fixture {
    /// Starts a produce with a timeout of one second.
    fn start(&self, acks: i16, data: &[(i32, Bytes)]) -> Asked<ProduceResponse> {
        self.ask(&produce(acks, 1000, data))
    }

    fn start_all(&self, records: i32) -> Asked<ProduceResponse> {
        self.start(-1, &[(0, record_batch(records))])
    }

    /// Checks that the produce expires at its timeout and not before.
    fn times_out(&self, produce: &Asked<ProduceResponse>) {
        self.timer.advance(SECOND - MILLISECOND);
        assert_eq!(answer(produce), None);
        self.timer.advance(MILLISECOND);
        assert_eq!(answer(produce), Some(vec![(TIMED_OUT, 0)]));
    }

    /// Begins this many lag periods.
    fn shrink_in_sync(&self, times: usize) {
        for _ in 0..times {
            self.manager.shrink_in_sync();
        }
    }

    /// Fetches over `connection` for a follower, which claims to have partition 0 up to an offset.
    fn claim(&self, id: i32, connection: u64, log_end: i64) {
        let fetch = FollowerFetch {
            id,
            connection,
            log_start: 0,
            log_end,
        };
        self.manager.note_fetch(&self.partition(0), fetch);
    }

    fn acked_before_replicated(&self) -> u64 {
        self.manager.counters.lock().acked_before_replicated
    }
}

/// Returns the error code and base offset of each partition, once answered.
fn answer(produce: &Asked<ProduceResponse>) -> Option<Vec<(i16, i64)>> {
    let topics = produce.answer()?.responses.into_iter();
    let statuses = topics.flat_map(|topic| topic.partition_responses);
    let statuses = statuses.map(|status| (status.error_code, status.base_offset));
    Some(statuses.collect())
}

#[test]
fn completes_when_the_leader_knows_that_all_have_it() {
    let broker = Fixture::new(&[]);
    let first = broker.start_all(3);
    let second = broker.start_all(2);
    broker.replicate(0, 0);
    assert_eq!(answer(&first), None, "one follower is missing");
    // The second follower's first fetch brings the records, its next one reports them.
    let partition = broker.partition(0);
    assert!(broker.follow(1, &partition), "brings the records");
    assert_eq!(
        answer(&first),
        None,
        "the leader learns of it from the next fetch"
    );
    assert!(!broker.follow(1, &partition));
    assert_eq!(
        (answer(&first), answer(&second)),
        (Some(vec![(0, 0)]), Some(vec![(0, 3)]))
    );
    assert_eq!(
        (
            broker.manager.produces.stats().completed,
            broker.manager.produces.len()
        ),
        (2, 0)
    );
    assert_eq!(broker.acked_before_replicated(), 0);
}

#[test]
fn each_partition_of_a_request_ends_in_its_own_way() {
    let broker = Fixture::new(&[]);
    let batch = record_batch(1);
    let corrupt = batch.slice(..60);
    // Two partitions succeed, one is behind, one gets a corrupt batch, one is unknown.
    let data =
        [0, 1, 2, 9, 0].map(|index| (index, if index == 2 { &corrupt } else { &batch }.clone()));
    let produce = broker.start(-1, &data);
    broker.replicate(0, 0);
    broker.replicate(1, 0);
    broker.replicate(0, 1);
    assert_eq!(answer(&produce), None, "partition 1 is missing");
    broker.timer.advance(SECOND);
    let corrupt = ResponseError::CorruptMessage.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let expected = vec![(0, 0), (TIMED_OUT, 0), (corrupt, -1), (unknown, -1), (0, 1)];
    assert_eq!(answer(&produce), Some(expected));
    assert_eq!(broker.acked_before_replicated(), 0);
    let nothing_to_wait_for = broker.start(-1, &data[2..4]);
    assert!(answer(&nothing_to_wait_for).is_some());
}

#[test]
fn follower_that_only_claims_a_record_is_found_out() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    broker.replicate(0, 0);
    broker.claim(3, 0, 1);
    assert_eq!(answer(&produce), Some(vec![(0, 0)]));
    assert_eq!(broker.acked_before_replicated(), 1);
}

#[test]
fn killed_follower_counts_once_it_has_caught_up() {
    let broker = Fixture::new(&[]);
    let in_sync = || broker.partition(0).in_sync_followers();
    // Follower 2 has a record that follower 3 lacks.
    let produce = broker.start_all(1);
    broker.claim(2, 100, 0);
    broker.claim(2, 100, 1);
    // Follower 2 is killed, and its log is lost. Follower 3 fetches before follower 2 is back.
    broker.manager.end_connection(100, "client disconnected");
    broker.replicate(1, 0);
    assert_eq!((answer(&produce), in_sync()), (Some(vec![(0, 0)]), vec![3]));
    assert_eq!(broker.acked_before_replicated(), 0);

    // A fetch that follower 2 sent before its end comes late.
    broker.claim(2, 100, 1);
    assert_eq!(in_sync(), [3]);
    // Follower 2 is back, but does not count before its first fetch, nor until it has the records.
    let produce = broker.start_all(1);
    assert_eq!(answer(&produce), None);
    broker.replicate(1, 0);
    assert_eq!(answer(&produce), Some(vec![(0, 1)]));
    for (log_end, expected) in [(0, vec![3]), (1, vec![3]), (2, vec![2, 3])] {
        broker.claim(2, 101, log_end);
        assert_eq!(in_sync(), expected, "up to {log_end}");
    }
    let produce = broker.start_all(1);
    broker.replicate(1, 0);
    assert_eq!(answer(&produce), None, "it is waited for again");
    broker.claim(2, 101, 3);
    assert_eq!(answer(&produce), Some(vec![(0, 2)]));
}

/// The leader has not seen the end of the follower's first connection: its machine lost power, say.
#[test]
fn a_follower_over_another_connection_has_to_catch_up() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    broker.claim(2, 100, 1);
    broker.claim(3, 101, 1);
    assert_eq!(answer(&produce), Some(vec![(0, 0)]));
    broker.claim(2, 102, 0);
    assert_eq!(broker.partition(0).in_sync_followers(), [3]);
    // The end of the first connection does not end the new one.
    broker.claim(2, 102, 1);
    broker.manager.end_connection(100, "client disconnected");
    assert_eq!(broker.partition(0).in_sync_followers(), [2, 3]);
}

#[test]
fn too_few_in_sync_replicas_refuse_the_append() {
    let broker = Fixture::new(&[]);
    // A follower leaves the in-sync set after it was behind for two whole lag periods.
    broker.append();
    broker.manager.shrink_in_sync();
    broker.manager.shrink_in_sync();
    assert_eq!(
        broker.partition(0).in_sync_followers(),
        [2, 3],
        "not behind for two periods"
    );
    broker.manager.shrink_in_sync();
    let too_few = ResponseError::NotEnoughReplicas.code();
    assert_eq!(answer(&broker.start_all(1)), Some(vec![(too_few, -1)]));
    let idle = broker.partition(1);
    assert_eq!(
        idle.in_sync_followers(),
        [2, 3],
        "there is nothing to lag behind"
    );

    // One follower comes back, and two of three replicas are enough.
    broker.replicate(0, 0);
    let produce = broker.start_all(1);
    broker.replicate(0, 0);
    assert_eq!(
        answer(&produce),
        Some(vec![(0, 1)]),
        "one is back after catching up: enough"
    );
}

#[test]
fn below_the_minimum_the_high_watermark_stands_still() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    broker.shrink_in_sync(3);
    assert!(broker.partition(0).in_sync_followers().is_empty());
    broker.times_out(&produce);
    assert_eq!(broker.partition(0).offsets().high_watermark, 0);
    broker.replicate(0, 0);
    broker.replicate(0, 0);
    assert_eq!(
        broker.partition(0).offsets().high_watermark,
        1,
        "one is back: enough"
    );
}

#[test]
fn follower_one_fetch_behind_stays_in_sync() {
    let broker = Fixture::new(&[]);
    let partition = broker.partition(0);
    for _ in 0..10 {
        broker.append();
        assert!((0..2).all(|follower| broker.follow(follower, &partition)));
        broker.append();
        broker.manager.shrink_in_sync();
    }
    assert_eq!(partition.in_sync_followers(), [2, 3]);
}

#[test]
fn acks_decide_who_is_waited_for() {
    let broker = Fixture::new(&[]);
    let produce = |acks, timeout_ms, index| {
        let body = produce(acks, timeout_ms, &[(index, record_batch(2))]);
        let produce = broker.ask_at(8, &body)?;
        broker.timer.advance(MILLISECOND);
        anyhow::Ok(answer(&produce).map(|statuses| statuses[0]))
    };
    // The acks of the leader alone; no acks; then numbers of acks that do not exist.
    assert_eq!(produce(1, 0, 0).unwrap(), Some((0, 0)));
    assert_eq!(produce(0, 0, 0).unwrap(), None);
    assert_eq!(
        produce(1, 0, 0).unwrap(),
        Some((0, 4)),
        "acks=0 was appended"
    );
    assert!(produce(0, 0, 7).is_err(), "acks=0 can only fail by closing");
    for acks in [2, -2, i16::MAX] {
        assert_eq!(produce(acks, 0, 0).unwrap(), Some((21, -1)));
    }
    // The acks of all, with a timeout that is over at once.
    for timeout_ms in [0, -1, i32::MIN] {
        assert_eq!(
            produce(-1, timeout_ms, 0).unwrap().unwrap().0,
            TIMED_OUT,
            "{timeout_ms}"
        );
    }
}

#[test]
fn shutdown_answers_parked_and_later_requests() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let parked = (broker.start_all(1), delete(&broker, &[(0, 1)]));
    broker.manager.shutdown();
    let later = (broker.start_all(1), delete(&broker, &[(0, 1)]));
    let retriable = ResponseError::NotLeaderOrFollower.code();
    for ((produce, deletion), offset) in [(parked, 1), (later, 2)] {
        assert_eq!(answer(&produce), Some(vec![(retriable, offset)]));
        assert_eq!(results(&deletion), Some(vec![(retriable, -1)]));
    }
}

#[test]
fn full_log_drops_replicated_records_only() {
    let broker = Fixture::new(&["--max-log", "500"]);
    let appended = [broker.append(), broker.append(), broker.append()];
    assert_eq!(appended, [0; 3], "98 bytes each, and 128 for its place");
    // The log is full of records that a follower still needs.
    let full = ResponseError::KafkaStorageError.code();
    assert_eq!(broker.append(), full);
    broker.replicate(0, 0);
    assert_eq!(broker.append(), full, "one follower still needs it");
    broker.replicate(1, 0);
    assert_eq!(broker.append(), 0);
    // Once both followers had it, the oldest batch made room.
    let partition = broker.partition(0);
    assert_eq!(partition.offsets().log_start, 1);
    assert_eq!(
        partition.read(1, UpTo::LogEnd, 250, false).unwrap().len(),
        2,
        "two fit"
    );
    assert_eq!(
        partition.read(1, UpTo::LogEnd, 0, true).unwrap().len(),
        1,
        "the first does not"
    );
    let gone = partition.read(0, UpTo::LogEnd, 250, true).unwrap_err();
    assert_eq!(gone, ResponseError::OffsetOutOfRange);
}

#[test]
fn follower_left_behind_starts_at_the_leaders_start() {
    let broker = Fixture::new(&["--max-log", "230", "--min-insync-replicas", "1"]);
    broker.append();
    broker.shrink_in_sync(3);
    assert_eq!([broker.append(), broker.append()], [0, 0]);
    broker.replicate(0, 0);
    let partition = broker.partition(0);
    assert_eq!(partition.in_sync_followers(), [2]);
    assert_eq!(broker.manager.followers[0].offsets(&partition.key), 1..3);
}

fn delete(broker: &Fixture, offsets: &[(i32, i64)]) -> Asked<DeleteRecordsResponse> {
    broker.ask(&delete_records(offsets))
}

/// Returns the error code and low watermark of each partition, once answered.
fn results(deletion: &Asked<DeleteRecordsResponse>) -> Option<Vec<(i16, i64)>> {
    let topics = deletion.answer()?.topics.into_iter();
    let results = topics.flat_map(|topic| topic.partitions);
    let results = results.map(|result| (result.error_code, result.low_watermark));
    Some(results.collect())
}

#[test]
fn deletion_waits_for_both_followers() {
    let broker = Fixture::new(&[]);
    for _ in 0..3 {
        broker.append_replicated();
    }
    let deletion = delete(&broker, &[(0, 2)]);
    assert_eq!(broker.partition(0).offsets().log_start, 2);
    broker.replicate(0, 0);
    assert_eq!(results(&deletion), None, "one follower is missing");
    broker.replicate(1, 0);
    assert_eq!(results(&deletion), Some(vec![(0, 2)]));
    // Delete all records, then records that are already gone.
    let all = delete(&broker, &[(0, -1)]);
    broker.replicate_to_all(0);
    assert_eq!(
        results(&all),
        Some(vec![(0, 3)]),
        "-1: up to the high watermark"
    );
    assert_eq!(
        results(&delete(&broker, &[(0, 1)])),
        Some(vec![(0, 3)]),
        "gone already"
    );
    assert_eq!(broker.append(), 0);
    assert_eq!(broker.partition(0).offsets().log_end, 4);
}

#[test]
fn deletion_times_out_by_partition() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1), (1, 0), (9, 0), (0, 2), (0, -2)]);
    assert_eq!(results(&deletion), None);
    broker.timer.advance(SECOND);
    // At the timeout each partition has a result of its own.
    let timed_out = ResponseError::RequestTimedOut.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let out_of_range = ResponseError::OffsetOutOfRange.code();
    let expected = [
        (timed_out, -1),
        (0, 0),
        (unknown, -1),
        (out_of_range, -1),
        (out_of_range, -1),
    ];
    assert_eq!(results(&deletion).unwrap(), expected);
}

#[test]
fn deletion_does_not_wait_for_out_of_sync_replicas() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1)]);
    assert_eq!(broker.append(), 0);
    broker.shrink_in_sync(3);
    assert_eq!(results(&deletion), Some(vec![(0, 1)]));
}
