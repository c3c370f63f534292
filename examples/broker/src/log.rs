//! The log of one replica: batches in offset order, in memory.

use std::collections::VecDeque;

use crate::batch::RecordBatch;

/// A log whose oldest batches may be gone.
#[derive(Default)]
pub(crate) struct Log {
    batches: VecDeque<RecordBatch>,
    /// The first offset that can be read.
    pub(crate) log_start_offset: i64,
    /// The offset of the next record.
    pub(crate) log_end_offset: i64,
    /// Bytes ever appended: the position of the next batch.
    end_position: u64,
    pub(crate) size_bytes: usize,
}

/// The memory that a batch takes besides its bytes.
const OVERHEAD_BYTES: usize = 128;

impl Log {
    pub(crate) fn append(&mut self, mut batch: RecordBatch) {
        // A log may start inside its first batch, which then begins before the log does.
        debug_assert!((batch.base_offset..batch.next_offset).contains(&self.log_end_offset));
        batch.position = self.end_position;
        self.end_position += batch.bytes.len() as u64;
        self.log_end_offset = batch.next_offset;
        self.size_bytes += batch.bytes.len() + OVERHEAD_BYTES;
        self.batches.push_back(batch);
    }

    /// Returns the batches from the one with `offset` on, as far as they end at `end_offset` or
    /// before.
    pub(crate) fn read(&self, offset: i64, end_offset: i64) -> impl Iterator<Item = &RecordBatch> {
        let batches = self.batches.range(self.index(offset)..);
        batches.take_while(move |batch| batch.next_offset <= end_offset)
    }

    /// Returns the number of bytes that [`Log::read`] would return. O(log n) for n batches.
    pub(crate) fn bytes_between(&self, offset: i64, end_offset: i64) -> u64 {
        // Positions are bytes since the log began, so a difference is a size.
        let position = |offset| {
            let batch = self.batches.get(self.index(offset));
            batch.map_or(self.end_position, |batch| batch.position)
        };
        position(end_offset).saturating_sub(position(offset))
    }

    /// Drops the oldest batches below `offset` while the log is larger than `bytes_max`.
    pub(crate) fn trim(&mut self, offset: i64, bytes_max: usize) {
        // Drop whole batches, oldest first, and none that is still needed.
        while self.size_bytes > bytes_max
            && let Some(batch) = self
                .batches
                .pop_front_if(|batch| batch.next_offset <= offset)
        {
            self.size_bytes -= batch.bytes.len() + OVERHEAD_BYTES;
            self.log_start_offset = self.log_start_offset.max(batch.next_offset);
        }
    }

    /// Drops the batches below `offset`; the batch that contains it stays. A log that ends before
    /// `offset` was left behind, and starts again there.
    pub(crate) fn start_at(&mut self, offset: i64) {
        self.trim(offset, 0);
        self.log_start_offset = self.log_start_offset.max(offset);
        self.log_end_offset = self.log_end_offset.max(offset);
    }

    /// Finds the batch with `offset`, or the one that comes next.
    fn index(&self, offset: i64) -> usize {
        self.batches
            .partition_point(|batch| batch.next_offset <= offset)
    }
}
