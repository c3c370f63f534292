//! `DelayedDeleteRecords`: waits until the in-sync replicas have deleted, too, what the leader
//! deleted: until the low watermark of each partition is there.
//!
//! As with a produce, every waiting partition starts with REQUEST_TIMED_OUT in the response.

use std::sync::Arc;

use kafka_protocol::{
    ResponseError,
    messages::{DeleteRecordsResponse, delete_records_response::DeleteRecordsPartitionResult},
};
use purgatory::{CancelReason, DelayedOperation, Outcome};

use crate::{partition::Partition, pipeline::Reply, topics::WatchKey};

pub(crate) struct DelayedDeleteRecords {
    pub(crate) response: DeleteRecordsResponse,
    pub(crate) waits: Vec<Deletion>,
    pub(crate) reply: Reply,
}

/// One partition whose replicas are waited for.
pub(crate) struct Deletion {
    /// Where it is in the response: topic, partition.
    pub(crate) at: (usize, usize),
    pub(crate) partition: Arc<Partition>,
    pub(crate) required_offset: i64,
}

impl Deletion {
    fn result<'a>(
        &self,
        response: &'a mut DeleteRecordsResponse,
    ) -> &'a mut DeleteRecordsPartitionResult {
        &mut response.topics[self.at.0].partitions[self.at.1]
    }
}

impl DelayedDeleteRecords {
    pub(crate) fn watermarks(&self) -> Vec<(WatchKey, u64)> {
        let watermark = |wait: &Deletion| {
            let key = WatchKey::LowWatermark(wait.partition.key.clone());
            (key, wait.required_offset.cast_unsigned()) // an offset is never negative
        };
        self.waits.iter().map(watermark).collect()
    }
}

impl DelayedOperation for DelayedDeleteRecords {
    fn try_complete(&mut self) -> bool {
        let response = &mut self.response;
        self.waits.retain(|wait| {
            let low_watermark = wait.partition.offsets().low_watermark;
            let waits = low_watermark < wait.required_offset;
            if !waits {
                let result = wait.result(response);
                (result.error_code, result.low_watermark) = (0, low_watermark);
            }
            waits
        });
        self.waits.is_empty()
    }

    fn on_complete(mut self, outcome: Outcome) {
        tracing::debug!("delete-records: {outcome:?}");
        if outcome == Outcome::Cancelled(CancelReason::Shutdown) {
            for wait in &self.waits {
                let error = ResponseError::NotLeaderOrFollower;
                wait.result(&mut self.response).error_code = error.code();
            }
        }
        self.reply.send(&self.response);
    }
}
