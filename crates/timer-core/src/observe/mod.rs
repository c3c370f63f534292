//! What a timer tells of itself: how long things took, what it holds and has done, publishing it.

mod histogram;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;

pub use self::histogram::TimeHistogram;

/// What a timer holds and has done, over all wheels that it turns: its own tasks, those of each
/// [`TaskTimer`](crate::TaskTimer) on it, each purgatory's. Exact when nothing moves.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimerStats {
    /// Tasks that will fall due.
    pub pending: u64,
    /// Tasks that fell due.
    pub fired: u64,
    /// Tasks that were taken off before they fell due.
    pub cancelled: u64,
    /// Times that a task was handed down to a lower level.
    pub cascaded: u64,
    /// Times that the reaper woke up.
    pub wake_ups: u64,
    /// Those of them for nothing: nothing was due any more, and nobody had rung.
    pub spurious_wake_ups: u64,
    /// Panics of tasks scheduled on the timer itself.
    pub panics: u64,
    /// Jobs that wait for a worker, each a batch of what fell due; `None` when the executor does
    /// not tell.
    pub executor_queue: Option<u64>,
    /// How long the reaper's rounds took: one goes over all shards that are due.
    pub turns: TimeHistogram,
}
