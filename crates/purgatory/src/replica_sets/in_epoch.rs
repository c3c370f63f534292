//! What is done in an epoch of a group of [`ReplicaSets`]: members report, come and go, and writes
//! wait.

use crate::{
    error::{Refused, WaitError},
    in_epoch::InEpoch,
    operation::{OperationId, Outcome, Timeout},
    replica_sets::{ReplicaSets, Rule, set::Set},
    wait::WaitFuture,
    watches::{ToKey, WatchKey},
    watermarks::{Callback, WatermarkValue, rank},
};

impl<G: WatchKey, M: Eq + Clone + Send + 'static, V: WatermarkValue> ReplicaSets<G, M, V> {
    /// Names the group together with the epoch of one of its leaders, in which [members report, come
    /// and go, and writes wait](InEpoch). What an earlier leader heard, or appended, is refused.
    ///
    /// ```
    /// use purgatory::{ReplicaSets, Rule, WaitError};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 2, [("leader", 42), ("a", 40)], 42, Rule::all())?;
    /// let old_leader = logs.in_epoch(&"orders-0", 1);
    /// let late = WaitError::OtherEpoch { named: 1, present: 2 };
    /// assert_eq!(old_leader.leave(&"a"), Err(late)); // this leader needs it
    /// let leader = logs.in_epoch(&"orders-0", 2);
    /// leader.report(&"a", 42)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_epoch<'a, Q: ToKey<G> + ?Sized>(
        &'a self,
        group: &'a Q,
        epoch: u64,
    ) -> InEpoch<'a, Self, Q> {
        InEpoch {
            form: self,
            key: group,
            epoch,
        }
    }
}

