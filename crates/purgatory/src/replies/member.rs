//! The list of a scope's requests: their entries, linked by index.
//!
//! - **In order**: numbers rise along a scope's list, since a request joins the end as it gets its
//!   number.
//! - **Under one lock**: the number of a scope chooses its shard. The lock of that shard guards the
//!   list's ends, which lie with the scope, and the links, which lie in the entries.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use crate::{
    sync::{self, Ordering},
    table::forwarding::Forwarding,
};

/// No entry.
const NONE: u32 = u32::MAX;

/// The state of a scope, which its handles and its requests share. Its lock is that of its shard.
pub(crate) struct Scope {
    pub(super) number: u64,
    /// Chooses the shard.
    pub(super) hash: u64,
    handles: sync::AtomicU64,
    /// The number of the last request; 0 before the first. Written under the lock.
    last_number: AtomicU64,
    /// Written under the lock.
    is_closed: AtomicBool,
    /// The ends of the list. Read and written under the lock.
    first: AtomicU32,
    last: AtomicU32,
}

/// The place of a request on its scope's list.
pub(crate) struct Member {
    scope: Arc<Scope>,
    previous: u32,
    next: u32,
    /// Lets the future of a request follow it once it has moved to another shard.
    forwarding: Option<Arc<Forwarding>>,
}

/// The requests of a shard.
pub(super) trait Members {
    /// Returns the place of a request that a list names.
    fn member_mut(&mut self, index: u32) -> &mut Member;
}

impl Scope {
    /// Makes a scope with one handle and no requests.
    pub(super) fn new(number: u64, hash: u64) -> Self {
        Scope {
            number,
            hash,
            handles: sync::AtomicU64::new(1),
            last_number: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            first: AtomicU32::new(NONE),
            last: AtomicU32::new(NONE),
        }
    }

    /// Counts one more handle.
    pub(super) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one handle less; returns true for the last.
    pub(super) fn remove_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns half of the hash by which a request of this scope is found. Its upper bits depend on
    /// all bits of the scope's hash and the number.
    pub(super) fn hash_of(&self, number: u64) -> u32 {
        ((self.hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }

    pub(super) fn last_number(&self) -> u64 {
        self.last_number.load(Relaxed)
    }

    /// Uses up a number. Called under the lock.
    pub(super) fn set_last_number(&self, number: u64) {
        self.last_number.store(number, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Closes the scope. Called under the lock.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    /// Returns the index of the request with the lowest number. Called under the lock.
    pub(super) fn first(&self) -> Option<u32> {
        Some(self.first.load(Relaxed)).filter(|&first| first != NONE)
    }

    /// Makes the place of a request at the end of the list. Called under the lock.
    pub(super) fn place_at_end(self: &Arc<Self>, forwarding: Option<Arc<Forwarding>>) -> Member {
        Member {
            scope: self.clone(),
            previous: self.last.load(Relaxed),
            next: NONE,
            forwarding,
        }
    }

    /// Appends a request that has the place at the end. O(1).
    pub(super) fn append(&self, requests: &mut impl Members, index: u32) {
        match self.last.load(Relaxed) {
            NONE => self.first.store(index, Relaxed),
            last => requests.member_mut(last).next = index,
        }
        self.last.store(index, Relaxed);
    }
}

impl Member {
    /// Returns the index of the request behind this one.
    pub(super) fn next(&self) -> Option<u32> {
        Some(self.next).filter(|&next| next != NONE)
    }

    /// Closes the gap that a request leaves in its scope's list; returns its forwarding. O(1).
    pub(super) fn leave_list(self, requests: &mut impl Members) -> Option<Arc<Forwarding>> {
        match self.previous {
            NONE => self.scope.first.store(self.next, Relaxed),
            previous => requests.member_mut(previous).next = self.next,
        }
        match self.next {
            NONE => self.scope.last.store(self.previous, Relaxed),
            next => requests.member_mut(next).previous = self.previous,
        }
        self.forwarding
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbouring_request_numbers_hash_apart() {
        let scopes = [5, 5 + (1 << 40)].map(|hash| Scope::new(1, hash));
        let hashes = scopes
            .iter()
            .flat_map(|scope| (0..1000).map(|number| scope.hash_of(number)));
        assert_eq!(hashes.collect::<HashSet<_>>().len(), 2000);
    }
}
