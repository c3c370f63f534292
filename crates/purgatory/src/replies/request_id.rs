//! The name of a request: [`RequestId`].

use std::fmt;

/// The name of a request in a [snapshot](crate::Snapshot) of [`ReplyScopes`](crate::ReplyScopes):
/// its scope and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RequestId {
    /// The number of the scope, from 0, in the order in which they were made.
    pub scope: u64,
    /// The number of the request in its scope, from 1.
    pub number: u64,
}

impl fmt::Display for RequestId {
    /// Writes the scope, a slash, and the request's number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.number)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
