//! What a topic is made with decides how its produces end.

use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, CreateTopicsResponse, MetadataRequest, MetadataResponse,
    ProduceResponse,
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    metadata_request::MetadataRequestTopic,
};

use super::{Fixture, answered, fetches::fetch, produce, record_batch, topic_name};

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
    let config = |(name, value): &(&str, Option<&str>)| {
        let value = value.map(|value| topic_name(value).0);
        CreatableTopicConfig::default().with_name(topic_name(name).0).with_value(value)
    };
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(1)
        .with_replication_factor(replicas)
        .with_configs(configs.iter().map(config).collect());
    let body = CreateTopicsRequest::default().with_topics(vec![topic]);
    let client = broker.ask(ApiKey::CreateTopics, 4, &body);
    let response: CreateTopicsResponse = answered(&client, 4).unwrap();
    let result = &response.topics[0];
    (result.error_code, result.error_message.as_deref().unwrap_or_default().to_owned())
}

/// How an acks=all produce of 98 bytes ends; `None`: it waits.
fn append(broker: &Fixture, topic: &str) -> Option<i16> {
    let mut body = produce(-1, 1000, &[(0, record_batch(1))]);
    body.topic_data[0].name = topic_name(topic);
    let client = broker.ask(ApiKey::Produce, 8, &body);
    let response: ProduceResponse = answered(&client, 8)?;
    Some(response.responses[0].partition_responses[0].error_code)
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
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
        let body = MetadataRequest::default().with_topics(Some(vec![topic]));
        let client = broker.ask(ApiKey::Metadata, 6, &body);
        let response: MetadataResponse = answered(&client, 6).unwrap();
        let partition = &response.topics[0].partitions[0];
        let nodes = |ids: &[kafka_protocol::messages::BrokerId]| {
            ids.iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&partition.replica_nodes), replicas);
        assert_eq!(nodes(&partition.isr_nodes), replicas);
    }
    // Three of `t`, and replica 2 has one more: it is not kept waiting with three only.
    let three = [(0, 0), (1, 0), (2, 0)];
    let [second, third] = [2, 3].map(|id| broker.ask(ApiKey::Fetch, 10, &fetch(id, 1, &three)));
    assert!(second.pipeline.is_ready() && !third.pipeline.is_ready());
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
