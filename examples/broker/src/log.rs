//! The log of one replica: batches in offset order, in memory.

use std::collections::VecDeque;

use crate::batch::RecordBatch;

#[derive(Default)]
pub(crate) struct Log {
    batches: VecDeque<RecordBatch>,
    log_start_offset: i64,
    log_end_offset: i64,
    size_bytes: usize,
}

impl Log {
    pub(crate) fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// The offset of the next record.
    pub(crate) fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(crate) fn append(&mut self, batch: RecordBatch) {
        debug_assert_eq!(batch.base_offset, self.log_end_offset);
        self.log_end_offset = batch.next_offset;
        self.size_bytes += batch.bytes.len();
        self.batches.push_back(batch);
    }

    /// The batches from the one with `offset` on: at least one if there is one, and no more once
    /// `bytes_max` are reached.
    pub(crate) fn read(&self, offset: i64, bytes_max: usize) -> Vec<RecordBatch> {
        let first = self.batches.partition_point(|batch| batch.next_offset <= offset);
        let mut size_bytes = 0;
        let fits = |batch: &&RecordBatch| {
            let fits = size_bytes < bytes_max;
            size_bytes += batch.bytes.len();
            fits
        };
        self.batches.range(first..).take_while(fits).cloned().collect()
    }

    /// Drops the oldest batches below `offset` while the log is larger than `bytes_max`.
    pub(crate) fn trim(&mut self, offset: i64, bytes_max: usize) {
        while self.size_bytes > bytes_max
            && let Some(batch) = self.batches.pop_front_if(|batch| batch.next_offset <= offset)
        {
            self.size_bytes -= batch.bytes.len();
            self.log_start_offset = batch.next_offset;
        }
    }

    /// Drops what is below `offset`, where the leader's log starts; a log that ends before it, left
    /// behind, starts again there.
    pub(crate) fn start_at(&mut self, offset: i64) {
        self.trim(offset, 0);
        if self.log_end_offset < offset {
            (self.log_start_offset, self.log_end_offset) = (offset, offset);
        }
    }
}
