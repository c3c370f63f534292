//! Counts of the heap, with `--features count-allocations` alone: the allocator that counts takes
//! some hundred instructions for each allocation, which are no contender's.

/// Whether allocations are counted.
pub(crate) const IS_COUNTED: bool = cfg!(feature = "count-allocations");

/// What a thread has allocated.
#[derive(Default)]
pub(crate) struct Counted {
    /// The bytes that are still in use.
    pub(crate) bytes: f64,
    pub(crate) allocations: f64,
}

/// Runs `work`; returns what it allocated on this thread, zeros if that is not counted.
pub(crate) fn counted(work: impl FnOnce()) -> Counted {
    #[cfg(feature = "count-allocations")]
    {
        let info = allocation_counter::measure(work);
        Counted {
            bytes: info.bytes_current as f64,
            allocations: info.count_total as f64,
        }
    }
    #[cfg(not(feature = "count-allocations"))]
    {
        work();
        Counted::default()
    }
}
