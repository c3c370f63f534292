//! Replies that no request of a scope waits for: [`Undelivered`].

use std::{error::Error, fmt};

use crate::{operation::opaque, sync::HandedBack};

/// A reply without a waiter, handed back by
/// [`ReplyScope::deliver`](crate::ReplyScope::deliver).
#[must_use = "the reply is in it"]
pub struct Undelivered<V> {
    value: HandedBack<V>,
    is_late: bool,
}

impl<V> Undelivered<V> {
    pub(super) fn new(value: V, is_late: bool) -> Self {
        Undelivered {
            value: HandedBack::new(value),
            is_late,
        }
    }

    /// Returns true if the request was asked in this scope and is over: it timed out, failed, was
    /// given up, or has had a reply. Returns false if the scope never handed its number out: the
    /// peer confuses connections, or does not keep to the protocol.
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Returns the reply.
    pub fn into_inner(self) -> V {
        self.value.into_inner()
    }
}

opaque!([V] Undelivered<V>, is_late: is_late);

impl<V> fmt::Display for Undelivered<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_late {
            "a late reply: its request is over"
        } else {
            "a reply to a request that was never asked"
        })
    }
}

impl<V> Error for Undelivered<V> {}
