//! Turns: operations that wait in turn under one key, and only the first of which is checked.
//!
//! - **Head first**: only the *head*, which has waited longest, is checked out. It stays the head
//!   until it ends, since others are put in behind it.
//! - **Moved up**: whenever a head ends, the thread that finishes it checks the one behind it, the
//!   new head, at least once. So nothing that the old head left over lies idle, whatever ended it.
//!
//! A newcomer decides under the shard's lock whether it is behind others. It then needs no look at
//! versions: it is checked when it has moved up, and each head that is parked meanwhile was.
//!
//! An event checks the head, and *Moved up* does the rest: as long as heads complete, the next is
//! checked. Operations that have no condition but the event itself ([`next_event`]) need to know
//! more: whether the one that moved up is due to an event that was not used up. An event for one is
//! used up by the first check that comes true, an event for all never. The head keeps the events
//! that it is checked for, and those that find it held. As it ends, the event that is left becomes
//! a request to check the next, in the same lock hold. A head that waits on keeps none.
//!
//! [`next_event`]: crate::Purgatory::next_event

use std::{hash::Hash, sync::Arc};

use hashbrown::Equivalent;
use timer_core::TimerHandle;

use crate::{
    engine::{Core, check::Checked, finish::Turns, trampoline::Call},
    operation::{DelayedOperation, Verdict},
    shard::{CheckedOut, TurnCause},
    watches::WatchKey,
};

/// The result of checks in turn.
#[derive(Default)]
pub(super) struct Served {
    /// Operations that completed.
    pub(super) completed: usize,
    /// A check came true of an operation whose future, if it has one, was not dropped meanwhile.
    /// One that another thread completed under check is not enough.
    pub(super) came_true: bool,
}

impl<K: WatchKey, O: DelayedOperation> Core<K, O> {
    /// Returns true when a newcomer under this key is not to be served: operations wait in turn, or
    /// the key's shard is closed.
    pub(crate) fn keeps_waiting<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let hash = self.versions.hash(key);
        let shard = self.shard_of(hash);
        shard.refuses().is_some() || shard.is_awaited_in_turn(key, hash)
    }

    /// Checks the head of those that wait in turn for a key, for an event that was counted.
    #[cold]
    pub(super) fn signal_in_turn<Q: Equivalent<K> + ?Sized>(
        self: &Arc<Self>,
        call: &Call<'_>,
        key: &Q,
        hash: u64,
        cause: TurnCause,
    ) -> Served {
        let mut shard = self.shard_of(hash);
        let Some(record) = shard.find(key, hash) else {
            return Served::default(); // all have left
        };
        let head = shard.check_out_head(record, cause);
        drop(shard);
        self.serve_heads(call, head)
    }

    /// Checks a head that this thread holds, then each that moves up, until a check is false.
    fn serve_heads(self: &Arc<Self>, call: &Call<'_>, mut head: Option<CheckedOut<O>>) -> Served {
        let mut served = Served::default();
        while let Some(held) = head.take() {
            // 1. Check it. If it waits on, so do those behind it.
            let Checked { verdict, ended } = self.check_held(held);
            let Some(mut ended) = ended else {
                break;
            };
            // 2. Finish it. The one behind it is this thread's to check, here. But a value whose
            //    future was dropped is dropped first: the callback does that, which may be queued,
            //    and has the next one checked.
            let is_abandoned = ended.then.is_abandoned();
            let mut new_head = None;
            if !is_abandoned {
                new_head = ended.to_release.new_head.take();
                served.came_true |= verdict == Verdict::Satisfied;
            }
            served.completed += self.finish(call, ended);
            // 3. The event was left to that one, unless it was for one and was used up.
            head = new_head.and_then(|new_head| self.check_out_new_head(new_head));
        }
        served
    }

    /// Checks out the operation behind a head of those in turn that has left.
    fn check_out_new_head(&self, new_head: TimerHandle) -> Option<CheckedOut<O>> {
        self.first_shard_of(new_head)
            .check_out_in_turn(new_head, TurnCause::HeadLeft)
    }
}

impl<K: WatchKey, O: DelayedOperation> Turns for Core<K, O> {
    fn check_new_head(self: Arc<Self>, new_head: TimerHandle) {
        let call = Call::enter(&self.job_executor);
        let head = self.check_out_new_head(new_head);
        self.serve_heads(&call, head);
    }
}
