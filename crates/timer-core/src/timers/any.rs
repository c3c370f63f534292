//! `AnyTimer`: a timer of either kind, for a struct without a type parameter. Both kinds have the
//! same inside, so this is that inside alone.

use std::sync::Arc;

use crate::timers::{
    manual::ManualTimer, system::SystemTimer, task_timer::TimerInner, timer::Timer,
};

/// A timer of any kind: a [`SystemTimer`] in production, a [`ManualTimer`] in tests. A handle:
/// clones, and the timer that it was made of, are the same timer.
///
/// A struct that holds one needs no type parameter, and its tests can advance its time. It costs
/// nothing: all timers have the same inside.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{AnyTimer, ManualTimer, ScheduleError, SystemTimer, Timer};
///
/// struct Sessions {
///     timer: AnyTimer,
///     expired: mpsc::Sender<u32>,
/// }
///
/// impl Sessions {
///     fn open(&self, id: u32) -> Result<(), ScheduleError> {
///         let expired = self.expired.clone();
///         let expire = move || drop(expired.send(id));
///         self.timer.schedule(Duration::from_secs(30), expire)?;
///         Ok(())
///     }
/// }
///
/// // In production:
/// let (send, _) = mpsc::channel();
/// let sessions = Sessions { timer: SystemTimer::new()?.into(), expired: send };
/// sessions.open(7)?;
///
/// // In a test:
/// let timer = ManualTimer::new();
/// let (send, expired) = mpsc::channel();
/// let sessions = Sessions { timer: timer.clone().into(), expired: send };
/// sessions.open(7)?;
/// timer.advance(Duration::from_secs(30));
/// assert_eq!(expired.try_recv(), Ok(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct AnyTimer {
    inner: Arc<TimerInner>,
}

impl AnyTimer {
    /// (Feature `metrics`.) [Publishes](SystemTimer::publish) the metrics of a [`SystemTimer`], and
    /// of each purgatory on it. A [`ManualTimer`] has none of its own. Cost as there.
    ///
    /// ```
    /// use timer_core::{AnyTimer, SystemTimer};
    ///
    /// struct Sessions {
    ///     timer: AnyTimer,
    /// }
    ///
    /// let timer = SystemTimer::builder().name("sessions").build()?;
    /// let sessions = Sessions { timer: timer.into() };
    /// let scrape = || {
    ///     sessions.timer.publish();
    ///     // ... and render the recorder's page.
    /// };
    /// scrape();
    /// # Ok::<(), timer_core::BuildError>(())
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.inner.publish();
    }
}

impl Timer for AnyTimer {
    fn inner(&self) -> &TimerInner {
        &self.inner
    }
}

impl From<SystemTimer> for AnyTimer {
    fn from(timer: SystemTimer) -> Self {
        AnyTimer { inner: timer.inner }
    }
}

impl From<ManualTimer> for AnyTimer {
    fn from(timer: ManualTimer) -> Self {
        AnyTimer { inner: timer.inner }
    }
}
