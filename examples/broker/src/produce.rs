//! Produce: append to the leaders, then answer at once (acks=1), never (acks=0), or when the
//! in-sync replicas have it (acks=all).

use std::sync::Arc;

use anyhow::ensure;
use kafka_protocol::ResponseError::{self, NotLeaderOrFollower, UnknownServerError};
use kafka_protocol::messages::{produce_request::*, produce_response::*};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::replica_fetcher::{Follower, all_have};
use crate::replica_manager::{ReplicaManager, Wait, park_up_to, watermarks};
use crate::{api::millis, counters::Counters, pipeline::Reply, topics::WatchKey};

const ACKS_ALL: i16 = -1;

/// An acks=all produce that waits until the in-sync replicas have what it appended.
///
/// One operation for the whole request, checked when the high watermark of one of its partitions
/// has reached what it appended there. Every waiting partition starts with REQUEST_TIMED_OUT in the
/// response, so an expired operation has nothing to decide: what was not replicated in time keeps
/// it.
pub(crate) struct DelayedProduce {
    response: ProduceResponse,
    waits: Vec<Wait>,
    followers: Arc<[Follower]>,
    counters: Arc<Counters>,
    reply: Reply,
}

/// Appends, and parks what must wait. A produce with acks=0 is not answered; when it failed that is
/// an error, and the connection is closed, as in Kafka: there is no other way to tell the client.
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
        followers: Arc::clone(&manager.followers),
        counters: Arc::clone(&manager.counters),
        reply,
    };
    let watermarks = watermarks(&operation.waits, WatchKey::HighWatermark);
    let connection = operation.reply.pipeline.connection;
    park_up_to(&manager.produces, operation, &watermarks, connection, timeout);
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

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.waits.retain(|wait| {
            let (partition, offset) = (&wait.partition, wait.required_offset);
            let error_code = match partition.replicated(offset) {
                Ok(false) => return true,
                Ok(true) => 0,
                Err(error) => error.code(),
            };
            // The promise of acks=all, audited: what is acknowledged is in the in-sync followers'
            // logs.
            if error_code == 0 && !all_have(&self.followers, partition, offset) {
                self.counters.lock().acked_before_replicated += 1;
                let key = &partition.key;
                tracing::error!("{key} acknowledged up to {offset} before it was replicated");
            }
            status(&mut self.response, wait).error_code = error_code;
            false
        });
        self.waits.is_empty()
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("produce to {} topics: {outcome:?}", self.response.responses.len());
        if let Outcome::Cancelled(reason) = outcome {
            // Shutting down: Kafka's leader moves away and says so; clients retry.
            let shutdown = matches!(reason, CancelReason::Shutdown | CancelReason::Dropped);
            let error = if shutdown { NotLeaderOrFollower } else { UnknownServerError };
            for wait in &self.waits {
                status(&mut self.response, wait).error_code = error.code();
            }
        }
        self.reply.send(&self.response);
    }
}

fn status<'a>(response: &'a mut ProduceResponse, wait: &Wait) -> &'a mut PartitionProduceResponse {
    &mut response.responses[wait.at.0].partition_responses[wait.at.1]
}
