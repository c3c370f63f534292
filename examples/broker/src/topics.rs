//! The topics, made on first use or asked for: a bounded map, read on every produce and written once
//! a topic.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use dashmap::DashMap;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;

use crate::{args::Args, partition::Partition};

/// Shown as Kafka does: `topic-0`.
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

/// What parked operations are watched under: a watermark of a partition, which only rises, or the
/// connection whose client waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WatchKey {
    /// Every in-sync replica has the log up to there: acks=all produces, consumers' fetches.
    HighWatermark(TopicPartition),
    /// The leader's log ends there: followers' fetches.
    LogEnd(TopicPartition),
    /// Every in-sync replica has deleted the log up to there: delete-records.
    LowWatermark(TopicPartition),
    /// There are so many partitions of all topics: followers' fetches.
    Partitions,
    Connection(u64),
}

/// Its partitions, one at least.
pub(crate) type Topic = Arc<[Arc<Partition>]>;

/// How many partitions a topic may have.
pub(crate) const PARTITIONS: RangeInclusive<i32> = 1..=1000;

pub(crate) struct Topics {
    /// Partitions of a topic made on first use, or when the client leaves it to the broker.
    pub(crate) partitions: i32,
    topics: DashMap<Arc<str>, Topic>,
    /// Partitions of all topics. Held while a topic is made, so that the bounds are exact.
    partition_count: Mutex<usize>,
    partitions_max: usize,
    /// See [`Partition::new`].
    advance_min: usize,
}

impl Topics {
    pub(crate) fn new(args: &Args) -> Topics {
        Topics {
            partitions: args.partitions,
            topics: DashMap::new(),
            partition_count: Mutex::new(0),
            partitions_max: args.max_partitions.into(),
            advance_min: args.advance_min(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Topic> {
        self.topics.get(name).map(|topic| Arc::clone(&topic))
    }

    pub(crate) fn partition(
        &self,
        name: &str,
        index: i32,
    ) -> Result<Arc<Partition>, ResponseError> {
        let partition = |topic: Topic| topic.get(usize::try_from(index).ok()?).cloned();
        self.get(name).and_then(partition).ok_or(ResponseError::UnknownTopicOrPartition)
    }

    /// Of all topics.
    pub(crate) fn partition_count(&self) -> usize {
        *self.partition_count.lock()
    }

    pub(crate) fn all(&self) -> Vec<Topic> {
        self.topics.iter().map(|topic| Arc::clone(&topic)).collect()
    }

    /// As [`Topics::create`], with the partitions of a new topic; one that exists is not made again.
    pub(crate) fn get_or_create(&self, name: &str) -> Result<Topic, ResponseError> {
        if let Some(topic) = self.get(name) {
            return Ok(topic);
        }
        let created = self.create(name, self.partitions, false);
        created.or_else(|error| self.get(name).ok_or(error)) // made meanwhile
    }

    /// INVALID_TOPIC_EXCEPTION for a name against Kafka's rule, TOPIC_ALREADY_EXISTS,
    /// INVALID_PARTITIONS outside [`PARTITIONS`], POLICY_VIOLATION at the bounds. With
    /// `validate_only` the topic is looked at and not kept.
    pub(crate) fn create(
        &self,
        name: &str,
        partitions: i32,
        validate_only: bool,
    ) -> Result<Topic, ResponseError> {
        if !legal(name) {
            return Err(ResponseError::InvalidTopicException);
        }
        let mut partition_count = self.partition_count.lock();
        if self.topics.contains_key(name) {
            return Err(ResponseError::TopicAlreadyExists);
        }
        if !PARTITIONS.contains(&partitions) {
            return Err(ResponseError::InvalidPartitions);
        }
        let count = *partition_count + partitions.unsigned_abs() as usize;
        if count > self.partitions_max {
            return Err(ResponseError::PolicyViolation);
        }
        let name: Arc<str> = name.into();
        let key = |partition| TopicPartition { topic: Arc::clone(&name), partition };
        let partition = |index| Arc::new(Partition::new(key(index), self.advance_min));
        let topic: Topic = (0..partitions).map(partition).collect();
        if !validate_only {
            *partition_count = count;
            self.topics.insert(name, Arc::clone(&topic));
        }
        Ok(topic)
    }
}

/// Kafka's rule: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`.
fn legal(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rule_and_the_number_of_partitions_is_bounded() {
        let bounds = ["--partitions", "2", "--max-partitions", "5"];
        let topics = Topics::new(&crate::tests::args(&bounds));
        for name in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert_eq!(
                topics.get_or_create(name).err(),
                Some(ResponseError::InvalidTopicException),
                "{name:?}"
            );
        }
        assert_eq!(topics.get_or_create(&"x".repeat(249)).unwrap().len(), 2);
        assert_eq!(topics.create("large", 4, false).err(), Some(ResponseError::PolicyViolation));
        assert!(topics.create("large", 3, true).is_ok() && topics.get("large").is_none());
        assert!(topics.get_or_create("A.b_c-9").is_ok());
        assert_eq!(topics.get_or_create("one-more").err(), Some(ResponseError::PolicyViolation));
        assert!(topics.get_or_create("A.b_c-9").is_ok(), "one that exists is not made again");
        assert!(topics.partition("A.b_c-9", 1).is_ok());
        for index in [2, -1] {
            assert!(topics.partition("A.b_c-9", index).is_err());
        }
    }
}
