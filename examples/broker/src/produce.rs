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

use crate::{
    api::{Client, millis},
    delayed_produce::{DelayedProduce, Wait},
    pipeline::Reply,
    replica_manager::ReplicaManager,
};

const ACKS_ALL: i16 = -1;

/// Appends, and parks what must wait. A produce with acks=0 is not answered; when it failed that is an
/// error, and the connection is closed, as in Kafka: there is no other way to tell the client.
pub(crate) fn produce(
    manager: &ReplicaManager,
    client: &Client,
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
    let connection = client.connection;
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
