//! The words: what is parked, under what, and how it ends; what is counted.

pub(crate) mod check;
pub(crate) mod operation;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod watches;
