//! Produce and DeleteRecords against the replicas, under a clock turned by hand; followers fetch
//! when the test says. What a topic is made with decides how its produces end.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteRecordsResponse, ProduceResponse,
};

use super::{Asked, Fixture, ask, examples::*, record_batch, with_crc};
use crate::partition::UpTo;

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

    /// At its timeout and not before.
    fn times_out(&self, produce: &Asked<ProduceResponse>) {
        self.timer.advance(SECOND - MILLISECOND);
        assert_eq!(answer(produce), None);
        self.timer.advance(MILLISECOND);
        assert_eq!(answer(produce), Some(vec![(TIMED_OUT, 0)]));
    }

    fn acked_before_replicated(&self) -> u64 {
        self.manager.counters.lock().acked_before_replicated
    }
}

/// Error code and base offset of each partition, once answered.
fn answer(produce: &Asked<ProduceResponse>) -> Option<Vec<(i16, i64)>> {
    let topics = produce.answer()?.responses;
    let statuses = topics.into_iter().flat_map(|topic| topic.partition_responses);
    Some(statuses.map(|status| (status.error_code, status.base_offset)).collect())
}

#[test]
fn completes_when_the_last_follower_has_it_and_the_leader_knows() {
    let broker = Fixture::new(&[]);
    let (first, second) = (broker.start_all(3), broker.start_all(2));
    broker.replicate(0, 0);
    assert_eq!(answer(&first), None, "one follower is missing");
    let partition = broker.partition(0);
    assert!(broker.follow(1, &partition), "brings the records");
    assert_eq!(answer(&first), None, "the leader learns of it from the next fetch");
    assert!(!broker.follow(1, &partition));
    assert_eq!((answer(&first), answer(&second)), (Some(vec![(0, 0)]), Some(vec![(0, 3)])));
    assert_eq!((broker.manager.produces.stats().completed, broker.manager.produces.len()), (2, 0));
    assert_eq!(broker.acked_before_replicated(), 0);
}

#[test]
fn times_out_at_the_timeout_and_not_before() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    broker.replicate(0, 0);
    broker.times_out(&produce);
    broker.replicate(1, 0);
    let stats = broker.manager.produces.stats();
    assert_eq!((stats.expired, stats.completed), (1, 0), "it ended once");
}

#[test]
fn each_partition_of_a_request_ends_in_its_own_way() {
    let broker = Fixture::new(&[]);
    let (batch, corrupt) = (record_batch(1), record_batch(1).slice(..60));
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
fn a_follower_that_only_claims_to_have_it_is_found_out() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    broker.replicate(0, 0);
    broker.manager.note_fetch(&broker.partition(0), 3, 0, 1);
    assert_eq!(answer(&produce), Some(vec![(0, 0)]));
    assert_eq!(broker.acked_before_replicated(), 1);
}

#[test]
fn too_few_in_sync_replicas_are_told_before_and_after_the_append() {
    let broker = Fixture::new(&["--advance-below-min-isr"]);
    broker.manager.shrink_in_sync();
    let produce = broker.start_all(1);
    broker.manager.shrink_in_sync();
    broker.manager.shrink_in_sync();
    assert_eq!(answer(&produce), None, "not behind for two whole periods");
    broker.manager.shrink_in_sync();
    let after_append = ResponseError::NotEnoughReplicasAfterAppend.code();
    assert_eq!(answer(&produce), Some(vec![(after_append, 0)]));
    let before_append = ResponseError::NotEnoughReplicas.code();
    assert_eq!(answer(&broker.start_all(1)), Some(vec![(before_append, -1)]));
    let idle = broker.partition(1);
    assert_eq!(idle.in_sync_followers(), [2, 3], "there is nothing to lag behind");

    broker.replicate(0, 0);
    let produce = broker.start_all(1);
    broker.replicate(0, 0);
    assert_eq!(answer(&produce), Some(vec![(0, 1)]), "one is back after catching up: enough");
}

#[test]
fn below_the_minimum_the_high_watermark_stands_still() {
    let broker = Fixture::new(&[]);
    let produce = broker.start_all(1);
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert!(broker.partition(0).in_sync_followers().is_empty());
    broker.times_out(&produce);
    assert_eq!(broker.partition(0).offsets().high_watermark, 0);
    broker.replicate(0, 0);
    broker.replicate(0, 0);
    assert_eq!(broker.partition(0).offsets().high_watermark, 1, "one is back: enough");
}

