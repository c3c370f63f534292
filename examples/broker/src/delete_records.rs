//! DeleteRecords: the leader deletes at once; the answer waits for the followers.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{delete_records_request::*, delete_records_response::*};

use crate::replica_fetcher::Follower;
use crate::replica_manager::{DelayedAnswer, ReplicaManager, Statuses, Wait};
use crate::{api::millis, counters::Counters, pipeline::Reply, topics::WatchKey::LowWatermark};

/// Waits until the in-sync replicas have deleted, too, what the leader deleted: until the low
/// watermark of each partition is there.
pub(crate) type DelayedDeleteRecords = DelayedAnswer<DeleteRecordsResponse>;

pub(crate) fn delete_records(
    manager: &ReplicaManager,
    request: DeleteRecordsRequest,
    reply: Reply,
) {
    let timeout = millis(request.timeout_ms);
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
    manager.park_answer(&manager.delete_records, (response, waits, reply), LowWatermark, timeout);
}

impl Statuses for DeleteRecordsResponse {
    fn settle(&mut self, wait: &Wait, _: &[Follower], _: &Counters) -> bool {
        let low_watermark = wait.partition.offsets().low_watermark;
        let settled = low_watermark >= wait.required_offset;
        if settled {
            let result = &mut self.topics[wait.at.0].partitions[wait.at.1];
            (result.error_code, result.low_watermark) = (0, low_watermark);
        }
        settled
    }

    fn error_code(&mut self, wait: &Wait) -> &mut i16 {
        &mut self.topics[wait.at.0].partitions[wait.at.1].error_code
    }
}
