//! Replica sets, and waits for the value that follows from them: [`ReplicaSets`].
//!
//! A wait for the values of several replicas fixes a set when it is parked, but sets change. So a
//! replication protocol waits for a *derived value*: the smallest of the in-sync set, the k-th
//! largest of the voters. The members of a [set] and what they have reported lie beside the group's
//! value in the table of [`Watermarks`](crate::Watermarks). Each report derives the value anew and
//! stores it in the same lock hold, the only one of the report. The waits that this ends are
//! finished with nothing locked.

mod in_epoch;
mod set;

use std::{marker::PhantomData, time::Duration};

use timer_core::{BuildError, Timer};

pub use self::set::Rule;
use self::set::Set;
use crate::{
    builder::Builder,
    error::WaitError,
    operation::{CancelReason, opaque},
    reason::Reason,
    settings::{Form, Settings},
    table::handle::Handle,
    waits::Waits,
    watches::{KeyRef, ToKey, WatchKey},
    watermarks::{self, Begins, Beside, Mark, Values, WatermarkValue, rank},
};

/// Groups of replicas whose members report values: log ends, flushed offsets. A write waits until
/// the members that its rule asks for have reported it.
///
/// *Acknowledged means replicated*: a wait completes only when each member that the [`Rule`] asks
/// for, in the set and epoch of that time, has reported the value. A group has one *watermark*, the
/// derived value. It never goes back, so an acknowledged value stays acknowledged:
///
/// - A member that [joins](crate::InEpoch::join) must have reached the watermark, and the leader's
///   log end at which the epoch began. Until then it catches up outside the set.
/// - A member that [leaves](crate::InEpoch::leave) holds nothing back any more. Below the
///   [floor](Rule::floor), nothing is acknowledged.
/// - A new epoch cancels the waits of the last one. Its leader begins it with
///   [another set](Self::set) or [the present one](Self::begin_epoch); other processes
///   [follow](Self::follow). A caller that reports, changes the set or waits
///   [names the epoch](Self::in_epoch), and is refused in any other epoch. (So `report`, `join`,
///   `leave`, `set_rule`, `wait_for` and `park` are calls of [`InEpoch`](crate::InEpoch).)
///
/// This is a handle: clones share the groups. Dropping the last handle cancels all waits.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{ReplicaSets, Rule};
///
/// let logs = ReplicaSets::new("produce")?;
/// let in_sync = [("leader", 41), ("a", 41), ("b", 40)];
/// logs.set(&"orders-0", 1, in_sync, 41, Rule::all().floor(2))?;
/// let orders = logs.in_epoch(&"orders-0", 1);
/// let produce = orders.wait_for(42, Duration::from_secs(30));
/// orders.report(&"leader", 42)?;
/// orders.report(&"a", 42)?;
/// assert_eq!(logs.watermark(&"orders-0"), Some(40)); // "b" has no more
/// assert_eq!(orders.leave(&"b")?, 1); // it falls out of the set
/// assert_eq!(produce.wait_blocking(), Ok(42));
/// assert!(orders.join("b", 40).is_err()); // it has to catch up first
/// orders.join("b", 42)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Order of reports
/// The last report of a member counts, even if it is lower than before: its log was truncated. So
/// the reports of one member must come in the order in which it made them: a leader that appends on
/// several threads reports its log end under its log's lock. A callback of
/// [`park`](crate::InEpoch::park) runs in that report, and must not take the log's lock.
///
/// # Locks
/// A group's `Eq` and `Clone`, and a member's `Eq`, `Clone` and `Drop`, run under the lock of the
/// group's shard and must not call back. Callbacks and wakers run with nothing locked.
#[derive(Clone)]
pub struct ReplicaSets<G: WatchKey, M: Send + 'static, V: WatermarkValue = u64> {
    handle: Handle<Values<G, Here<M>>>,
    /// No value of this type is kept or shared: the table keeps ranks.
    values: PhantomData<fn() -> V>,
}

