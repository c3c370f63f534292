//! Produce: append to the leaders, then answer at once (acks=1), never (acks=0), or when the
//! in-sync replicas have it (acks=all).

use std::sync::Arc;

use anyhow::ensure;
use kafka_protocol::{
    ResponseError,
    messages::{
        ProduceRequest, ProduceResponse,
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
    },
};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::{
    api::millis,
    counters::Counters,
    partition::{Partition, Replication},
    pipeline::Reply,
    replica_fetcher::{Follower, all_have},
    replica_manager::ReplicaManager,
    topics::WatchKey,
};

const ACKS_ALL: i16 = -1;

/// An acks=all produce that waits until the in-sync replicas have what it appended.
///
/// One operation for the whole request, checked when the high watermark of one of its partitions has
/// reached what it appended there. Every waiting partition starts with REQUEST_TIMED_OUT in the
/// response, so an expired operation has nothing to decide: what was not replicated in time keeps it.
pub(crate) struct DelayedProduce {
    response: ProduceResponse,
    waits: Vec<Wait>,
    min_insync_replicas: usize,
    followers: Arc<[Follower]>,
    counters: Arc<Counters>,
    reply: Reply,
}

/// One partition of the request that waits, or waited, for its replicas.
struct Wait {
    /// Where it is in the response: topic, partition.
    at: (usize, usize),
    partition: Arc<Partition>,
    required_offset: i64,
    pending: bool,
}

/// Appends, and parks what must wait. A produce with acks=0 is not answered; when it failed that is an
/// error, and the connection is closed, as in Kafka: there is no other way to tell the client.
pub(crate) fn produce(
    manager: &ReplicaManager,
    request: ProduceRequest,
    reply: Reply,
) -> anyhow::Result<()> {
    let (acks, timeout) = (request.acks, millis(request.timeout_ms));
    let (response, waits) = append(manager, request, reply.version);
    if acks == 0 {
        let mut statuses = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        ensure!(statuses.all(|status| status.error_code == 0), "a produce with acks=0 failed");
        reply.send_nothing();
        return Ok(());
    }
    if waits.is_empty() {
        reply.send(&response);
        return Ok(());
    }
    let operation = DelayedProduce {
        response,
        waits,
        min_insync_replicas: manager.args.min_insync_replicas.into(),
        followers: Arc::clone(&manager.followers),
        counters: Arc::clone(&manager.counters),
        reply,
    };
    let watermarks = operation.watermarks();
    let connection = operation.reply.connection();
    ReplicaManager::park(&manager.produces, operation, &watermarks, connection, timeout);
    Ok(())
}

fn append(
    manager: &ReplicaManager,
    request: ProduceRequest,
    version: i16,
) -> (ProduceResponse, Vec<Wait>) {
    let (mut response, mut waits) = (ProduceResponse::default(), Vec::new());
    for topic in request.topic_data {
        let mut statuses = Vec::new();
        for data in topic.partition_data {
            let mut status = PartitionProduceResponse::default().with_index(data.index);
            let records = data.records.unwrap_or_default();
            match manager.append(&topic.name, data.index, &records, request.acks) {
                Ok((partition, appended)) => {
                    status.base_offset = appended.base_offset;
                    if version >= 5 {
                        status.log_start_offset = appended.log_start_offset;
                    }
                    if request.acks == ACKS_ALL {
                        status.error_code = ResponseError::RequestTimedOut.code();
                        waits.push(Wait {
                            at: (response.responses.len(), statuses.len()),
                            partition,
                            required_offset: appended.required_offset,
                            pending: true,
                        });
                    }
                }
                Err(error) => (status.error_code, status.base_offset) = (error.code(), -1),
            }
            statuses.push(status);
        }
        let topic = TopicProduceResponse::default().with_name(topic.name);
        response.responses.push(topic.with_partition_responses(statuses));
    }
    (response, waits)
}

impl Wait {
    fn status<'a>(&self, response: &'a mut ProduceResponse) -> &'a mut PartitionProduceResponse {
        &mut response.responses[self.at.0].partition_responses[self.at.1]
    }
}

impl DelayedProduce {
    /// The high watermarks to wait for.
    fn watermarks(&self) -> Vec<(WatchKey, u64)> {
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
            if acknowledged && !all_have(&self.followers, &wait.partition, wait.required_offset) {
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
