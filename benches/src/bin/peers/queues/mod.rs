//! The ways for consumers to wait for the jobs of a queue, behind [`Queue`](queue::Queue): a
//! `Monitor`, and what one writes by hand.

pub(crate) mod mutex_notify;
pub(crate) mod ours;
pub(crate) mod queue;
