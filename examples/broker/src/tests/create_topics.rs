//! What a topic is made with decides how its produces end.

use kafka_protocol::messages::{BrokerId, CreateTopicsRequest};

use super::{Fixture, examples::*, record_batch};

const OK: i16 = 0;
const MESSAGE_TOO_LARGE: i16 = 10;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const INVALID_REPLICATION_FACTOR: i16 = 38;
const INVALID_CONFIG: i16 = 40;

/// Makes a topic of one partition; the error code and its text.
fn create(
    broker: &Fixture,
    name: &str,
    replicas: i16,
    configs: &[(&str, Option<&str>)],
) -> (i16, String) {
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
        assert_eq!(create(&broker, &format!("r{replicas}"), replicas, &[]).0, OK);
    }
    assert_eq!(append(&broker, "r1"), Some(OK), "the leader has it");
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
        assert_eq!(error, INVALID_REPLICATION_FACTOR, "{replicas}");
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
        assert_eq!(create(&broker, &format!("m{least}"), 3, &configs).0, OK);
        append(&broker, &format!("m{least}"));
    }
    let three = [("min.insync.replicas", Some("3"))];
    assert_eq!(create(&broker, "alone", 1, &three).0, OK, "all there are are enough");
    (0..3).for_each(|_| broker.manager.shrink_in_sync());
    assert_eq!(append(&broker, "m1"), Some(OK), "the leader alone is in sync");
    assert_eq!(append(&broker, "m2"), Some(NOT_ENOUGH_REPLICAS));
    assert_eq!(append(&broker, "m3"), Some(NOT_ENOUGH_REPLICAS));
    assert_eq!(append(&broker, "alone"), Some(OK));
}

#[test]
fn max_message_bytes_is_the_topics() {
    let broker = Fixture::new(&["--message-max-bytes", "50"]);
    for (bytes, error) in [("97", MESSAGE_TOO_LARGE), ("98", OK)] {
        let topic = format!("b{bytes}");
        assert_eq!(create(&broker, &topic, 1, &[("max.message.bytes", Some(bytes))]).0, OK);
        assert_eq!(append(&broker, &topic), Some(error), "{bytes}");
    }
    create(&broker, "default", 1, &[]);
    assert_eq!(append(&broker, "default"), Some(MESSAGE_TOO_LARGE));
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
        assert_eq!(error, INVALID_CONFIG, "{name}={value:?}");
        assert!(text.contains("min.insync.replicas (1 to 3)"), "{text}");
        assert!(broker.manager.topics.get("refused").is_none());
    }
}
