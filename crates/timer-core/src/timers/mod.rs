//! The timers that users hold: one with a thread, one turned by hand, and what is scheduled on
//! them.

pub(crate) mod errors;
pub(crate) mod interval;
pub(crate) mod manual;
pub(crate) mod periodic;
pub(crate) mod sleep;
pub(crate) mod system;
pub(crate) mod task;
pub(crate) mod task_timer;
pub(crate) mod timeout;
pub(crate) mod timer;
