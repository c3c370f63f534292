//! Replica sets, and waits for the value that follows from them: [`ReplicaSets`].
//!
//! A wait for the values of several replicas fixes a set as it is parked, but sets change. So a
//! replication protocol waits for a *derived value*: the smallest of the in-sync set, the k-th
//! largest of the voters. The members of a [set] and what they have reported lie under one lock.
//! Each report derives the value anew and, if it rose, advances the
//! [watermark](crate::Watermarks) of the group, in the same lock hold. What that ends is finished
//! with nothing locked.

mod set;

use std::{borrow::Borrow, error::Error, fmt, hash::Hash, sync::Arc, time::Duration};

use timer_core::{BuildError, Timer};

pub use self::set::Rule;
use self::set::{Fault, Set};
use crate::{
    builder::Builder,
    error::{Refused, RefusedReason},
    operation::{Outcome, ParkResult, Timeout, opaque},
    reason::Reason,
    settings::{Form, Settings},
    sync::Map,
    table::{Batch, EndedAt},
    wait::WaitFuture,
    waits::Waits,
    watches::WatchKey,
    watermarks::{self, Callback, Values, WatermarkValue, Watermarks, rank},
};

/// Groups of replicas whose members report values: log ends, flushed offsets. A write waits until
/// the members that its rule asks for have reported it.
///
/// *Acknowledged means replicated*: a wait completes only when each member that the [`Rule`] asks
/// for, in the set and epoch of its time, has reported the value. A group has one *watermark*, the
/// derived value. It never goes back, so what was acknowledged stays so:
///
/// - A member that [joins](Self::join) has to have reached the watermark, and the leader's log end
///   at which the epoch began. Until then it catches up outside of the set.
/// - A member that [leaves](Self::leave) holds nothing back any more. Below the
///   [floor](Rule::floor) nothing is acknowledged.
/// - A new [epoch](Self::set), with its leader and its set, cancels the waits of the last.
///
/// This is a handle: clones share the groups. Dropping the last handle cancels all waits.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{ReplicaSets, Rule};
///
/// let logs = ReplicaSets::new("produce")?;
/// let in_sync = [("leader", 41), ("a", 41), ("b", 40)];
/// logs.set(&"orders-0", 0, in_sync, Rule::all().floor(2))?;
/// let produce = logs.wait_for(&"orders-0", 42, Duration::from_secs(30));
/// logs.report(&"orders-0", &"leader", 42)?;
/// logs.report(&"orders-0", &"a", 42)?;
/// assert_eq!(logs.watermark(&"orders-0"), Some(40)); // "b" has no more
/// assert_eq!(logs.leave(&"orders-0", &"b")?, 1); // it falls out of the set
/// assert_eq!(produce.wait_blocking(), Ok(42));
/// assert!(logs.join(&"orders-0", "b", 40).is_err()); // it has to catch up first
/// logs.join(&"orders-0", "b", 42)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Order of reports
/// The last report of a member counts, also one that is lower than before: its log was truncated.
/// So the reports of one member come in the order in which it made them.
///
/// # Locks
/// A group's `Hash`, `Eq` and `Clone`, a member's `Eq`, `Clone` and `Drop`, and a clock of yours
/// run under the group's lock and must not call back. Callbacks and wakers run with nothing locked.
pub struct ReplicaSets<G: WatchKey, M, V: WatermarkValue = u64> {
    sets: Arc<Map<G, Set<M>>>,
    watermarks: Watermarks<G, V>,
}

/// A member that has reported less than the one that has most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagging<M, V> {
    /// The member.
    pub member: M,
    /// The value that it has reported.
    pub value: V,
    /// How long it has lagged at least: since the first [`lagging`](ReplicaSets::lagging) that
    /// found it behind, unless it had caught up meanwhile.
    pub at_least: Duration,
}

/// Why a replica set was not changed, or a report is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicaError<V = u64> {
    /// The group was never [set](ReplicaSets::set), or was removed.
    NoGroup,
    /// It is not in the set.
    NoMember,
    /// It is in the set already, or comes twice.
    IsMember,
    /// It lacks values that it needs to be in the set.
    Behind {
        /// The value that it has.
        value: V,
        /// The value that it needs: the watermark, or the leader's log end at which the epoch
        /// began.
        needed: V,
    },
    /// The group is in another epoch, or a closed one.
    Refused(RefusedReason),
}

