//! The paths: parking, events, endings. `core` is what all handles of a purgatory share.

pub(crate) mod alone;
pub(crate) mod callbacks;
mod cancel;
pub(crate) mod core;
pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod park;
pub(crate) mod trace;
pub(crate) mod trampoline;
pub(crate) mod versions;
pub(crate) mod watch_set;