/// The data beside the watermark of a group: its set, unless another process leads.
type Here<M> = Option<Box<Set<M>>>;

/// Returns the set of a group that this process leads.
fn set_of<M>(mark: &mut Mark<Here<M>>) -> Option<&mut Set<M>> {
    mark.valued.as_mut()?.beside.as_deref_mut()
}

/// A group has no epoch before its first one begins, and no waits while it has no set.
impl<M: Send + 'static> Beside for Here<M> {
    fn is_led(&self) -> bool {
        self.is_some()
    }

    #[cfg(feature = "metrics")]
    fn gauges(each: impl FnOnce(&mut dyn FnMut(&Self))) -> Vec<timer_core::driver::Sample> {
        let mut led = 0;
        let mut below_floor = 0;
        each(&mut |here| {
            if let Some(set) = here {
                led += 1;
                below_floor += u64::from(set.below_floor().is_some());
            }
        });
        crate::samples::groups(led, below_floor)
    }
}

impl<G: WatchKey, M: Eq + Clone + Send + 'static> ReplicaSets<G, M> {
    /// Makes `ReplicaSets` on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels their
    /// metrics.
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`] does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes `ReplicaSets` on `timer`, as [`new`](Self::new) does on the shared one. O(1).
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

    /// Changes the type of the values, as
    /// [`Watermarks::with_values`](crate::Watermarks::with_values) does. Call it right after the
    /// constructor.
    pub fn with_values<V: WatermarkValue>(self) -> ReplicaSets<G, M, V> {
        ReplicaSets {
            handle: self.handle,
            values: PhantomData,
        }
    }
}

impl<G: WatchKey, M: Eq + Clone + Send + 'static> Form for ReplicaSets<G, M> {
    type Own = ();

    fn build(settings: Settings, (): ()) -> Result<Self, BuildError> {
        Ok(ReplicaSets {
            handle: Handle::new(settings, Values::new(usize::MAX))?,
            values: PhantomData,
        })
    }
}

/// Sets.
impl<G: WatchKey, M: Eq + Clone + Send + 'static, V: WatermarkValue> ReplicaSets<G, M, V> {
    /// Begins an epoch of the group, whose leader has `log_end`, with these members and the value
    /// that each has of the leader's log, as far as the leader knows. For a follower that has not
    /// reported to this leader, pass the lowest value, or a watermark that the leader knew before.
    /// Returns how many waits this ended.
    ///
    /// The epoch starts at `log_end`: no member counts as having more. By [`Rule::majority`] and
    /// [`Rule::at_least`] a value up to there is acknowledged only with one above it, so call this
    /// before the leader appends its first entry. The watermark stays where it was, or rises to the
    /// value that the members have (by these two rules only in epoch 0). The waits of the last
    /// epoch are cancelled as by [`Watermarks::begin_epoch`](crate::Watermarks::begin_epoch),
    /// whatever the members have: this leader may have another record than the one that a wait is
    /// for.
    ///
    /// O(members²), and O(n) for n waits under the lock.
    ///
    /// # Errors
    /// - [`OtherEpoch`](WaitError::OtherEpoch) unless the epoch is above the group's,
    /// - [`Behind`](WaitError::Behind) if `log_end` is below the watermark: this leader lacks
    ///   acknowledged values. To give those up, [remove](Self::remove) the group first.
    /// - [`IsMember`](WaitError::IsMember) if a member comes twice.
    ///
    /// Nothing was changed then.
    pub fn set<Q: ToKey<G> + ?Sized>(
        &self,
        group: &Q,
        epoch: u64,
        members: impl IntoIterator<Item = (M, V)>,
        log_end: V,
        rule: Rule,
    ) -> Result<usize, WaitError> {
        // 1. Run the user's conversions and iterator before anything is locked.
        let log_end = rank(log_end);
        let mut ranked = Vec::new();
        for (member, value) in members {
            ranked.push((member, rank(value)));
        }
        let set = Set::new(rule, ranked, log_end)?;
        // 2. Store the set, its epoch and its watermark in one lock hold. The members of the last
        //    set, or of a refused one, are dropped unlocked.
        let set = Some(Box::new(set));
        let table = &self.handle.table;
        table.begin_epoch(group, epoch, Begins::Anew, set, |here, _, before| {
            let set = here.as_mut().ok_or(WaitError::NoGroup)?;
            set.begin(epoch, before)
        })
    }

    /// Begins an epoch of the group with its present members and rule, for when a leader is elected
    /// and the set stays. Returns how many waits this ended; inside a callback, telling them is
    /// left to the [outermost call](crate::guide::your_code). A member that joins or leaves
    /// meanwhile does so either in the last epoch, and then this one has or lacks it, or in this
    /// epoch.
    ///
    /// `leader` has `log_end`, at which the epoch starts. Every other member counts as having the
    /// watermark, or less if it had less: a value that it reported above that may be of the last
    /// leader's log. It reports anew. This is for a process that led the last epoch, too, or that
    /// keeps the sets of all replicas; other processes use [`set`](Self::set), which takes the
    /// members and their values.
    ///
    /// O(members), with a copy of each under the lock, and O(n) for n waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, ReplicaSets, Rule, WaitError};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 1, [("a", 42), ("b", 40), ("c", 41)], 42, Rule::all())?;
    /// let old = logs.in_epoch(&"orders-0", 1).wait_for(42, Duration::from_secs(30));
    /// logs.begin_epoch(&"orders-0", 2, &"b", 40)?; // "b" is elected
    /// let over = CancelReason::EpochOver { epoch: 1, present: 2 };
    /// assert_eq!(old.wait_blocking(), Err(WaitError::Cancelled(over)));
    /// assert_eq!(logs.members(&"orders-0"), [("a", 40), ("b", 40), ("c", 40)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`NoGroup`](WaitError::NoGroup) if the group has no set, as in an epoch that another
    ///   process [leads](Self::follow),
    /// - [`NoMember`](WaitError::NoMember) if the leader is not in the set,
    /// - [`OtherEpoch`](WaitError::OtherEpoch) unless the epoch is above the group's,
    /// - [`Behind`](WaitError::Behind) if `log_end` is below the watermark: this leader lacks
    ///   acknowledged values.
    ///
    /// Nothing was changed then.
    pub fn begin_epoch<Q: ToKey<G> + ?Sized>(
        &self,
        group: &Q,
        epoch: u64,
        leader: &M,
        log_end: V,
    ) -> Result<usize, WaitError> {
        let log_end = rank(log_end);
        let table = &self.handle.table;
        // The next set is made from the present one in the lock hold in which it replaces that. The
        // last set, or a refused one, is dropped unlocked.
        table.begin_epoch(group, epoch, Begins::Anew, None, |here, last, before| {
            let last = last.and_then(Option::as_ref).ok_or(WaitError::NoGroup)?;
            let set = here.insert(Box::new(last.led_by(leader, log_end, before)?));
            set.begin(epoch, before)
        })
    }

    /// Follows in this epoch, which another process leads, or no process yet: the waits of the last
    /// epoch are cancelled ([`EpochOver`](CancelReason::EpochOver)), and calls that name the last
    /// epoch are refused. The watermark stays. The leader of the epoch has the set: here no member
    /// joins or is missing, and no operation waits, until this process leads an epoch itself
    /// ([`set`](Self::set)). Returns how many waits this ended. O(n) under the lock for n waits.
    ///
    /// A leader that steps down in its own epoch, since it hears from no majority, follows in that
    /// epoch: its waits are cancelled, and later waits are refused
    /// ([`NoGroup`](WaitError::NoGroup)). It may lead a later epoch.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, ReplicaSets, Rule, WaitError};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 1, [("a", 42), ("b", 40)], 42, Rule::all())?;
    /// let produce = logs.in_epoch(&"orders-0", 1).wait_for(42, Duration::from_secs(30));
    /// assert_eq!(logs.follow(&"orders-0", 2)?, 1); // "b" leads
    /// let over = CancelReason::EpochOver { epoch: 1, present: 2 };
    /// assert_eq!(produce.wait_blocking(), Err(WaitError::Cancelled(over)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OtherEpoch`](WaitError::OtherEpoch) if the epoch is below the group's.
    pub fn follow<Q: ToKey<G> + ?Sized>(&self, group: &Q, epoch: u64) -> Result<usize, WaitError> {
        let table = &self.handle.table;
        table.begin_epoch(group, epoch, Begins::Elsewhere, None, |_, _, before| {
            Ok(before)
        })
    }

    /// Cancels the waits of the group if its set has lost too many members, as
    /// [`BelowFloor`](crate::CancelReason::BelowFloor) with the number of members and the
    /// [floor](Rule::floor). This takes one lock hold, so it cancels no wait that came after the
    /// set had grown. Later waits are parked. Returns how many waits this ended, including waits
    /// that an advance under way had reached, which complete.
    ///
    /// Below the floor a wait goes on until the set has grown or its time is up, since a member may
    /// soon be back. A leader that answers at once instead (Kafka's
    /// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`) calls this when a member has left. O(n) under the lock
    /// for n waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{CancelReason, ReplicaSets, Rule, WaitError};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 1, [("leader", 42), ("a", 42)], 42, Rule::all().floor(2))?;
    /// let orders = logs.in_epoch(&"orders-0", 1);
    /// let produce = orders.wait_for(43, Duration::from_secs(30));
    /// assert_eq!(logs.cancel_below_floor(&"orders-0"), 0);
    /// orders.leave(&"a")?;
    /// assert_eq!(logs.cancel_below_floor(&"orders-0"), 1);
    /// let below = CancelReason::BelowFloor { members: 1, floor: 2 };
    /// assert_eq!(produce.wait_blocking(), Err(WaitError::Cancelled(below)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_below_floor<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> usize {
        let table = &self.handle.table;
        table.cancel_key(group, |mark| set_of(mark)?.below_floor())
    }

    /// Removes the group with its set, its epoch and its watermark, and cancels its waits. Returns
    /// how many waits this ended. A report that comes afterwards finds no group. The acknowledged
    /// values are forgotten here: a later [`set`](Self::set) starts anew, in any epoch. A leader
    /// that learns of another leader's epoch [follows](Self::follow) in it instead.
    pub fn remove<Q: ToKey<G> + ?Sized>(&self, group: &Q) -> usize {
        self.handle.table.remove_key(group, &watermarks::removed())
    }

    /// Closes the group: its waits are cancelled, and later waits end at once, with the same
    /// reason. Returns how many waits this ended. From now on, reports and changes of the set are
    /// refused as [`KeyClosed`](WaitError::KeyClosed). See
    /// [`Watermarks::close`](crate::Watermarks::close).
    pub fn close<Q: ToKey<G> + ?Sized>(&self, group: &Q, reason: impl Into<Reason>) -> usize {
        self.handle.table.close_key(group, &reason.into())
    }
}

