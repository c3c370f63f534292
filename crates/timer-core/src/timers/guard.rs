//! `CancelOnDrop`: a pending task tied to a scope.

use std::fmt;

use crate::{
    driver::handle::TimerHandle,
    timers::{periodic::Periodic, timer::Timer},
};

/// Cancels a task when it is dropped: a timeout that goes with the scope it watches over.
///
/// ```
/// use std::time::Duration;
/// use timer_core::{CancelOnDrop, ManualTimer, Timer};
///
/// let timer = ManualTimer::new();
/// {
///     let handle = timer.schedule(Duration::from_secs(1), || unreachable!("left in time"))?;
///     let _timeout = CancelOnDrop::new(&timer, handle);
/// }
/// timer.advance(Duration::from_secs(2));
/// # Ok::<(), timer_core::ScheduleError>(())
/// ```
#[must_use = "dropped at once, it cancels at once"]
pub struct CancelOnDrop {
    cancel: Option<Box<dyn FnOnce() + Send>>,
}

impl CancelOnDrop {
    /// Guards a task of `timer`.
    pub fn new(timer: &impl Timer, handle: TimerHandle) -> Self {
        let timer = timer.clone();
        CancelOnDrop { cancel: Some(Box::new(move || _ = timer.cancel(handle))) }
    }

    /// Guards a periodic task.
    pub fn periodic(periodic: Periodic) -> Self {
        CancelOnDrop { cancel: Some(Box::new(move || _ = periodic.cancel())) }
    }

    /// Lets the task go on after all.
    pub fn release(mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel();
        }
    }
}

impl fmt::Debug for CancelOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelOnDrop").finish_non_exhaustive()
    }
}
