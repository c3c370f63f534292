//! A purgatory for one thread, on the same room without a lock.

mod calls;
mod core;
pub(crate) mod purgatory;
pub(crate) mod wait;
