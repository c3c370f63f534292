//! Counts of the heap, only with `--features count-allocations`: the counting allocator adds some
//! hundred instructions to each allocation, which would be charged to the contenders.

/// Whether allocations are counted.
pub(crate) const IS_COUNTED: bool = cfg!(feature = "count-allocations");

/// The memory that a thread has allocated.
#[derive(Default)]
pub(crate) struct Counted {
    /// The bytes that are still in use.
    pub(crate) bytes: f64,
    pub(crate) allocations: f64,
}

/// Runs `work`; returns its allocations on this thread, or zeros if they are not counted.
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