impl<V: fmt::Debug> fmt::Display for ReplicaError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicaError::NoGroup => f.write_str("the group has no replica set"),
            ReplicaError::NoMember => f.write_str("it is not in the replica set"),
            ReplicaError::IsMember => f.write_str("it is in the replica set already"),
            ReplicaError::Behind { value, needed } => {
                write!(f, "it has {value:?} and needs {needed:?} to be in the set")
            }
            ReplicaError::Refused(reason) => reason.fmt(f),
        }
    }
}

impl<V: fmt::Debug> Error for ReplicaError<V> {}

impl<V> From<RefusedReason> for ReplicaError<V> {
    fn from(reason: RefusedReason) -> Self {
        ReplicaError::Refused(reason)
    }
}

impl<V: WatermarkValue> ReplicaError<V> {
    fn of(fault: Fault) -> Self {
        match fault {
            Fault::NoMember => ReplicaError::NoMember,
            Fault::IsMember => ReplicaError::IsMember,
            Fault::Behind { value, needed } => ReplicaError::Behind {
                value: V::from_rank(value),
                needed: V::from_rank(needed),
            },
        }
    }
}

impl<G: WatchKey + Sync, M> ReplicaSets<G, M>
where
    M: Eq + Clone + Send + Sync + 'static,
{
    /// Makes `ReplicaSets` on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels their
    /// metrics.
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes `ReplicaSets` on `timer`, as [`new`](Self::new) does on the shared one. O(shards).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::ReplicaSets;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let sets: ReplicaSets<&str, u32> = ReplicaSets::on(&timer, "sets")?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).timer(timer).build()
    }

    /// Returns a builder with the default settings.
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        Builder::new(name, ())
    }

    /// Takes values of another type, as [`Watermarks::with_values`] does. Call it right after the
    /// constructor.
    pub fn with_values<V: WatermarkValue>(self) -> ReplicaSets<G, M, V> {
        ReplicaSets {
            sets: self.sets,
            watermarks: self.watermarks.with_values(),
        }
    }
}

impl<G: WatchKey + Sync, M> Form for ReplicaSets<G, M>
where
    M: Eq + Clone + Send + Sync + 'static,
{
    type Own = ();

    fn build(settings: Settings, (): ()) -> Result<Self, BuildError> {
        Ok(ReplicaSets {
            sets: Arc::new(Map::new()),
            watermarks: Form::build(settings, Default::default())?,
        })
    }
}