#[test]
fn a_follower_that_is_always_one_fetch_behind_stays_in_sync() {
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
        let produce = ask(&broker.manager, broker.client(), 8, &body)?;
        broker.timer.advance(MILLISECOND);
        anyhow::Ok(answer(&produce).map(|statuses| statuses[0]))
    };
    assert_eq!(produce(1, 0, 0).unwrap(), Some((0, 0)));
    assert_eq!(produce(0, 0, 0).unwrap(), None);
    assert_eq!(produce(1, 0, 0).unwrap(), Some((0, 4)), "acks=0 was appended");
    assert!(produce(0, 0, 7).is_err(), "acks=0 can only fail by closing");
    for acks in [2, -2, i16::MAX] {
        assert_eq!(produce(acks, 0, 0).unwrap(), Some((21, -1)));
    }
    for timeout_ms in [0, -1, i32::MIN] {
        assert_eq!(produce(-1, timeout_ms, 0).unwrap().unwrap().0, TIMED_OUT, "{timeout_ms}");
    }
}

#[test]
fn a_shutdown_answers_what_is_parked_and_what_comes_later() {
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
fn a_log_drops_what_is_replicated_and_is_full_of_what_is_not() {
    let broker = Fixture::new(&["--max-log", "500"]);
    let appended = [broker.append(), broker.append(), broker.append()];
    assert_eq!(appended, [0; 3], "98 bytes each, and 128 for its place");
    let full = ResponseError::KafkaStorageError.code();
    assert_eq!(broker.append(), full);
    broker.replicate(0, 0);
    assert_eq!(broker.append(), full, "one follower still needs it");
    broker.replicate(1, 0);
    assert_eq!(broker.append(), 0);
    let partition = broker.partition(0);
    assert_eq!(partition.offsets().log_start, 1);
    assert_eq!(partition.read(1, UpTo::LogEnd, 250, false).unwrap().len(), 2, "two fit");
    assert_eq!(partition.read(1, UpTo::LogEnd, 0, true).unwrap().len(), 1, "the first does not");
    let gone = partition.read(0, UpTo::LogEnd, 250, true).unwrap_err();
    assert_eq!(gone, ResponseError::OffsetOutOfRange);
}

#[test]
fn a_follower_left_behind_starts_again_where_the_leader_starts() {
    let broker = Fixture::new(&["--max-log", "230", "--advance-below-min-isr"]);
    broker.append();
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert_eq!([broker.append(), broker.append()], [0, 0]);
    broker.replicate(0, 0);
    let partition = broker.partition(0);
    assert_eq!(partition.in_sync_followers(), [2]);
    assert_eq!(broker.manager.followers[0].log_range(&partition.key), (1, 3));
}

#[test]
fn an_idempotent_batch_that_comes_again_waits_for_the_first_and_is_appended_once() {
    let broker = Fixture::new(&[]);
    let mut batch = record_batch(3).to_vec();
    batch[43..57].fill(0); // producer 0, epoch 0, sequence 0
    let batch = Bytes::from(with_crc(batch));
    let produces = [0, 1].map(|_| broker.start(-1, &[(0, batch.clone())]));
    broker.replicate(0, 0);
    assert!(produces.iter().all(|produce| answer(produce).is_none()));
    broker.replicate(1, 0);
    assert!(produces.iter().all(|produce| answer(produce) == Some(vec![(0, 0)])));
    assert_eq!(broker.partition(0).offsets().log_end, 3);
    let counters = broker.manager.counters.lock();
    assert_eq!((counters.records, counters.duplicates), (3, 1));
}

#[test]
fn all_logs_together_are_bounded_and_the_largest_gives_up_its_oldest_records() {
    // Four batches of 98 bytes and 128 for the place of each, and what comes next.
    let broker = Fixture::new(&["--max-logs", "1001"]);
    let append = |index| broker.start(1, &[(index, record_batch(1))]);
    let full = Some(vec![(ResponseError::KafkaStorageError.code(), -1)]);
    for (number, index) in [0, 0, 0, 1].into_iter().enumerate() {
        let offset = if index == 0 { number as i64 } else { 0 };
        assert_eq!(answer(&append(index)), Some(vec![(0, offset)]));
    }
    assert_eq!(answer(&append(2)), full, "nothing is replicated");
    broker.replicate_to_all(0);
    assert_eq!(answer(&append(2)), Some(vec![(0, 0)]));
    let starts = [0, 1, 2].map(|index| broker.partition(index).offsets().log_start);
    assert_eq!(starts, [1, 0, 0], "the oldest of the largest");
    for _ in 0..20 {
        (0..3).for_each(|index| broker.replicate_to_all(index));
        assert_eq!(answer(&append(1)).unwrap()[0].0, 0);
        let bytes: usize = (0..3).map(|index| broker.partition(index).log_bytes()).sum();
        assert!(bytes <= 1001 + 128, "{bytes} bytes");
    }
    assert!(broker.partition(2).log_bytes() > 0, "a small log is left alone");
}

fn delete(broker: &Fixture, offsets: &[(i32, i64)]) -> Asked<DeleteRecordsResponse> {
    broker.ask(&delete_records(offsets))
}

/// Error code and low watermark of each partition, once answered.
fn results(deletion: &Asked<DeleteRecordsResponse>) -> Option<Vec<(i16, i64)>> {
    let results = deletion.answer()?.topics.into_iter().flat_map(|topic| topic.partitions);
    Some(results.map(|result| (result.error_code, result.low_watermark)).collect())
}

#[test]
fn a_deletion_waits_until_both_followers_have_deleted_and_the_leader_knows() {
    let broker = Fixture::new(&[]);
    (0..3).for_each(|_| broker.append_replicated());
    let deletion = delete(&broker, &[(0, 2)]);
    assert_eq!(broker.partition(0).offsets().log_start, 2);
    broker.replicate(0, 0);
    assert_eq!(results(&deletion), None, "one follower is missing");
    broker.replicate(1, 0);
    assert_eq!(results(&deletion), Some(vec![(0, 2)]));
    let all = delete(&broker, &[(0, -1)]);
    broker.replicate_to_all(0);
    assert_eq!(results(&all), Some(vec![(0, 3)]), "-1: up to the high watermark");
    assert_eq!(results(&delete(&broker, &[(0, 1)])), Some(vec![(0, 3)]), "gone already");
    assert_eq!(broker.append(), 0);
    assert_eq!(broker.partition(0).offsets().log_end, 4);
}

#[test]
fn a_deletion_times_out_for_the_partitions_whose_followers_do_not_follow() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1), (1, 0), (9, 0), (0, 2), (0, -2)]);
    assert_eq!(results(&deletion), None);
    broker.timer.advance(SECOND);
    let timed_out = ResponseError::RequestTimedOut.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let out_of_range = ResponseError::OffsetOutOfRange.code();
    let expected = [(timed_out, -1), (0, 0), (unknown, -1), (out_of_range, -1), (out_of_range, -1)];
    assert_eq!(results(&deletion).unwrap(), expected);
}

