//! The run's clock: how long ago the run began, as a `Duration`.

use std::time::Duration;

use timer_core::{Clock as _, SystemClock};

/// Counts from the moment it was started; copies count from the same moment.
#[derive(Debug, Clone, Copy)]
pub struct Clock(SystemClock);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(SystemClock::new())
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now_ns())
    }
}