/// Sets.
impl<G: WatchKey + Sync, M, V: WatermarkValue> ReplicaSets<G, M, V>
where
    M: Eq + Clone + Send + Sync + 'static,
{
    /// Begins an epoch of the group with these members: what each has, as the leader of this epoch
    /// knows it; of a follower that has not told this leader, the lowest value. Returns how many
    /// waits this ended.
    ///
    /// The highest value is the leader's log end, at which the epoch starts. The watermark stays
    /// where it was, or rises to what the members have. The waits of the last epoch are cancelled as
    /// by [`Watermarks::begin_epoch`], whatever the members have: a record of this leader may be
    /// another one than theirs. The first epoch of a group may be 0; it takes on the waits that were
    /// parked before.
    ///
    /// O(members²), and O(n) for n waits under the group's lock.
    ///
    /// # Errors
    /// - [`Refused`](ReplicaError::Refused) unless the epoch is above the group's,
    /// - [`Behind`](ReplicaError::Behind) if each member has less than the watermark: this leader
    ///   lacks what was acknowledged. To lose it, [remove](Self::remove) the group first.
    /// - [`IsMember`](ReplicaError::IsMember) if a member comes twice.
    ///
    /// Nothing was changed then.
    pub fn set<Q>(
        &self,
        group: &Q,
        epoch: u64,
        members: impl IntoIterator<Item = (M, V)>,
        rule: Rule,
    ) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        // 1. The user's types run before anything is locked.
        let mut ranked = Vec::new();
        for (member, value) in members {
            ranked.push((member, rank(value)));
        }
        let key = group.to_owned();
        let mut set = Some(Set::new(epoch, rule, ranked).map_err(ReplicaError::of)?);
        // 2. The set, and its epoch, in one lock hold. The members of the last set, or of a refused
        //    one, are dropped after it.
        self.finishing(|now_ns, ended| {
            self.sets.replace(key, &mut set, |set, before| {
                let set = set.ok_or(ReplicaError::NoGroup)?; // never: it is there
                if let Some(before) = before {
                    let present = before.epoch;
                    if epoch <= present {
                        let named = epoch;
                        return Err(RefusedReason::OtherEpoch { named, present }.into());
                    }
                }
                let watermark = before.map_or(0, |before| before.watermark);
                set.follow(watermark).map_err(ReplicaError::of)?;
                Ok(self.begin(group, set, now_ns, ended)?)
            })
        })
    }

    /// Begins the epoch of a set in the watermarks. Of a group that is new, epoch 0 is the present.
    fn begin<Q>(
        &self,
        group: &Q,
        set: &Set<M>,
        now_ns: EndedAt,
        ended: &mut dyn FnMut(Batch<Values<G>>),
    ) -> Result<usize, RefusedReason>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let table = &self.watermarks.handle.table;
        if set.epoch == 0 {
            let to = |before: u64| before.max(set.watermark);
            return table.change_unfinished(group, Some(0), now_ns, to, ended);
        }
        table.begin_unfinished(group, set.epoch, set.watermark, false, now_ns, ended)
    }

    /// Lets a member into the set, which has reported `value`. Returns how many waits this
    /// completed: some if the set was below its floor, or if a majority needs no more members now.
    ///
    /// Where a controller keeps the set, too, let the member in *before* you tell it: once the
    /// controller may elect the member, nothing is to be acknowledged without it.
    ///
    /// # Errors
    /// [`Behind`](ReplicaError::Behind) with what it needs, below the watermark or the start of the
    /// epoch; [`IsMember`](ReplicaError::IsMember), [`NoGroup`](ReplicaError::NoGroup).
    pub fn join<Q>(&self, group: &Q, member: M, value: V) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let value = rank(value);
        let mut member = Some(member); // a refused one is dropped unlocked
        self.change(group, None, |set| set.join(&mut member, value))
    }

    /// Takes a member out of the set. Returns how many waits this completed: what it alone had held
    /// back is acknowledged by the others, but not below the [floor](Rule::floor).
    ///
    /// Where a controller keeps the set, too, take the member out *after* that has agreed: until then
    /// it may elect the member, which lacks what the others acknowledge. By [majority](Rule::majority)
    /// only one member leaves or joins at a time, as an entry of the log, and the next one after the
    /// entry is acknowledged ([Raft, section 4.1][raft]): the members that are left after two may all
    /// lack a record.
    ///
    /// [raft]: https://github.com/ongardie/dissertation
    ///
    /// # Errors
    /// [`NoMember`](ReplicaError::NoMember), [`NoGroup`](ReplicaError::NoGroup).
    pub fn leave<Q>(&self, group: &Q, member: &M) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let mut gone = None; // it is dropped unlocked
        self.change(group, None, |set| set.leave(member, &mut gone))
    }

    /// Replaces a member by another that has reported `value`, in one step. Returns how many waits
    /// this completed.
    ///
    /// # Errors
    /// As [`leave`](Self::leave) for the one and [`join`](Self::join) for the other. Nothing was
    /// changed then.
    pub fn replace<Q>(&self, group: &Q, old: &M, new: M, value: V) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let value = rank(value);
        let mut new = Some(new); // and then the old one, which is dropped unlocked
        self.change(group, None, |set| set.replace(old, &mut new, value))
    }

    /// Records what a member has in the present epoch. Returns how many waits this completed.
    ///
    /// O(members) under the group's lock and, if the watermark rises, an
    /// [advance](Watermarks::advance). By row `replica-set-3` of `peers`.
    ///
    /// # Errors
    /// [`NoMember`](ReplicaError::NoMember) for a member that is not in the set;
    /// [`Behind`](ReplicaError::Behind) for one that has less than the watermark, if it had more or
    /// the rule asks for [all](Rule::all): it has lost what was acknowledged. It counts as it says, so
    /// nothing more is acknowledged by all before it has left or caught up. A minority that is slow
    /// is no error.
    pub fn report<Q>(&self, group: &Q, member: &M, value: V) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let value = rank(value);
        self.change(group, None, |set| set.report(member, value))
    }

    /// Records what a member has, as [`report`](Self::report) does, if the group is in this epoch:
    /// a report of an earlier leader's log may come late.
    ///
    /// # Errors
    /// [`Refused`](ReplicaError::Refused) in another epoch. Otherwise as [`report`](Self::report).
    pub fn report_in<Q>(
        &self,
        group: &Q,
        epoch: u64,
        member: &M,
        value: V,
    ) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let value = rank(value);
        self.change(group, Some(epoch), |set| set.report(member, value))
    }

    /// Changes a set, and advances the watermark of its group in the same lock hold if it rose.
    #[inline]
    fn change<Q>(
        &self,
        group: &Q,
        epoch: Option<u64>,
        change: impl FnOnce(&mut Set<M>) -> Result<bool, Fault>,
    ) -> Result<usize, ReplicaError<V>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let table = &self.watermarks.handle.table;
        let mut epoch = epoch;
        let mut stale = None;
        let mut late = None;
        if failpoint!(ReportEpochComparedUnlocked) {
            epoch = epoch.filter(|_| self.epoch(group) != epoch);
        }
        if failpoint!(SetChangedInCopy) {
            stale = self.sets.get(group, |set| set.cloned());
        }
        self.finishing(|now_ns, ended| {
            let changed = self.sets.get(group, |set| {
                let set = set.ok_or(ReplicaError::NoGroup)?;
                if let Some(stale) = stale {
                    *set = stale;
                }
                let present = set.epoch;
                if let Some(named) = epoch.filter(|named| *named != present) {
                    return Err(RefusedReason::OtherEpoch { named, present }.into());
                }
                if !change(set).map_err(ReplicaError::of)? {
                    return Ok(0);
                }
                let watermark = set.watermark;
                if failpoint!(ReportAdvancesUnlocked) {
                    late = Some(watermark);
                    return Ok(0);
                }
                let to = |before: u64| before.max(watermark);
                Ok(table.change_unfinished(group, Some(present), now_ns, to, &mut *ended)?)
            });
            match late {
                Some(late) => {
                    let to = |before: u64| before.max(late);
                    Ok(table.change_unfinished(group, None, now_ns, to, ended)?)
                }
                None => changed,
            }
        })
    }

    /// Calls `change` with what takes the waits that it ends, and finishes those with nothing
    /// locked.
    #[inline]
    fn finishing(
        &self,
        change: impl FnOnce(EndedAt, &mut dyn FnMut(Batch<Values<G>>)) -> Result<usize, ReplicaError<V>>,
    ) -> Result<usize, ReplicaError<V>> {
        let table = &self.watermarks.handle.table;
        let call = table.enter();
        let now_ns = table.ending_at(); // a clock is user code
        let mut unfinished = Batch::new();
        let result = change(now_ns, &mut |batch| unfinished.extend(batch));
        table.finish_all(&call, unfinished);
        result
    }

    /// Removes the group with its set, its epoch and its watermark, and cancels its waits; returns
    /// how many. Afterwards a report that comes late finds no group. What was acknowledged is
    /// forgotten here: a later [`set`](Self::set) starts anew.
    pub fn remove<Q>(&self, group: &Q) -> usize
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        let table = &self.watermarks.handle.table;
        let call = table.enter();
        let now_ns = table.ending_at();
        let mut unfinished = Batch::new();
        let mut removed = 0;
        let mut cancel = || {
            let ended = |batch| unfinished.extend(batch);
            removed = table.remove_unfinished(group, &watermarks::removed(), now_ns, ended);
        };
        // The waits and the set go in one lock hold of the group. Without a set there may be waits.
        if failpoint!(RemovalCancelsUnlocked) {
            self.sets.remove(group.to_owned(), || {});
            cancel();
        } else {
            self.sets.remove(group.to_owned(), cancel);
        }
        table.finish_all(&call, unfinished);
        removed
    }

    /// Closes the group: its waits are cancelled, and later ones end at once, with the same reason.
    /// Returns how many this ended. See [`Watermarks::close`].
    pub fn close<Q>(&self, group: &Q, reason: impl Into<Reason>) -> usize
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        self.watermarks.close(group, reason)
    }
}

