//! The handles: what users hold.

pub(crate) mod boxed;
pub(crate) mod builder;
mod events;
pub(crate) mod monitor;
pub(crate) mod purgatory;
pub(crate) mod replies;
pub(crate) mod wait;
#[cfg(feature = "keyed")]
pub(crate) mod watermarks;
