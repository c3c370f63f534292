//! The memory of a peak.

/// Returns the capacity to which to shrink a collection if its capacity is above `kept` and less
/// than a quarter of it is in use. A shrink moves at most as many items as were removed before it.
pub(crate) fn shrunk(len: usize, capacity: usize, kept: usize) -> Option<usize> {
    (capacity > kept && len < capacity / 4).then_some(2 * len)
}