/// Looking.
impl<G: WatchKey + Sync, M, V: WatermarkValue> ReplicaSets<G, M, V>
where
    M: Eq + Clone + Send + Sync + 'static,
{
    /// Returns the watermark of the group: what is acknowledged. `None` without a set. O(1).
    pub fn watermark<Q: Hash + Eq + ?Sized>(&self, group: &Q) -> Option<V>
    where
        G: Borrow<Q>,
    {
        let watermark = |set: Option<&mut Set<M>>| set.map(|set| set.watermark);
        self.sets.get(group, watermark).map(V::from_rank)
    }

    /// Returns the epoch of the group; `None` without a set. O(1).
    pub fn epoch<Q: Hash + Eq + ?Sized>(&self, group: &Q) -> Option<u64>
    where
        G: Borrow<Q>,
    {
        self.sets.get(group, |set| set.map(|set| set.epoch))
    }

    /// Returns the members of the group with what they have reported, in the order in which they
    /// came. O(members).
    pub fn members<Q: Hash + Eq + ?Sized>(&self, group: &Q) -> Vec<(M, V)>
    where
        G: Borrow<Q>,
    {
        let ranked: Vec<(M, u64)> = self.sets.get(group, |set| match set {
            Some(set) => set
                .members()
                .map(|(name, value)| (name.clone(), value))
                .collect(),
            None => Vec::new(),
        });
        let value = |(name, rank)| (name, V::from_rank(rank));
        ranked.into_iter().map(value).collect()
    }

    /// Returns the members that have reported less than the one that has most, the last first:
    /// these hold the watermark back. O(members log members).
    ///
    /// The look remembers them. A leader that calls this at each half of its limit
    /// (`replica.lag.time.max.ms`) takes those out whose `at_least` is over the limit; a report
    /// reads no clock for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{ReplicaSets, Rule, timer_core::ManualTimer};
    ///
    /// let timer = ManualTimer::new();
    /// let logs: ReplicaSets<&str, &str> = ReplicaSets::builder("produce").timer(&timer).build()?;
    /// logs.set(&"orders-0", 0, [("leader", 42), ("a", 40)], Rule::all())?;
    /// assert!(logs.lagging(&"orders-0")[0].at_least.is_zero());
    /// timer.advance(Duration::from_secs(5));
    /// let lagging = &logs.lagging(&"orders-0")[0];
    /// assert_eq!((lagging.member, lagging.value), ("a", 40));
    /// assert_eq!(lagging.at_least, Duration::from_secs(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lagging<Q: Hash + Eq + ?Sized>(&self, group: &Q) -> Vec<Lagging<M, V>>
    where
        G: Borrow<Q>,
    {
        let now_ns = self.watermarks.handle.table.driver().now_ns();
        let lagging = self.sets.get(group, |set| match set {
            Some(set) => set.lagging(now_ns),
            None => Vec::new(),
        });
        let shown = lagging.into_iter().map(|lags| Lagging {
            member: lags.member,
            value: V::from_rank(lags.value),
            at_least: lags.at_least,
        });
        shown.collect()
    }

    /// Returns the waits, for metrics and snapshots, to cancel some, or to
    /// [shut down](Waits::shutdown). O(1), one allocation.
    pub fn waits(&self) -> Waits<G> {
        self.watermarks.waits()
    }
}

