//! DeleteRecords: moves the leader's log start, then waits for the followers'.

use kafka_protocol::{
    ResponseError,
    messages::{
        DeleteRecordsRequest, DeleteRecordsResponse,
        delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
    },
};

use crate::{
    api::{Client, millis},
    delayed_delete_records::{DelayedDeleteRecords, Deletion},
    pipeline::Reply,
    replica_manager::ReplicaManager,
};

pub(crate) fn delete_records(
    manager: &ReplicaManager,
    client: &Client,
    request: DeleteRecordsRequest,
    reply: Reply,
) {
    let timeout = millis(request.timeout_ms);
    let (mut response, mut waits) = (DeleteRecordsResponse::default(), Vec::new());
    for topic in request.topics {
        let mut results = Vec::new();
        for asked in topic.partitions {
            let result = DeleteRecordsPartitionResult::default()
                .with_partition_index(asked.partition_index)
                .with_low_watermark(-1);
            let error =
                match manager.delete_records(&topic.name, asked.partition_index, asked.offset) {
                    Ok((partition, required_offset)) => {
                        let at = (response.topics.len(), results.len());
                        waits.push(Deletion { at, partition, required_offset });
                        ResponseError::RequestTimedOut
                    }
                    Err(error) => error,
                };
            results.push(result.with_error_code(error.code()));
        }
        let topic = DeleteRecordsTopicResult::default().with_name(topic.name);
        response.topics.push(topic.with_partitions(results));
    }
    let operation = DelayedDeleteRecords { response, waits, reply };
    let watermarks = operation.watermarks();
    ReplicaManager::park(
        &manager.delete_records,
        operation,
        &watermarks,
        client.connection,
        timeout,
    );
}