#[test]
fn a_deletion_does_not_wait_for_who_is_not_in_sync() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1)]);
    assert_eq!(broker.append(), 0);
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert_eq!(results(&deletion), Some(vec![(0, 1)]));
}

/// Makes a topic of one partition; the error code and its text.
fn create(broker: &Fixture, name: &str, replicas: i16, configs: &[Config]) -> (i16, String) {
    let topics = vec![creatable(name, 1, replicas, configs)];
    let response = broker.ask(&CreateTopicsRequest::default().with_topics(topics)).answer();
    let result = response.unwrap().topics.remove(0);
    (result.error_code, result.error_message.unwrap_or_default().to_string())
}

/// How an acks=all produce of 98 bytes ends; `None`: it waits.
fn append(broker: &Fixture, topic: &str) -> Option<i16> {
    let mut body = produce(-1, 1000, &[(0, record_batch(1))]);
    body.topic_data[0].name = text(topic).into();
    Some(broker.ask(&body).answer()?.responses[0].partition_responses[0].error_code)
}

#[test]
fn acks_all_waits_for_as_many_replicas_as_the_topic_was_given() {
    let broker = Fixture::new(&[]);
    for replicas in [1, 2, 3, -1] {
        assert_eq!(create(&broker, &format!("r{replicas}"), replicas, &[]).0, 0);
    }
    assert_eq!(append(&broker, "r1"), Some(0), "the leader has it");
    for topic in ["r2", "r3", "r-1"] {
        assert_eq!(append(&broker, topic), None, "{topic}");
    }
    let two = broker.manager.topics.partition("r2", 0).unwrap();
    broker.manager.note_fetch(&two, 3, 0, 1);
    assert_eq!(two.offsets().high_watermark, 0, "replica 3 is none of it");
    broker.manager.note_fetch(&two, 2, 0, 1);
    assert_eq!(two.offsets().high_watermark, 1);
    for replicas in [0, 4, -2] {
        let (error, _) = create(&broker, "none", replicas, &[]);
        assert_eq!(error, ResponseError::InvalidReplicationFactor.code(), "{replicas}");
    }
}

