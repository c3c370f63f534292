//! [`Config`]: the settings of a timer.

use std::{sync::Arc, time::Duration};

use crate::{driver::clock::TickLength, wheel::geometry::WheelSize};

/// Called with the message of each contained panic.
pub(super) type PanicHook = Arc<dyn Fn(&str) + Send + Sync>;

/// The settings of a timer.
pub struct Config {
    /// The length of a tick.
    pub tick: TickLength,
    /// The size of each wheel.
    pub wheel_size: WheelSize,
    /// The number of shards of a [`TaskTimer`](crate::TaskTimer): a power of two, at most
    /// [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub shard_count: usize,
    /// The wheels are advanced by a [`ManualTimer`](crate::ManualTimer). Tasks of one tick are
    /// handed over in the order of insertion. A task that is overdue as it is inserted waits for
    /// the next advance.
    pub manual: bool,
    /// The start of the threads' names, and the label of the timer's metrics.
    pub name: String,
    /// See [`SystemTimerBuilder::grace`](crate::SystemTimerBuilder::grace).
    pub(crate) grace: Option<Duration>,
    pub(crate) on_panic: Option<PanicHook>,
}
