//! The name of a request: [`RequestId`].

/// The number of the scope, from 0, in the order in which they were made, and the number of the
/// request in its scope, from 1. The public signatures spell it out.
pub(super) type RequestId = (u64, u64);