/// Looking.
impl<G: WatchKey, M: Eq + Clone + Send + 'static, V: WatermarkValue> ReplicaSets<G, M, V> {
    /// Returns the watermark of the group: values up to it are acknowledged. `None` before its
    /// first epoch. O(1).
    pub fn watermark<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> Option<V> {
        let watermark = self.handle.table.look(group, |mark| mark.value());
        watermark.map(V::from_rank)
    }

    /// Returns the epoch of the group; `None` before the first. O(1).
    pub fn epoch<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> Option<u64> {
        self.handle.table.look(group, |mark| mark.epoch())
    }

    /// Returns [`BelowFloor`](crate::CancelReason::BelowFloor) with the numbers if the group's set
    /// has lost too many members; `None` if the set has enough members, or if there is no set.
    /// O(1).
    ///
    /// Below the floor, nothing is acknowledged before the set has grown, so a leader refuses a
    /// write before it appends it. The leader asks again once the wait is parked, since a member
    /// may have left in between, and then drops the wait if it is not ready.
    ///
    /// ```
    /// use purgatory::{CancelReason, ReplicaSets, Rule};
    ///
    /// let logs = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 1, [("leader", 42), ("a", 42)], 42, Rule::all().floor(2))?;
    /// assert_eq!(logs.below_floor(&"orders-0"), None);
    /// logs.in_epoch(&"orders-0", 1).leave(&"a")?;
    /// let too_few = CancelReason::BelowFloor { members: 1, floor: 2 };
    /// assert_eq!(logs.below_floor(&"orders-0"), Some(too_few));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn below_floor<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> Option<CancelReason> {
        let table = &self.handle.table;
        table.look(group, |mark| set_of(mark)?.below_floor())
    }

    /// Returns the members of the group with the values that they have reported, in the order in
    /// which the members joined. O(members).
    pub fn members<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> Vec<(M, V)> {
        let table = &self.handle.table;
        let ranked = table.look(group, |mark| Some(set_of(mark)?.members()));
        let ranked = ranked.unwrap_or_default();
        let value = |(name, rank)| (name, V::from_rank(rank));
        ranked.into_iter().map(value).collect()
    }

    /// Returns the members that have reported less than the highest value in the set, the lowest
    /// first: by [`Rule::all`] these hold the watermark back. Each comes with its value, and the
    /// time for which it has lagged at least: since a look at which the set had a value that this
    /// member has still not reported. A member that keeps up with a growing log has reported that
    /// value by the next look. O(members log members).
    ///
    /// The look remembers the members. A leader calls this every half of its limit
    /// (`replica.lag.time.max.ms`), and takes out the members whose time is over the limit; reports
    /// read no clock for this.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{ReplicaSets, Rule, timer_core::ManualTimer};
    ///
    /// let timer = ManualTimer::new();
    /// let logs: ReplicaSets<&str, &str> = ReplicaSets::builder("produce").timer(&timer).build()?;
    /// logs.set(&"orders-0", 0, [("leader", 42), ("a", 40)], 42, Rule::all())?;
    /// assert_eq!(logs.lagging(&"orders-0"), [("a", 40, Duration::ZERO)]);
    /// timer.advance(Duration::from_secs(5));
    /// assert_eq!(logs.lagging(&"orders-0"), [("a", 40, Duration::from_secs(5))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lagging<Q: KeyRef<G> + ?Sized>(&self, group: &Q) -> Vec<(M, V, Duration)> {
        let table = &self.handle.table;
        let driver = table.frame.driver();
        let now_ns = driver.now_ns();
        let looked = table.look(group, |mark| {
            let epoch = mark.epoch();
            let set = set_of(mark)?;
            Some((set.lagging(now_ns), epoch, set.highest()))
        });
        let Some((lagging, epoch, highest)) = looked else {
            return Vec::new();
        };
        // Read the time anew, after the look: the thread may have stalled between `now_ns` and the
        // look, while the set went on.
        if lagging.iter().any(|(.., lagged_for)| lagged_for.is_zero()) {
            let looked_ns = driver.now_ns();
            table.look(group, |mark| {
                let is_same = mark.epoch() == epoch;
                let set = set_of(mark).filter(|_| is_same)?;
                set.lag_since(looked_ns, highest);
                Some(())
            });
        }
        let shown = |(name, rank, lagged_for)| (name, V::from_rank(rank), lagged_for);
        lagging.into_iter().map(shown).collect()
    }

    /// Returns the waits, for metrics and snapshots, to cancel some, or to
    /// [shut down](Waits::shutdown). O(1).
    pub fn waits(&self) -> Waits<G> {
        self.handle.waits()
    }
}

opaque!([G: WatchKey, M: Send + 'static, V: WatermarkValue] ReplicaSets<G, M, V>, name: handle.table.frame.name);
