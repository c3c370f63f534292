//! `DelayedProduce`: an acks=all produce that waits until the in-sync replicas have what it
//! appended.
//!
//! One operation for the whole request, checked when the high watermark of one of its partitions has
//! reached what it appended there. Every waiting partition starts with REQUEST_TIMED_OUT in the
//! response, so an expired operation has nothing to decide: what was not replicated in time keeps it.

use std::sync::Arc;

use kafka_protocol::{
    ResponseError,
    messages::{ProduceResponse, produce_response::PartitionProduceResponse},
};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::{
    counters::Counters,
    follower::Followers,
    partition::{Partition, Replication},
    pipeline::Reply,
    topics::WatchKey,
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
    /// Handing over the response never blocks; the connection's writer writes it.
    pub(crate) reply: Reply,
}

impl DelayedProduce {
    /// The high watermarks to wait for.
    pub(crate) fn watermarks(&self) -> Vec<(WatchKey, u64)> {
        let watermark = |wait: &Wait| {
            let key = WatchKey::HighWatermark(wait.partition.key.clone());
            (key, wait.required_offset.cast_unsigned()) // an offset is never negative
        };
        self.waits.iter().map(watermark).collect()
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
        self.reply.send(&self.response);
    }
}
