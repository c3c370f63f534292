//! The timers that users hold: one with a thread, one turned by hand, and what is scheduled on
//! them.

use std::{fmt, sync::Arc};

pub(crate) mod errors;
pub(crate) mod manual;
pub(crate) mod periodic;
pub(crate) mod sleep;
pub(crate) mod system;
pub(crate) mod task_timer;
pub(crate) mod timer;

/// Something that runs when its time has come. Every `FnOnce()` is one.
///
/// It runs on the timer's executor, with nothing of the timer locked, so it may schedule and
/// cancel, itself included. A panic in it is contained.
pub trait TimerTask: Send + 'static {
    /// Runs the task.
    fn run(self: Box<Self>);
}

impl<F: FnOnce() + Send + 'static> TimerTask for F {
    fn run(self: Box<Self>) {
        self();
    }
}

impl fmt::Debug for dyn TimerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerTask")
    }
}

impl TimerTask for Arc<dyn SharedTask> {
    fn run(self: Box<Self>) {
        SharedTask::run(&**self);
    }
}

/// A task that several may hold: scheduled as an `Arc<dyn SharedTask>`, any number of times.
pub trait SharedTask: Send + Sync + 'static {
    /// Runs the task.
    fn run(&self);
}
