//! DeleteRecords: the leader deletes at once; the answer waits for the followers.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{delete_records_request::*, delete_records_response::*};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::replica_manager::{ReplicaManager, Wait, park_up_to, watermarks};
use crate::{api::millis, pipeline::Reply, topics::WatchKey};

/// Waits until the in-sync replicas have deleted, too, what the leader deleted: until the low
/// watermark of each partition is there.
///
/// As with a produce, every waiting partition starts with REQUEST_TIMED_OUT in the response.
pub(crate) struct DelayedDeleteRecords {
    response: DeleteRecordsResponse,
    waits: Vec<Wait>,
    reply: Reply,
}

pub(crate) fn delete_records(
    manager: &ReplicaManager,
    request: DeleteRecordsRequest,
    reply: Reply,
) {
    let (timeout, connection) = (millis(request.timeout_ms), reply.pipeline.connection);
    let (mut response, mut waits) = (DeleteRecordsResponse::default(), Vec::new());
    for topic in request.topics {
        let mut results = Vec::new();
        for asked in topic.partitions {
            let index = asked.partition_index;
            let result = DeleteRecordsPartitionResult::default().with_partition_index(index);
            let error = match manager.delete_records(&topic.name, index, asked.offset) {
                Ok((partition, required_offset)) => {
                    let at = (response.topics.len(), results.len());
                    waits.push(Wait { at, partition, required_offset });
                    ResponseError::RequestTimedOut
                }
                Err(error) => error,
            };
            results.push(result.with_low_watermark(-1).with_error_code(error.code()));
        }
        let topic = DeleteRecordsTopicResult::default().with_name(topic.name);
        response.topics.push(topic.with_partitions(results));
    }
    let watermarks = watermarks(&waits, WatchKey::LowWatermark);
    let operation = DelayedDeleteRecords { response, waits, reply };
    park_up_to(&manager.delete_records, operation, &watermarks, connection, timeout);
}

impl DelayedOperation for DelayedDeleteRecords {
    fn try_complete(&mut self) -> bool {
        self.waits.retain(|wait| {
            let low_watermark = wait.partition.offsets().low_watermark;
            let waits = low_watermark < wait.required_offset;
            if !waits {
                let result = &mut self.response.topics[wait.at.0].partitions[wait.at.1];
                (result.error_code, result.low_watermark) = (0, low_watermark);
            }
            waits
        });
        self.waits.is_empty()
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("delete-records: {outcome:?}");
        if let Outcome::Cancelled(CancelReason::Shutdown | CancelReason::Dropped) = outcome {
            for wait in &self.waits {
                let result = &mut self.response.topics[wait.at.0].partitions[wait.at.1];
                result.error_code = ResponseError::NotLeaderOrFollower.code();
            }
        }
        self.reply.send(&self.response);
    }
}
