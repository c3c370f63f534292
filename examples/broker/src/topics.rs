//! The topics, made on first use or by request: a bounded map, read by every produce and written
//! once for each topic.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use dashmap::DashMap;
use example_support::number;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;

use crate::{api::OrError, args::Args, partition::Partition};

/// A partition of a topic, displayed as in Kafka: `topic-0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TopicPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The watch keys of parked operations: a watermark of a partition, or the connection whose client
/// waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WatchKey {
    /// The offset up to which every in-sync replica has the log: for acks=all produces and
    /// consumers' fetches.
    HighWatermark(TopicPartition),
    /// The end of the leader's log: for followers' fetches.
    LogEnd(TopicPartition),
    /// The offset up to which every in-sync replica has deleted the log: for delete-records.
    LowWatermark(TopicPartition),
    Connection(u64),
}

/// Settings of every topic; a client may choose the partitions.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct TopicConfig {
    /// Partitions of a new topic
    #[arg(long, default_value_t = 3, value_parser = number(PARTITIONS))]
    pub partitions: i32,

    /// Replicas that must be in sync for acks=all (the leader counts): min.insync.replicas
    #[arg(long, default_value_t = 2, value_parser = number::<u8>(1..=3))]
    pub min_insync_replicas: u8,

    /// Largest record batch in bytes, as it is compressed; a larger one is answered with
    /// MESSAGE_TOO_LARGE
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_588)]
    #[arg(value_parser = number::<u32>(1..=1 << 30))]
    pub message_max_bytes: u32,

    /// Bytes a replica of a partition keeps in memory, three of them in one process; the oldest
    /// replicated records go first
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    #[arg(value_parser = number(1..=usize::MAX))]
    pub max_log: usize,
}

/// The partitions of a topic, at least one.
pub(crate) type Topic = Arc<[Arc<Partition>]>;

/// The most partitions that a topic may have.
pub(crate) const PARTITIONS: RangeInclusive<i32> = 1..=1000;

pub(crate) struct Topics {
    pub(crate) defaults: TopicConfig,
    topics: DashMap<Arc<str>, Topic>,
    /// The number of partitions of all topics; locked while a topic is made, so that the bound is
    /// exact.
    partition_count: Mutex<usize>,
    partitions_max: usize,
}

impl Topics {
    pub(crate) fn new(args: &Args) -> Topics {
        Topics {
            defaults: args.topic,
            topics: DashMap::new(),
            partition_count: Mutex::default(),
            partitions_max: args.max_partitions.into(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Topic> {
        self.topics.get(name).map(|topic| Arc::clone(&topic))
    }

    pub(crate) fn partition(&self, name: &str, index: i32) -> OrError<Arc<Partition>> {
        let unknown = ResponseError::UnknownTopicOrPartition;
        let topic = self.get(name).ok_or(unknown)?;
        let index = usize::try_from(index).map_err(|_| unknown)?;
        topic.get(index).cloned().ok_or(unknown)
    }

    pub(crate) fn all(&self) -> Vec<Topic> {
        self.topics.iter().map(|topic| Arc::clone(&topic)).collect()
    }

    /// Gets the topic, or [creates](Topics::create) it with the default partitions.
    pub(crate) fn get_or_create(&self, name: &str) -> OrError<Topic> {
        if let Some(topic) = self.get(name) {
            return Ok(topic);
        }
        let created = self.create(name, self.defaults.partitions);
        // Another thread may have made it meanwhile.
        created.or_else(|error| self.get(name).ok_or(error))
    }

    /// Creates a topic. Errors: INVALID_TOPIC_EXCEPTION for a name against Kafka's rule,
    /// TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS outside [`PARTITIONS`], POLICY_VIOLATION at the
    /// bounds.
    pub(crate) fn create(&self, name: &str, partitions: i32) -> OrError<Topic> {
        refuse!(!legal(name), InvalidTopicException);
        // Hold the lock to the end, so that two topics made at once stay within the bound.
        let mut count = self.partition_count.lock();
        // An existing name is an error, whatever the number of partitions.
        refuse!(self.topics.contains_key(name), TopicAlreadyExists);
        refuse!(!PARTITIONS.contains(&partitions), InvalidPartitions);
        let new = partitions.unsigned_abs() as usize;
        refuse!(*count + new > self.partitions_max, PolicyViolation);

        let name: Arc<str> = name.into();
        let mut topic = Vec::new();
        for partition in 0..partitions {
            let key = TopicPartition {
                topic: Arc::clone(&name),
                partition,
            };
            topic.push(Arc::new(Partition::new(key, self.defaults)));
        }
        let topic: Topic = topic.into();
        *count += new;
        self.topics.insert(name, Arc::clone(&topic));
        Ok(topic)
    }
}

/// Applies Kafka's rule: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`.
fn legal(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas_and_partitions_are_bounded() {
        let bounds = ["--partitions", "2", "--max-partitions", "5"];
        let topics = Topics::new(&crate::tests::args(&bounds));
        // Names first, then the number of partitions.
        for name in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            let error = topics.get_or_create(name).err();
            assert_eq!(
                error,
                Some(ResponseError::InvalidTopicException),
                "{name:?}"
            );
        }
        assert_eq!(topics.get_or_create(&"x".repeat(249)).unwrap().len(), 2);
        // Two of five partitions are taken; four more are too many.
        let too_many = topics.create("large", 4).err();
        assert_eq!(too_many, Some(ResponseError::PolicyViolation));
        assert!(topics.get_or_create("A.b_c-9").is_ok());
        assert_eq!(
            topics.get_or_create("one-more").err(),
            Some(ResponseError::PolicyViolation)
        );
        assert!(
            topics.get_or_create("A.b_c-9").is_ok(),
            "one that exists is not made again"
        );
        assert!(topics.partition("A.b_c-9", 1).is_ok());
        assert!(
            [2, -1]
                .iter()
                .all(|index| topics.partition("A.b_c-9", *index).is_err())
        );
    }
}
