//! The timers that users hold: one with a thread, one turned by hand, and what is scheduled on
//! them.

pub(crate) mod errors;
pub(crate) mod guard;
#[cfg(feature = "hyper")]
pub(crate) mod hyper;
pub(crate) mod interval;
#[cfg(feature = "keyed")]
pub(crate) mod keyed;
pub(crate) mod manual;
pub(crate) mod periodic;
pub(crate) mod sleep;
#[cfg(feature = "stream")]
mod stream;
pub(crate) mod system;
pub(crate) mod task;
pub(crate) mod task_timer;
pub(crate) mod timeout;
pub(crate) mod timer;
