//! Nodes and ids. A node holds a task and its timer links side by side, so that starting, stopping
//! and firing a timer touch one place.
//!
//! An id is (index, sequence), where the sequence is the number of the insertion. No sequence is
//! given out twice. So an old id never finds another task, whatever uses the node's memory by then,
//! and sequences are the order of insertion.

use crate::wheel::pages::{PageSlot, Pages};

/// The most tasks that one wheel holds: 2^26, about 67 million.
pub const MAX_TASKS: u32 = 1 << 26;

/// Names a task on one [`TimingWheel`](crate::TimingWheel). Never reused for another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub(super) index: u32,
    pub(super) sequence: u64,
}

impl TaskId {
    /// Returns the index for [`TimingWheel::first_from`](crate::TimingWheel::first_from); below
    /// [`MAX_TASKS`].
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of the task's insertion, from 1.
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// Makes the id with this index and this sequence, as an id has returned them. The sequence is
    /// at least 1: an id with the sequence 0 names no task.
    pub fn from_parts(index: u32, sequence: u64) -> TaskId {
        TaskId { index, sequence }
    }
}

/// The reason why a node has a task: a node is free only between two tasks.
pub(super) const LIVE: &str = "Live: an index in a bucket, or of an id, names a live node";

/// The place of a node that is in no bucket.
pub(super) const NO_PLACE: u32 = u32::MAX;

/// A task and its timer links.
#[derive(Debug)]
pub(crate) struct Node<T> {
    /// 0 when the node is free.
    pub(super) sequence: u64,
    /// The position of its entry in its bucket: a chunk, and an entry of the chunk.
    pub(super) place: u32,
    /// The upper half of its deadline; the entry has the lower one.
    pub(super) high: u32,
    pub(super) task: Option<T>,
}

impl<T> Node<T> {
    /// Returns true if the node has the task of this id. An id with the sequence 0 names no task,
    /// even though a free node has that sequence.
    pub(super) fn keeps(&self, id: TaskId) -> bool {
        self.sequence == id.sequence && self.task.is_some()
    }

    pub(super) fn task(&self) -> &T {
        self.task.as_ref().expect(LIVE)
    }

    pub(super) fn task_mut(&mut self) -> &mut T {
        self.task.as_mut().expect(LIVE)
    }

    /// Forgets the node's place, and returns it.
    #[inline]
    pub(super) fn take_place(&mut self) -> u32 {
        std::mem::replace(&mut self.place, NO_PLACE)
    }

    /// Returns the tick at which the task is due, as it was given (it may lie in the past). The
    /// node's entry has the lower half, `low`.
    #[inline]
    pub(crate) fn deadline(&self, low: u32) -> u64 {
        u64::from(self.high) << 32 | u64::from(low)
    }

    /// Reads the sequence and whether there is a task: as a rule both ends of the node.
    pub(super) fn touch(&self) -> u64 {
        self.sequence | u64::from(self.task.is_some())
    }
}

/// The nodes of a wheel.
pub(super) type Nodes<T> = Pages<Node<T>, 64>;

impl<T> PageSlot for Node<T> {
    const MAX: u32 = MAX_TASKS;

    fn vacant() -> Self {
        Node {
            sequence: 0,
            place: NO_PLACE,
            high: 0,
            task: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_costs_16_bytes_beside_its_task() {
        assert_eq!(size_of::<Node<Box<u64>>>(), 16 + 8);
    }
}
