//! The two follower replicas: each a thread that fetches from the leader into logs of its own, as
//! a follower process would.
//!
//! The leader learns of a follower's progress from the offset of its *next* fetch, so a round that
//! brought news is followed by another; after one without the follower waits for an append or a
//! deletion.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use dashmap::DashMap;

use crate::{
    batch::RecordBatch,
    fetch::FETCH_BYTES_MAX,
    log::Log,
    partition::{Partition, UpTo},
    replica_manager::ReplicaManager,
    topics::TopicPartition,
};

/// How long a follower waits for an append (Kafka's `replica.fetch.wait.max.ms`).
const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Followers {
    /// None when they are processes of their own.
    pub(crate) followers: Vec<Follower>,
    paused: AtomicBool,
}

pub(crate) struct Follower {
    pub(crate) id: i32,
    logs: DashMap<TopicPartition, Log>,
}

impl Followers {
    pub(crate) fn new(ids: &[i32], paused: bool) -> Followers {
        let followers = ids.iter().map(|&id| Follower::new(id)).collect();
        Followers { followers, paused: AtomicBool::new(paused) }
    }

    /// Takes effect at the next fetch.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether the in-sync followers really have `partition` up to `offset`: read from their own
    /// logs, not from what the leader believes; those of other processes are out of sight.
    pub(crate) fn have(&self, partition: &Partition, offset: i64) -> bool {
        let in_sync = partition.in_sync_followers();
        let mut in_sync = self.followers.iter().filter(|follower| in_sync.contains(&follower.id));
        in_sync.all(|follower| follower.log_range(&partition.key).1 >= offset)
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
    pub(crate) fn new(id: i32) -> Follower {
        Follower { id, logs: DashMap::new() }
    }

    /// Its log start offset and its log end offset.
    pub(crate) fn log_range(&self, key: &TopicPartition) -> (i64, i64) {
        let log = self.logs.get(key);
        log.map_or((0, 0), |log| (log.log_start_offset(), log.log_end_offset()))
    }

    /// Fetches every partition once; returns whether that brought news.
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
        let (start, end) = self.log_range(&partition.key);
        // Completes produces, whose audit reads these logs: no lock of theirs is held here.
        manager.note_fetch(partition, self.id, start, end);
        // An offset that is gone: the new log start says where to go on.
        let read = partition.read(end, UpTo::LogEnd, FETCH_BYTES_MAX, true);
        let (batches, leaders_start) = (read.unwrap_or_default(), partition.offsets().log_start);
        self.append(&partition.key, batches, leaders_start)
    }

    /// Appends what a fetch brought; true when that was news.
    pub(crate) fn append(
        &self,
        key: &TopicPartition,
        batches: impl IntoIterator<Item = RecordBatch>,
        leaders_start: i64,
    ) -> bool {
        let before = self.log_range(key);
        let mut log = self.logs.entry(key.clone()).or_default();
        batches.into_iter().for_each(|batch| log.append(batch));
        log.start_at(leaders_start);
        (log.log_start_offset(), log.log_end_offset()) != before
    }

    /// Forgets everything.
    pub(crate) fn begin_anew(&self) {
        self.logs.clear();
    }
}
