//! `DelayedFetch`: a fetch that waits until there is enough to read.
//!
//! Enough are the request's `min_bytes`, over all its partitions together. It is checked when a
//! partition it asks for has something new (the high watermark passes the offset; for a follower the
//! log end), and expires after `max_wait_ms`. However it ends, it answers with what there is.

use purgatory::{DelayedOperation, Outcome};

use crate::{fetch::FetchPlan, partition::UpTo, pipeline::Reply, topics::WatchKey};

pub(crate) struct DelayedFetch {
    pub(crate) plan: FetchPlan,
    pub(crate) bytes_min: u64,
    pub(crate) reply: Reply,
}

impl DelayedFetch {
    /// The earliest moments at which there may be enough: one record past each offset.
    pub(crate) fn watermarks(&self) -> Vec<(WatchKey, u64)> {
        let watermark = match self.plan.up_to {
            UpTo::HighWatermark => WatchKey::HighWatermark,
            UpTo::LogEnd => WatchKey::LogEnd,
        };
        let partitions = self.plan.partitions().filter_map(|plan| {
            let key = watermark(plan.partition.as_ref().ok()?.key.clone());
            Some((key, plan.offset.saturating_add(1).max(0).cast_unsigned()))
        });
        partitions.collect()
    }
}

impl DelayedOperation for DelayedFetch {
    /// Enough is there, or an error, or nothing is asked for: then there is nothing to wait for.
    fn try_complete(&mut self) -> bool {
        let mut bytes = 0;
        let mut partitions = self.plan.partitions().peekable();
        if partitions.peek().is_none() {
            return true;
        }
        for plan in partitions {
            match plan.readable_bytes(self.plan.up_to) {
                Ok(readable) => bytes += readable,
                Err(_) => return true,
            }
        }
        bytes >= self.bytes_min
    }

    fn on_complete(self, outcome: Outcome) {
        tracing::debug!("fetch of {} partitions: {outcome:?}", self.plan.partitions().count());
        self.reply.send_fetch(self.plan);
    }
}
