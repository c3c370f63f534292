//! Forwarding: where a wait is that moves from shard to shard.
//!
//! The future of a wait names the entry in which it was parked. With the first move that entry
//! becomes a sign that shares a forwarding with the wait. The wait takes the forwarding along, and
//! leaves no entry behind from then on.
//!
//! - **Forwarded**: a forwarding is set under the locks of both shards of a move. So the shard that
//!   it names once that is locked has the wait, for as long as it stays locked.

use timer_core::TimerHandle;

use crate::sync::Mutex;

/// The place of a wait that has moved.
pub(crate) struct Forwarding {
    place: Mutex<TimerHandle>,
}

impl Forwarding {
    /// Makes the forwarding of a wait that moves to this place, its second.
    pub(super) fn to(place: TimerHandle) -> Self {
        Forwarding {
            place: Mutex::new(place),
        }
    }

    /// Returns the place. It is the present one only while its shard is locked (Forwarded).
    pub(super) fn place(&self) -> TimerHandle {
        *self.place.lock()
    }

    /// Follows a move. Called under the locks of both shards.
    pub(super) fn set(&self, place: TimerHandle) {
        *self.place.lock() = place;
    }
}