/// Waiting.
impl<G: WatchKey + Sync, M, V: WatermarkValue> ReplicaSets<G, M, V>
where
    M: Eq + Clone + Send + Sync + 'static,
{
    /// Returns a future of the group's watermark, ready once that is at least `threshold`. It
    /// belongs to the present epoch, and is cancelled as
    /// [`EpochOver`](crate::CancelReason::EpochOver) with it. O(log n) for n waits of the group.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`].
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError).
    pub fn wait_for<Q>(&self, group: &Q, threshold: V, timeout: impl Into<Timeout>) -> WaitFuture<V>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        self.watermarks.wait_for(group, threshold, timeout)
    }

    /// Returns a future as [`wait_for`](Self::wait_for) does, of this epoch: that in which the
    /// record was appended. See [`Watermarks::wait_for_in`].
    pub fn wait_for_in<Q>(
        &self,
        group: &Q,
        epoch: u64,
        threshold: V,
        timeout: impl Into<Timeout>,
    ) -> WaitFuture<V>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        self.watermarks
            .wait_for_in(group, epoch, threshold, timeout)
    }

    /// Calls `then` once the watermark is at least `threshold`, or the wait has ended otherwise.
    /// See [`Watermarks::park`].
    ///
    /// # Errors
    /// Returns an error as [`Watermarks::park`] does; `then` is not called.
    pub fn park<Q>(
        &self,
        group: &Q,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<Callback>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        self.watermarks.park(group, threshold, timeout, then)
    }

    /// Calls `then` as [`park`](Self::park) does; the wait belongs to this epoch, that in which the
    /// record was appended. See [`Watermarks::park_in`].
    ///
    /// # Errors
    /// Returns an error as [`Watermarks::park_in`] does; `then` is not called.
    pub fn park_in<Q>(
        &self,
        group: &Q,
        epoch: u64,
        threshold: V,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<Callback>>
    where
        G: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = G> + ?Sized,
    {
        self.watermarks
            .park_in(group, epoch, threshold, timeout, then)
    }
}

impl<G: WatchKey, M, V: WatermarkValue> Clone for ReplicaSets<G, M, V> {
    fn clone(&self) -> Self {
        ReplicaSets {
            sets: self.sets.clone(),
            watermarks: self.watermarks.clone(),
        }
    }
}

opaque!([G: WatchKey, M, V: WatermarkValue] ReplicaSets<G, M, V>, watermarks: watermarks);
