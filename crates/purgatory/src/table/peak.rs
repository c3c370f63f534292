//! The memory of a peak.

/// Returns the capacity to which a collection is to be shrunk, if that is above `kept` and less than
/// a quarter of it is in use. Each shrinking is paid for by as many removals.
pub(crate) fn shrunk(len: usize, capacity: usize, kept: usize) -> Option<usize> {
    (capacity > kept && len < capacity / 4).then_some(2 * len)
}
