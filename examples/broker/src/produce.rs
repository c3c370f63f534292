//! Produce: append to the leaders, then answer at once (acks=1), never (acks=0), or when the
//! in-sync replicas have it (acks=all).

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context, ensure};
use kafka_protocol::{
    ResponseError,
    messages::{
        ProduceRequest, ProduceResponse,
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
    },
};
use purgatory::{CancelReason, DelayedOperation, Outcome, Watches};

use crate::{
    delayed_produce::{DelayedProduce, Wait},
    replica_manager::ReplicaManager,
};

const ACKS_ALL: i16 = -1;

/// `None`: acks=0, the client expects no response. When such a produce failed the connection is
/// closed, as in Kafka: there is no other way to tell the client.
pub(crate) fn produce(
    manager: &ReplicaManager,
    request: ProduceRequest,
    version: i16,
) -> anyhow::Result<Option<ProduceResponse>> {
    let acks = request.acks;
    let response = start(manager, request, version).recv().context("ended without an answer")?;
    if acks != 0 {
        return Ok(Some(response));
    }
    let mut statuses = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    ensure!(statuses.all(|status| status.error_code == 0), "a produce with acks=0 failed");
    Ok(None)
}

/// Appends, and parks what must wait; the response is received when it is final.
pub(crate) fn start(
    manager: &ReplicaManager,
    request: ProduceRequest,
    version: i16,
) -> mpsc::Receiver<ProduceResponse> {
    // A negative timeout is over at once, as in Kafka.
    let timeout = Duration::from_millis(request.timeout_ms.try_into().unwrap_or(0));
    let (response, waits) = append(manager, request, version);
    let (reply, answer) = mpsc::sync_channel(1);
    let operation = DelayedProduce {
        response,
        waits,
        min_insync_replicas: manager.args.min_insync_replicas.into(),
        followers: Arc::clone(&manager.followers),
        counters: Arc::clone(&manager.counters),
        reply,
    };
    let watermarks = operation.watermarks();
    if watermarks.is_empty() {
        operation.on_complete(Outcome::Completed);
        return answer;
    }
    // In the check form: a partition that is replicated may still have too few replicas in sync.
    let watches = Watches::up_to(&watermarks).checked();
    if let Err(refused) = manager.produces.try_complete_else_watch(operation, watches, timeout) {
        refused.operation.on_complete(Outcome::Cancelled(CancelReason::Shutdown));
    }
    answer
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
