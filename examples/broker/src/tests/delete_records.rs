//! DeleteRecords: the leader deletes at once, the answer waits for the followers.

use std::time::Duration;

use kafka_protocol::{ResponseError, messages::DeleteRecordsResponse};

use super::{Asked, Fixture, examples::delete_records};

fn delete(broker: &Fixture, offsets: &[(i32, i64)]) -> Asked<DeleteRecordsResponse> {
    broker.ask(&delete_records(offsets))
}

/// Error code and low watermark of each partition, once answered.
fn results(deletion: &Asked<DeleteRecordsResponse>) -> Option<Vec<(i16, i64)>> {
    let results = deletion.answer()?.topics.into_iter().flat_map(|topic| topic.partitions);
    Some(results.map(|result| (result.error_code, result.low_watermark)).collect())
}

#[test]
fn it_waits_until_both_followers_have_deleted_and_the_leader_knows() {
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
fn it_times_out_for_the_partitions_whose_followers_do_not_follow() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1), (1, 0), (9, 0), (0, 2), (0, -2)]);
    assert_eq!(results(&deletion), None);
    broker.timer.advance(Duration::from_secs(1));
    let timed_out = ResponseError::RequestTimedOut.code();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let out_of_range = ResponseError::OffsetOutOfRange.code();
    let expected = [(timed_out, -1), (0, 0), (unknown, -1), (out_of_range, -1), (out_of_range, -1)];
    assert_eq!(results(&deletion).unwrap(), expected);
}

#[test]
fn who_is_not_in_sync_is_not_waited_for() {
    let broker = Fixture::new(&[]);
    broker.append_replicated();
    let deletion = delete(&broker, &[(0, 1)]);
    assert_eq!(broker.append(), 0);
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert_eq!(results(&deletion), Some(vec![(0, 1)]));
}
