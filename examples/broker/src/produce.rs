//! Produce: append to the leaders, then answer at once (acks=1), never (acks=0), or when the
//! in-sync replicas have it (acks=all).

use anyhow::ensure;
use kafka_protocol::{ResponseError, messages::produce_request::*, messages::produce_response::*};

use crate::replica_fetcher::{Follower, all_have};
use crate::replica_manager::{DelayedAnswer, ReplicaManager, Statuses, Wait};
use crate::{api::millis, counters::Counters, pipeline::Reply, topics::WatchKey::HighWatermark};

const ACKS_ALL: i16 = -1;

/// An acks=all produce that waits until the in-sync replicas have what it appended.
///
/// One operation for the whole request, checked when the high watermark of one of its partitions
/// has reached what it appended there.
pub(crate) type DelayedProduce = DelayedAnswer<ProduceResponse>;

/// Appends, and parks what must wait. A produce with acks=0 is not answered; when it failed that is
/// an error, and the connection is closed, as in Kafka: there is no other way to tell the client.
pub(crate) fn produce(
    manager: &ReplicaManager,
    request: ProduceRequest,
    reply: Reply,
) -> anyhow::Result<()> {
    let (acks, timeout) = (request.acks, millis(request.timeout_ms));
    let (response, waits) = append(manager, request);
    if acks == 0 {
        let mut statuses = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        ensure!(statuses.all(|status| status.error_code == 0), "a produce with acks=0 failed");
        reply.send_nothing();
        return Ok(());
    }
    if waits.is_empty() {
        reply.send(response);
        return Ok(());
    }
    manager.park_answer(&manager.produces, (response, waits, reply), HighWatermark, timeout);
    Ok(())
}

fn append(manager: &ReplicaManager, request: ProduceRequest) -> (ProduceResponse, Vec<Wait>) {
    let (mut response, mut waits) = (ProduceResponse::default(), Vec::new());
    for topic in request.topic_data {
        let mut statuses = Vec::new();
        for data in topic.partition_data {
            let mut status = PartitionProduceResponse::default().with_index(data.index);
            let records = data.records.unwrap_or_default();
            match manager.append(&topic.name, data.index, &records, request.acks) {
                Ok((partition, appended)) => {
                    status.base_offset = appended.base_offset;
                    status.log_start_offset = appended.log_start_offset;
                    if request.acks == ACKS_ALL {
                        status.error_code = ResponseError::RequestTimedOut.code();
                        let at = (response.responses.len(), statuses.len());
                        let required_offset = appended.required_offset;
                        waits.push(Wait { at, partition, required_offset });
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

impl Statuses for ProduceResponse {
    fn settle(&mut self, wait: &Wait, followers: &[Follower], counters: &Counters) -> bool {
        let (partition, offset) = (&wait.partition, wait.required_offset);
        let error_code = match partition.replicated(offset) {
            Ok(false) => return false,
            Ok(true) => 0,
            Err(error) => error.code(),
        };
        // The promise of acks=all, audited: what is acknowledged is in the in-sync followers' logs.
        if error_code == 0 && !all_have(followers, partition, offset) {
            counters.lock().acked_before_replicated += 1;
            let key = &partition.key;
            tracing::error!("{key} acknowledged up to {offset} before it was replicated");
        }
        *self.error_code(wait) = error_code;
        true
    }

    fn error_code(&mut self, wait: &Wait) -> &mut i16 {
        &mut self.responses[wait.at.0].partition_responses[wait.at.1].error_code
    }
}
