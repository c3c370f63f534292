//! `DelayedProduce`: an acks=all produce that waits until the in-sync replicas have what it
//! appended.
//!
//! One operation for the whole request, checked when the high watermark of one of its partitions has
//! reached what it appended there. Every waiting partition starts with REQUEST_TIMED_OUT in the response, so an expired operation has nothing to
//! decide: what was not replicated in time keeps it.

use std::sync::{Arc, mpsc::SyncSender};

use kafka_protocol::{
    ResponseError,
    messages::{ProduceResponse, produce_response::PartitionProduceResponse},
};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::{
    counters::Counters,
    follower::Followers,
    partition::{Partition, Replication},
    topics::TopicPartition,
};

/// One partition of the request that waits, or waited, for its replicas.
pub(crate) struct Wait {
    /// Where it is in the response: topic, partition.
    pub(crate) at: (usize, usize),
    pub(crate) partition: Arc<Partition>,
    pub(crate) required_offset: i64,
    pub(crate) pending: bool,
}

impl Wait {
    fn status<'a>(&self, response: &'a mut ProduceResponse) -> &'a mut PartitionProduceResponse {
        &mut response.responses[self.at.0].partition_responses[self.at.1]
    }
}

pub(crate) struct DelayedProduce {
    pub(crate) response: ProduceResponse,
    pub(crate) waits: Vec<Wait>,
    pub(crate) min_insync_replicas: usize,
    pub(crate) followers: Arc<Followers>,
    pub(crate) counters: Arc<Counters>,
    /// Has room for the one response, so handing it over never blocks; the connection's thread
    /// takes it and writes it.
    pub(crate) reply: SyncSender<ProduceResponse>,
}

impl DelayedProduce {
    /// The high watermarks to wait for.
    pub(crate) fn watermarks(&self) -> Vec<(TopicPartition, u64)> {
        let required = |wait: &Wait| wait.required_offset.cast_unsigned(); // an offset is never negative
        self.waits.iter().map(|wait| (wait.partition.key.clone(), required(wait))).collect()
    }

    /// The promise of acks=all, audited: what is acknowledged is in the in-sync followers' logs.
    fn audit(&mut self) {
        for wait in &self.waits {
            let acknowledged = wait.status(&mut self.response).error_code == 0;
            if acknowledged && !self.followers.have(&wait.partition, wait.required_offset) {
                self.counters.lock().acked_before_replicated += 1;
                let (key, offset) = (&wait.partition.key, wait.required_offset);
                tracing::error!("{key} acknowledged up to {offset} before it was replicated");
            }
        }
    }
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        for wait in self.waits.iter_mut().filter(|wait| wait.pending) {
            let error_code =
                match wait.partition.replication(wait.required_offset, self.min_insync_replicas) {
                    Replication::Pending => continue,
                    Replication::Enough => 0,
                    Replication::TooFewInSync => ResponseError::NotEnoughReplicasAfterAppend.code(),
                };
            wait.pending = false;
            wait.status(&mut self.response).error_code = error_code;
        }
        self.waits.iter().all(|wait| !wait.pending)
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("produce to {} partitions: {outcome:?}", self.waits.len());
        if let Outcome::Cancelled(reason) = outcome {
            let error = match reason {
                // Shutting down. Kafka's leader moves away and says so; clients retry.
                CancelReason::Shutdown => ResponseError::NotLeaderOrFollower,
                _ => ResponseError::UnknownServerError,
            };
            for wait in self.waits.iter().filter(|wait| wait.pending) {
                wait.status(&mut self.response).error_code = error.code();
            }
        }
        self.audit();
        // A connection that is gone takes no response.
        let _ = self.reply.try_send(self.response);
    }
}
