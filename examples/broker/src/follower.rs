//! The two follower replicas: each a thread that fetches from the leader into logs of its own, as
//! a follower process would.
//!
//! The leader learns of a follower's progress from the offset of its *next* fetch, so a round that
//! brought records is followed by another; after an empty one the follower waits for an append.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use dashmap::DashMap;

use crate::{
    log::Log,
    partition::{FOLLOWER_IDS, Partition},
    replica_manager::ReplicaManager,
    topics::TopicPartition,
};

/// How long a follower waits for an append (Kafka's `replica.fetch.wait.max.ms`).
const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Followers {
    pub(crate) followers: [Follower; FOLLOWER_IDS.len()],
    paused: AtomicBool,
}

pub(crate) struct Follower {
    id: i32,
    logs: DashMap<TopicPartition, Log>,
}

impl Followers {
    pub(crate) fn new(paused: bool) -> Followers {
        let followers = FOLLOWER_IDS.map(|id| Follower { id, logs: DashMap::new() });
        Followers { followers, paused: AtomicBool::new(paused) }
    }

    /// Takes effect at the next fetch.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether the in-sync followers really have `partition` up to `offset`: read from their own
    /// logs, not from what the leader believes.
    pub(crate) fn have(&self, partition: &Partition, offset: i64) -> bool {
        let in_sync = partition.in_sync_followers();
        let mut in_sync = self.followers.iter().filter(|follower| in_sync.contains(&follower.id));
        in_sync.all(|follower| follower.log_end_offset(&partition.key) >= offset)
    }

    /// One follower's thread, until the signal stops.
    pub(crate) fn run(&self, follower: usize, manager: &ReplicaManager) {
        let (signal, follower) = (&manager.signal, &self.followers[follower]);
        while !signal.stopped() {
            let seen = signal.generation();
            if self.paused.load(Relaxed) || !follower.fetch_all(manager) {
                signal.wait_past(seen, FETCH_WAIT_MAX);
            }
            signal.pause(manager.args.follower_interval);
        }
    }
}

impl Follower {
    pub(crate) fn log_end_offset(&self, key: &TopicPartition) -> i64 {
        self.logs.get(key).map_or(0, |log| log.log_end_offset())
    }

    /// Fetches every partition once; returns whether that brought records.
    fn fetch_all(&self, manager: &ReplicaManager) -> bool {
        let mut brought = false;
        for topic in manager.topics.all() {
            for partition in &topic.partitions {
                brought |= self.fetch(partition, manager);
            }
        }
        brought
    }

    pub(crate) fn fetch(&self, partition: &Partition, manager: &ReplicaManager) -> bool {
        let offset = self.log_end_offset(&partition.key);
        // Completes produces, whose audit reads these logs: no lock of theirs is held here.
        let fetched = manager.fetch_as_follower(partition, self.id, offset);
        let brought = !fetched.batches.is_empty();
        if brought {
            let mut log = self.logs.entry(partition.key.clone()).or_default();
            log.start_at(fetched.log_start_offset);
            fetched.batches.into_iter().for_each(|batch| log.append(batch));
        }
        brought
    }
}