#[test]
fn metadata_names_the_replicas_there_are_and_followers_fetch_no_others() {
    let broker = Fixture::new(&[]);
    create(&broker, "r1", 1, &[]);
    create(&broker, "r2", 2, &[]);
    for (topic, replicas) in [("r1", vec![1]), ("r2", vec![1, 2]), ("t", vec![1, 2, 3])] {
        let response = broker.ask(&metadata(&[topic])).answer().unwrap();
        let partition = &response.topics[0].partitions[0];
        let nodes = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(nodes(&partition.replica_nodes), replicas);
        assert_eq!(nodes(&partition.isr_nodes), replicas);
    }
    // Three of `t`, and replica 2 has one more: it is not kept waiting with three only.
    let three = [(0, 0), (1, 0), (2, 0)];
    let [second, third] = [2, 3].map(|id| broker.ask(&fetch(id, 1, &three)).answer());
    assert!(second.is_some() && third.is_none());
}

#[test]
fn min_insync_replicas_is_the_topics() {
    let broker = Fixture::new(&[]);
    for least in ["1", "2", "3"] {
        let configs = [("min.insync.replicas", Some(least))];
        assert_eq!(create(&broker, &format!("m{least}"), 3, &configs).0, 0);
        append(&broker, &format!("m{least}"));
    }
    let three = [("min.insync.replicas", Some("3"))];
    assert_eq!(create(&broker, "alone", 1, &three).0, 0, "all there are are enough");
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert_eq!(append(&broker, "m1"), Some(0), "the leader alone is in sync");
    assert_eq!(append(&broker, "m2"), Some(ResponseError::NotEnoughReplicas.code()));
    assert_eq!(append(&broker, "m3"), Some(ResponseError::NotEnoughReplicas.code()));
    assert_eq!(append(&broker, "alone"), Some(0));
}

#[test]
fn max_message_bytes_is_the_topics() {
    let broker = Fixture::new(&["--message-max-bytes", "50"]);
    for (bytes, error) in [("97", ResponseError::MessageTooLarge.code()), ("98", 0)] {
        let topic = format!("b{bytes}");
        assert_eq!(create(&broker, &topic, 1, &[("max.message.bytes", Some(bytes))]).0, 0);
        assert_eq!(append(&broker, &topic), Some(error), "{bytes}");
    }
    create(&broker, "default", 1, &[]);
    assert_eq!(append(&broker, "default"), Some(ResponseError::MessageTooLarge.code()));
}

#[test]
fn a_configuration_that_is_not_known_is_refused() {
    let broker = Fixture::new(&[]);
    for (name, value) in [
        ("retention.ms", Some("1")),
        ("cleanup.policy", Some("compact")),
        ("", Some("1")),
        ("min.insync.replicas", Some("0")),
        ("min.insync.replicas", Some("4")),
        ("min.insync.replicas", Some("two")),
        ("min.insync.replicas", None),
        ("max.message.bytes", Some("-1")),
        ("max.message.bytes", Some("2147483648")),
    ] {
        let (error, text) = create(&broker, "refused", 1, &[(name, value)]);
        assert_eq!(error, ResponseError::InvalidConfig.code(), "{name}={value:?}");
        assert!(text.contains("min.insync.replicas (1 to 3)"), "{text}");
        assert!(broker.manager.topics.get("refused").is_none());
    }
}