/// A group of [`ReplicaSets`]. Each call returns
/// [`OtherEpoch`](WaitError::OtherEpoch) in another epoch, and [`NoGroup`](WaitError::NoGroup)
/// without a set. That is with the leader in an epoch that another process
/// [leads](ReplicaSets::follow): nothing waits here.
impl<G, M, V, Q> InEpoch<'_, ReplicaSets<G, M, V>, Q>
where
    G: WatchKey,
    M: Eq + Clone + Send + 'static,
    V: WatermarkValue,
    Q: ToKey<G> + ?Sized,
{
    /// Changes the set by what it makes of the watermark, and advances that in the same lock hold.
    #[inline]
    fn change(
        &self,
        change: impl FnOnce(&mut Set<M>, u64) -> Result<u64, WaitError>,
    ) -> Result<usize, WaitError> {
        let table = &self.form.handle.table;
        let mut stale = None;
        if failpoint!(SetChangedInCopy) {
            stale = table.look(self.key, |mark| Some(mark.valued.as_ref()?.beside.clone()));
        }
        table.change_beside(self.key, self.epoch, |here, before| {
            if let Some(stale) = stale {
                *here = stale;
            }
            change(here.as_mut().ok_or(WaitError::NoGroup)?, before)
        })
    }

    /// Records what a member has of the log of this epoch's leader. Returns how many waits this
    /// completed. A member whose own log goes on with other records cuts those off first: [a length
    /// does not tell](crate::guide::replication#in-which-epoch).
    ///
    /// One lock, O(members) under it, and what an [advance](crate::Watermarks::advance) of the
    /// watermark costs if it rises. Inside a callback this returns 0; the waits complete behind
    /// the [outermost call](crate::guide::your_code).
    ///
    /// # Errors
    /// [`NoMember`](WaitError::NoMember) for a member that is not in the set;
    /// [`Behind`](WaitError::Behind) for one that has less than the watermark, if it had that before or
    /// the rule asks for [all](crate::Rule::all): it has lost what was acknowledged. It counts as it
    /// says, so nothing more is acknowledged by all before it has left or caught up. A minority that
    /// is slow is no error.
    #[inline] // a call costs 22 instructions
    pub fn report(&self, member: &M, value: V) -> Result<usize, WaitError> {
        let value = rank(value);
        self.change(|set, watermark| set.report(member, value, watermark))
    }

    /// Lets a member into the set, which has come to `value` in the leader's log. Returns how many
    /// waits this completed, as [`report`](Self::report) does: some if the set was below its floor,
    /// or if a majority needs no more members now.
    ///
    /// Where a controller keeps the set, too, let the member in [*before* you tell
    /// it](crate::guide::recipes::alter_partition): once the controller may elect the member, nothing
    /// is to be acknowledged without it.
    ///
    /// # Errors
    /// [`Behind`](WaitError::Behind), and by how much, below the watermark or the start of the
    /// epoch; [`IsMember`](WaitError::IsMember).
    pub fn join(&self, member: M, value: V) -> Result<usize, WaitError> {
        let value = rank(value);
        let mut member = Some(member); // a refused one is dropped unlocked
        self.change(|set, watermark| set.join(&mut member, value, watermark))
    }

    /// Takes a member out of the set. Returns how many waits this completed, as
    /// [`report`](Self::report) does: what it alone had held back is acknowledged by the others, but
    /// not below the [floor](crate::Rule::floor).
    ///
    /// Where a controller keeps the set, too, take the member out [*after* that has
    /// agreed](crate::guide::recipes::alter_partition): until then it may elect the member, which
    /// lacks what the others acknowledge. By [majority](crate::Rule::majority) only one member
    /// leaves or joins at a time, as its entry of the log is appended, and the next one after that
    /// is acknowledged; the first after an entry of the leader's own ([Raft, section 4.1][raft]).
    /// The members that are left after two may all lack a record.
    ///
    /// [raft]: https://github.com/ongardie/dissertation
    ///
    /// # Errors
    /// [`NoMember`](WaitError::NoMember).
    pub fn leave(&self, member: &M) -> Result<usize, WaitError> {
        let mut gone = None; // it is dropped unlocked
        self.change(|set, watermark| set.leave(member, &mut gone, watermark))
    }

    /// Changes the rule of the set, as `min.insync.replicas` of a live topic is changed. Returns how many
    /// waits this completed: a laxer rule may acknowledge more. A stricter one holds the watermark where
    /// it is until the members have what it asks for, and the waits go on.
    ///
    /// A [floor](crate::Rule::floor) may change at any time. How many members have to report follows from
    /// the election of the next leader: change that with it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{ReplicaSets, Rule};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 1, [("leader", 42)], 42, Rule::all().floor(2))?;
    /// let orders = logs.in_epoch(&"orders-0", 1);
    /// let produce = orders.wait_for(42, Duration::from_secs(30));
    /// assert_eq!(orders.set_rule(Rule::all())?, 1); // the leader suffices
    /// assert_eq!(produce.wait_blocking(), Ok(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the [epoch](Self) alone.
    pub fn set_rule(&self, rule: Rule) -> Result<usize, WaitError> {
        self.change(|set, watermark| Ok(set.set_rule(rule, watermark)))
    }

    /// Returns a future of the group's watermark, ready once that is at least `threshold`. It
    /// belongs to this epoch, that in which the record was appended, and is cancelled as
    /// [`EpochOver`](crate::CancelReason::EpochOver) with it. O(log n) for n waits of the group.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`].
    pub fn wait_for(&self, threshold: V, timeout: impl Into<Timeout>) -> WaitFuture<V> {
        let handle = &self.form.handle;
        handle.wait_for(self.key, Some(self.epoch), threshold, timeout.into())
    }

    /// Calls `then` once the watermark is at least `threshold`, or the wait has ended otherwise. It
    /// belongs to this epoch, that in which the record was appended. See
    /// [`Watermarks::park`](crate::Watermarks::park).
    ///
    /// # Errors
    /// Returns an error as [`Watermarks::park`](crate::Watermarks::park) does; `then` is not called.
    pub fn park(
        &self,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Option<OperationId>, Refused<Callback>> {
        let then = Box::new(then);
        let handle = &self.form.handle;
        handle.call_at(self.key, Some(self.epoch), threshold, timeout.into(), then)
    }
}
