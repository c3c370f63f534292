//! Produce appends to the leader's logs, and is answered at once (acks=1), never (acks=0), or when
//! the in-sync replicas have the records (acks=all). DeleteRecords deletes at the leader at once;
//! its answer waits for the followers.

use std::sync::atomic::Ordering::Relaxed;

use anyhow::ensure;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    InitProducerIdRequest, InitProducerIdResponse, delete_records_request::*,
    delete_records_response::*, produce_request::*, produce_response::*,
};

use crate::replica_fetcher::{Follower, all_have};
use crate::replica_manager::{DelayedAnswer, Place, ReplicaManager, Statuses, Wait};
use crate::topics::WatchKey::{HighWatermark, LowWatermark};
use crate::{api::millis, reply::Reply, server::Counters};

const ACKS_ALL: i16 = -1;

/// An acks=all produce that waits until the in-sync replicas have its records.
///
/// It is one operation for the whole request, checked when the high watermark of one of its
/// partitions has advanced.
pub(crate) type DelayedProduce = DelayedAnswer<ProduceResponse>;

/// Appends the records, and parks the answer if it must wait. A produce with acks=0 is not
/// answered; if it fails, this returns an error and the connection is closed, as in Kafka: the
/// client has no other way to learn of the failure.
pub(crate) fn produce(
    manager: &ReplicaManager,
    request: ProduceRequest,
    reply: Reply,
) -> anyhow::Result<()> {
    let acks = request.acks;
    let timeout = millis(request.timeout_ms);
    let (response, waits) = append(manager, request);
    // Send no response, send it at once, or when the replicas have the records.
    if acks == 0 {
        let topics = response.responses.iter();
        let mut statuses = topics.flat_map(|topic| &topic.partition_responses);
        let all_right = statuses.all(|status| status.error_code == 0);
        ensure!(all_right, "a produce with acks=0 failed");
        reply.send_nothing();
    } else if waits.is_empty() {
        reply.send(response);
    } else {
        let answer = manager.delayed(response, waits, reply);
        manager.park_answer(&manager.produces, answer, HighWatermark, timeout);
    }
    Ok(())
}

/// Appends the request's records to their partitions. Returns the response, and the partitions in
/// it that wait for their replicas.
fn append(manager: &ReplicaManager, request: ProduceRequest) -> (ProduceResponse, Vec<Wait>) {
    let mut response = ProduceResponse::default();
    let mut waits = Vec::new();
    for topic in request.topic_data {
        let mut statuses = Vec::new();
        for data in topic.partition_data {
            let mut status = PartitionProduceResponse::default().with_index(data.index);
            let records = data.records.unwrap_or_default();
            // Each partition succeeds or fails by itself.
            match manager.append(&topic.name, data.index, &records, request.acks) {
                Ok((partition, appended)) => {
                    status.base_offset = appended.base_offset;
                    status.log_start_offset = appended.log_start_offset;
                    if request.acks == ACKS_ALL {
                        // This error stays if the wait times out.
                        status.error_code = ResponseError::RequestTimedOut.code();
                        waits.push(Wait {
                            place: Place {
                                topic: response.responses.len(),
                                partition: statuses.len(),
                            },
                            partition,
                            required_offset: appended.required_offset,
                        });
                    }
                }
                Err(error) => {
                    status.error_code = error.code();
                    status.base_offset = -1;
                }
            }
            statuses.push(status);
        }
        let topic = TopicProduceResponse::default().with_name(topic.name);
        response
            .responses
            .push(topic.with_partition_responses(statuses));
    }
    (response, waits)
}

impl Statuses for ProduceResponse {
    fn try_complete(&mut self, wait: &Wait, followers: &[Follower], counters: &Counters) -> bool {
        let partition = &wait.partition;
        let offset = wait.required_offset;
        if partition.offsets().high_watermark < offset {
            return false;
        }
        // Audit the promise of acks=all: the in-sync followers' logs have all acknowledged records.
        if !all_have(followers, partition, offset) {
            counters.lock().acked_before_replicated += 1;
            let key = &partition.key;
            tracing::error!("{key} acknowledged up to {offset} before it was replicated");
        }
        *self.error_code(wait) = 0;
        true
    }

    fn error_code(&mut self, wait: &Wait) -> &mut i16 {
        let place = &wait.place;
        let topic = &mut self.responses[place.topic];
        &mut topic.partition_responses[place.partition].error_code
    }
}

/// A deletion that waits until the in-sync replicas have deleted the same records as the leader:
/// until the low watermark of each partition has reached its offset.
pub(crate) type DelayedDeleteRecords = DelayedAnswer<DeleteRecordsResponse>;

/// Deletes records at the leader, and parks the answer until the in-sync followers have deleted
/// them.
pub(crate) fn delete_records(
    manager: &ReplicaManager,
    request: DeleteRecordsRequest,
    reply: Reply,
) {
    let timeout = millis(request.timeout_ms);
    let mut response = DeleteRecordsResponse::default();
    let mut waits = Vec::new();
    for topic in request.topics {
        let mut results = Vec::new();
        for asked in topic.partitions {
            let index = asked.partition_index;
            let result = DeleteRecordsPartitionResult::default().with_partition_index(index);
            // Each partition succeeds or fails by itself; the leader deletes now.
            let error = match manager.delete_records(&topic.name, index, asked.offset) {
                Ok((partition, required_offset)) => {
                    waits.push(Wait {
                        place: Place {
                            topic: response.topics.len(),
                            partition: results.len(),
                        },
                        partition,
                        required_offset,
                    });
                    // This error stays if the wait times out.
                    ResponseError::RequestTimedOut
                }
                Err(error) => error,
            };
            results.push(result.with_low_watermark(-1).with_error_code(error.code()));
        }
        let topic = DeleteRecordsTopicResult::default().with_name(topic.name);
        response.topics.push(topic.with_partitions(results));
    }
    let answer = manager.delayed(response, waits, reply);
    manager.park_answer(&manager.delete_records, answer, LowWatermark, timeout);
}

impl Statuses for DeleteRecordsResponse {
    fn try_complete(&mut self, wait: &Wait, _: &[Follower], _: &Counters) -> bool {
        // No in-sync log starts before the low watermark.
        let low_watermark = wait.partition.offsets().low_watermark;
        if low_watermark < wait.required_offset {
            return false;
        }
        let place = &wait.place;
        let result = &mut self.topics[place.topic].partitions[place.partition];
        result.error_code = 0;
        result.low_watermark = low_watermark;
        true
    }

    fn error_code(&mut self, wait: &Wait) -> &mut i16 {
        let place = &wait.place;
        &mut self.topics[place.topic].partitions[place.partition].error_code
    }
}

/// Hands out a producer id, so that clients that are idempotent by default go on. Sequence numbers
/// are ignored: a batch that comes again is appended again. Transactions are refused with an error
/// that clients do not retry.
pub(crate) fn init_producer_id(
    manager: &ReplicaManager,
    request: &InitProducerIdRequest,
) -> InitProducerIdResponse {
    let response = InitProducerIdResponse::default();
    if request.transactional_id.is_some() {
        let error = ResponseError::TransactionalIdAuthorizationFailed;
        return response.with_error_code(error.code());
    }
    response.with_producer_id(manager.producer_ids.fetch_add(1, Relaxed).into())
}
