//! The engine: what threads do with locked rooms. Parking, events, endings, expiry. `core` is what
//! all handles of a purgatory share.

pub(crate) mod complete;
pub(crate) mod core;
pub(crate) mod event;
pub(crate) mod expire;
pub(crate) mod nested;
pub(crate) mod park;
pub(crate) mod single;
pub(crate) mod trace;
pub(crate) mod versions;
