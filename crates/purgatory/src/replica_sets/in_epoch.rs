//! Calls in a named epoch of a group of [`ReplicaSets`]: members report, join and leave, and writes
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
    /// Names the group together with the epoch of one of its leaders, in which
    /// [members report, join and leave, and writes wait](InEpoch). Reports to an earlier leader,
    /// and waits for its records, are refused.
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

/// A group of [`ReplicaSets`]. Each call returns [`OtherEpoch`](WaitError::OtherEpoch) if the group
/// is in another epoch, and [`NoGroup`](WaitError::NoGroup) if it has no set. In an epoch that
/// another process [leads](ReplicaSets::follow), the set is with the leader, and no operation waits
/// here.
impl<G, M, V, Q> InEpoch<'_, ReplicaSets<G, M, V>, Q>
where
    G: WatchKey,
    M: Eq + Clone + Send + 'static,
    V: WatermarkValue,
    Q: ToKey<G> + ?Sized,
{
    /// Changes the set, and advances the watermark to the result of `change` in the same lock hold.
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

    /// Records how much a member has of the log of this epoch's leader. Returns how many waits this
    /// completed. A member whose own log goes on with other records must cut those off first:
    /// [a length does not tell logs apart](crate::guide::replication#in-which-epoch).
    ///
    /// One lock, O(members) under it, and the cost of an [advance](crate::Watermarks::advance) if
    /// the watermark rises. Inside a callback, this returns 0; completing the waits is left to the
    /// [outermost call](crate::guide::your_code).
    ///
    /// # Errors
    /// [`NoMember`](WaitError::NoMember) for a member that is not in the set;
    /// [`Behind`](WaitError::Behind) for a member that has less than the watermark, if it had
    /// reached that before or the rule asks for [all](crate::Rule::all): it has lost acknowledged
    /// values. The report counts nevertheless, so nothing more is acknowledged by all before the
    /// member has left or caught up. A slow minority is no error.
    #[inline] // a call costs 22 instructions
    pub fn report(&self, member: &M, value: V) -> Result<usize, WaitError> {
        let value = rank(value);
        self.change(|set, watermark| set.report(member, value, watermark))
    }

    /// Adds a member, which has come to `value` in the leader's log, to the set. Returns how many
    /// waits this completed, as [`report`](Self::report) does: some complete if the set was below
    /// its floor, or if a majority takes no more members than before.
    ///
    /// If a controller keeps the set, too, let the member in
    /// [*before* you tell the controller](crate::guide::recipes::alter_partition): once the
    /// controller may elect the member, nothing may be acknowledged without it.
    ///
    /// # Errors
    /// [`Behind`](WaitError::Behind), and by how much, if `value` is below the watermark or the
    /// start of the epoch; [`IsMember`](WaitError::IsMember) if the set has the member already.
    pub fn join(&self, member: M, value: V) -> Result<usize, WaitError> {
        let value = rank(value);
        let mut member = Some(member); // a refused member is dropped unlocked
        self.change(|set, watermark| set.join(&mut member, value, watermark))
    }

    /// Takes a member out of the set. Returns how many waits this completed, as
    /// [`report`](Self::report) does: values that it alone had held back are acknowledged by the
    /// others, but not below the [floor](crate::Rule::floor).
    ///
    /// If a controller keeps the set, too, take the member out
    /// [*after* the controller has agreed](crate::guide::recipes::alter_partition): until then it
    /// may elect the member, which lacks what the others acknowledge. By
    /// [majority](crate::Rule::majority), only one member may leave or join at a time: it does so
    /// when the log entry of that change is appended, and the next member once that entry is
    /// acknowledged; the first change waits until an entry of the leader's own is acknowledged
    /// ([Raft, section 4.1][raft]). If two leave at once, the members that are left may all lack a
    /// record.
    ///
    /// [raft]: https://github.com/ongardie/dissertation
    ///
    /// # Errors
    /// [`NoMember`](WaitError::NoMember).
    pub fn leave(&self, member: &M) -> Result<usize, WaitError> {
        let mut gone = None; // it is dropped unlocked
        self.change(|set, watermark| set.leave(member, &mut gone, watermark))
    }

    /// Changes the rule of the set, for when `min.insync.replicas` of a live topic changes. Returns
    /// how many waits this completed: a laxer rule may acknowledge more. A stricter rule holds the
    /// watermark where it is until the members meet it, and the waits go on.
    ///
    /// A [floor](crate::Rule::floor) may change at any time. The number of members that have to
    /// report follows from how the next leader is elected: change both together.
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
    /// Only those of the [epoch](Self).
    pub fn set_rule(&self, rule: Rule) -> Result<usize, WaitError> {
        self.change(|set, watermark| Ok(set.set_rule(rule, watermark)))
    }

    /// Returns a future of the group's watermark, ready once the watermark is at least `threshold`.
    /// The wait belongs to this epoch, in which its record was appended, and is cancelled as
    /// [`EpochOver`](crate::CancelReason::EpochOver) when the epoch ends. O(log n) for n waits of
    /// the group.
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

    /// Calls `then` once the watermark is at least `threshold`, or the wait has ended otherwise.
    /// The wait belongs to this epoch, in which its record was appended. See
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
