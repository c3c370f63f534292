//! The topics, made on first use or asked for: a bounded map, read on every produce and written
//! once a topic.

use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed};
use std::{fmt, ops::RangeInclusive};

use clap::value_parser;
use dashmap::DashMap;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;

use crate::partition::{FOLLOWER_IDS, LEADER_ID};
use crate::{api::OrError, args::Args, partition::Partition};

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
    /// This replica has so many partitions of all topics: followers' fetches.
    Partitions(i32),
    Connection(u64),
}

/// What a topic is made with, and where it does not say, the options.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct TopicConfig {
    /// Partitions of a new topic
    #[arg(long, default_value_t = 3, value_parser = value_parser!(i32).range(1..=1000))]
    pub partitions: i32,

    /// Replicas that must be in sync for acks=all (the leader counts), where a topic does not say:
    /// min.insync.replicas. Of a topic with fewer replicas, all
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u8).range(1..=3))]
    pub min_insync_replicas: u8,

    /// The high watermark advances also while fewer than --min-insync-replicas are in sync (Kafka
    /// before 3.7): then acks=all ends as NOT_ENOUGH_REPLICAS_AFTER_APPEND, not at its time-out
    #[arg(long)]
    pub advance_below_min_isr: bool,

    /// Largest record batch in bytes, as it is compressed; a larger one is answered with
    /// MESSAGE_TOO_LARGE. A topic may have its own: max.message.bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_588)]
    #[arg(value_parser = value_parser!(u32).range(1..=(1 << 30)))]
    pub message_max_bytes: u32,

    /// Bytes a replica of a partition keeps in memory, three of them in one process; the oldest
    /// replicated records go first
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub max_log: usize,

    /// The leader counts.
    #[arg(skip = 1 + FOLLOWER_IDS.len() as u8)]
    pub(crate) replicas: u8,
}

impl TopicConfig {
    /// So many replicas must be in sync for acks=all: no more than there are.
    pub(crate) fn in_sync_min(&self) -> usize {
        self.min_insync_replicas.min(self.replicas).into()
    }

    /// Below so many the high watermark stands still.
    pub(crate) fn advance_min(&self) -> usize {
        if self.advance_below_min_isr { 1 } else { self.in_sync_min() }
    }
}

/// Its partitions, one at least.
pub(crate) type Topic = Arc<[Arc<Partition>]>;

/// How many partitions a topic may have.
pub(crate) const PARTITIONS: RangeInclusive<i32> = 1..=1000;

pub(crate) struct Topics {
    /// Of a topic made on first use, or when the client leaves it to the broker.
    pub(crate) defaults: TopicConfig,
    topics: DashMap<Arc<str>, Topic>,
    /// Partitions of all topics that have one replica at least, two, three. Held while a topic is
    /// made, so that the bounds are exact.
    partition_counts: Mutex<[usize; 1 + FOLLOWER_IDS.len()]>,
    partitions_max: usize,
    /// Of the leader's logs.
    log_bytes: Arc<AtomicUsize>,
    log_bytes_max: usize,
}

impl Topics {
    pub(crate) fn new(args: &Args) -> Topics {
        Topics {
            defaults: args.topic,
            topics: DashMap::new(),
            partition_counts: Mutex::default(),
            partitions_max: args.max_partitions.into(),
            log_bytes: Arc::default(),
            log_bytes_max: args.max_logs,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Topic> {
        self.topics.get(name).map(|topic| Arc::clone(&topic))
    }

    pub(crate) fn partition(&self, name: &str, index: i32) -> OrError<Arc<Partition>> {
        let partition = |topic: Topic| topic.get(usize::try_from(index).ok()?).cloned();
        self.get(name).and_then(partition).ok_or(ResponseError::UnknownTopicOrPartition)
    }

    /// Those of all topics that this replica has.
    pub(crate) fn partition_count(&self, replica: i32) -> usize {
        let index = usize::try_from(replica.saturating_sub(LEADER_ID)).unwrap_or(usize::MAX);
        self.partition_counts.lock().get(index).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> Vec<Topic> {
        self.topics.iter().map(|topic| Arc::clone(&topic)).collect()
    }

    /// Makes room for so many bytes in the logs: the largest ones give up their oldest replicated
    /// records. KAFKA_STORAGE_ERROR when the largest has none.
    pub(crate) fn make_room(&self, bytes: usize) -> OrError<()> {
        while self.log_bytes.load(Relaxed) + bytes > self.log_bytes_max {
            let topics = self.all();
            let partitions = topics.iter().flat_map(|topic| topic.iter());
            let largest = partitions.max_by_key(|partition| partition.log_bytes());
            refuse!(!largest.is_some_and(|log| log.trim()), KafkaStorageError);
        }
        Ok(())
    }

    /// As [`Topics::create`], with the defaults; one that exists is not made again.
    pub(crate) fn get_or_create(&self, name: &str) -> OrError<Topic> {
        if let Some(topic) = self.get(name) {
            return Ok(topic);
        }
        let created = self.create(name, self.defaults, false);
        created.or_else(|error| self.get(name).ok_or(error)) // made meanwhile
    }

    /// INVALID_TOPIC_EXCEPTION for a name against Kafka's rule, TOPIC_ALREADY_EXISTS,
    /// INVALID_PARTITIONS outside [`PARTITIONS`], POLICY_VIOLATION at the bounds. With
    /// `validate` the topic is looked at and not kept.
    pub(crate) fn create(&self, name: &str, config: TopicConfig, validate: bool) -> OrError<Topic> {
        refuse!(!legal(name), InvalidTopicException);
        let mut counts = self.partition_counts.lock();
        refuse!(self.topics.contains_key(name), TopicAlreadyExists);
        refuse!(!PARTITIONS.contains(&config.partitions), InvalidPartitions);
        let new = config.partitions.unsigned_abs() as usize;
        refuse!(counts[0] + new > self.partitions_max, PolicyViolation);
        let name: Arc<str> = name.into();
        let key = |partition| TopicPartition { topic: Arc::clone(&name), partition };
        let partition = |index| Arc::new(Partition::new(key(index), config, &self.log_bytes));
        let topic: Topic = (0..config.partitions).map(partition).collect();
        if !validate {
            counts.iter_mut().take(config.replicas.into()).for_each(|count| *count += new);
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
        let with = |partitions| TopicConfig { partitions, ..topics.defaults };
        let too_many = topics.create("large", with(4), false).err();
        assert_eq!(too_many, Some(ResponseError::PolicyViolation));
        assert!(topics.create("large", with(3), true).is_ok() && topics.get("large").is_none());
        assert!(topics.get_or_create("A.b_c-9").is_ok());
        assert_eq!(topics.get_or_create("one-more").err(), Some(ResponseError::PolicyViolation));
        assert!(topics.get_or_create("A.b_c-9").is_ok(), "one that exists is not made again");
        assert!(topics.partition("A.b_c-9", 1).is_ok());
        for index in [2, -1] {
            assert!(topics.partition("A.b_c-9", index).is_err());
        }
    }
}
