//! Forwarding: the place of a wait that moves from shard to shard.
//!
//! The future of a wait names the entry in which it was parked. At the first move, that entry
//! becomes a sign that shares a forwarding with the wait. The wait takes the forwarding along, and
//! leaves no entry behind at later moves.
//!
//! - **Forwarded**: a forwarding is set under the locks of both shards of a move. So if it still
//!   names a shard once that shard is locked, the wait is there as long as the lock is held.

use timer_core::TimerHandle;

use crate::sync::Mutex;

/// The place of a wait that has moved.
pub(crate) struct Forwarding {
    place: Mutex<TimerHandle>,
}

impl Forwarding {
    /// Makes the forwarding of a wait whose first move is to this place.
    pub(super) fn to(place: TimerHandle) -> Self {
        Forwarding {
            place: Mutex::new(place),
        }
    }

    /// Returns the place, which is certain only while its shard is locked (Forwarded).
    pub(super) fn place(&self) -> TimerHandle {
        *self.place.lock()
    }

    /// Notes a move. Called under the locks of both shards.
    pub(super) fn set(&self, place: TimerHandle) {
        *self.place.lock() = place;
    }
}
