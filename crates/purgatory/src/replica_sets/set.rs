//! One replica set: its members, the value that each has reported, and the watermark that follows,
//! which lies beside the set. Pure.
//!
//! - **Held**: while there are fewer members than the rule asks for, the watermark stays where it
//!   is.
//! - **Caught up**: each member that joined the set had reached the watermark and the start of the
//!   epoch when it joined.
//! - **Rises**: the watermark that follows is never below the one before.

use std::{mem, time::Duration};

use smallvec::SmallVec;
use timer_core::driver::contain;

use crate::{error::WaitError, operation::CancelReason};

/// The rule by which a value is acknowledged: how many members of a set have to report it, and how
/// many the set must have at least.
///
/// ```
/// use purgatory::Rule;
///
/// let acks_all = Rule::all().floor(2); // Kafka: min.insync.replicas=2
/// let raft = Rule::majority();
/// # let _ = (acks_all, raft);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    needed: Needed,
    floor: usize,
}

/// The number of members that have to report a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    All,
    Majority,
    AtLeast(usize),
}

impl Rule {
    /// Requires every member to report a value: the watermark is the smallest reported value. Use
    /// this for a leader that is elected from the set, as Kafka's is from the in-sync replicas.
    pub fn all() -> Self {
        Rule::of(Needed::All)
    }

    /// Requires more than half of the members to report a value. Use this for a leader that is
    /// elected by a majority, as Raft's is.
    ///
    /// Values up to the start of the epoch are not counted: an entry of an earlier term is
    /// acknowledged only with a later entry of the present term ([Raft, section 5.4.2][raft]).
    ///
    /// [raft]: https://raft.github.io/raft.pdf
    pub fn majority() -> Self {
        Rule::of(Needed::Majority)
    }

    /// Requires at least `k` members (at least 1) to report a value; a set with fewer members
    /// acknowledges none. Use this for an election in which any `n - k + 1` members find the value,
    /// where `n` is the size of the set in which it was acknowledged: before a member leaves, `k`
    /// other members have to have the watermark. Values up to the start of the epoch are not
    /// counted, as by [`majority`](Self::majority).
    pub fn at_least(k: usize) -> Self {
        Rule::of(Needed::AtLeast(k))
    }

    /// Holds the watermark while the set has fewer than `members`, at least 1: Kafka's
    /// `min.insync.replicas`. Waits then go on until the set has grown, their time is up, or
    /// [`cancel_below_floor`](crate::ReplicaSets::cancel_below_floor) ends them.
    pub fn floor(self, members: usize) -> Self {
        Rule {
            floor: members.max(1),
            ..self
        }
    }

    fn of(needed: Needed) -> Self {
        Rule { needed, floor: 1 }
    }

    /// Returns the smallest number of members with which a value is acknowledged.
    #[inline]
    fn members_min(self) -> usize {
        match self.needed {
            Needed::All | Needed::Majority => self.floor,
            Needed::AtLeast(k) => self.floor.max(k),
        }
    }

    /// Returns the number of members that have to report a value; `None` if there are too few.
    #[inline]
    fn needed_of(self, members: usize) -> Option<usize> {
        let needed = match self.needed {
            Needed::All => members,
            Needed::Majority => members / 2 + 1,
            Needed::AtLeast(k) => k.max(1),
        };
        (members >= self.members_min()).then_some(needed)
    }

    /// Returns true if values of earlier epochs do not count.
    fn counts_own_epoch_only(self) -> bool {
        self.needed != Needed::All
    }
}

/// A member, and the rank of the value that it reported last.
#[derive(Clone, Debug)]
struct Member<M> {
    name: M,
    value: u64,
    /// `None` unless it is known to lag.
    lag: Option<Lag>,
}

/// A look that found a member behind. Every follower is behind a leader whose log grows, but a
/// follower that keeps up soon has the value that was the highest at the look.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// A time after the look, in nanoseconds; `u64::MAX` until it is read.
    since_ns: u64,
    /// The highest value at the look, lowered to the highest that is left since: more than this
    /// member has.
    behind: u64,
}

/// One replica set. Values are ranks.
#[derive(Clone, Debug)]
pub(super) struct Set<M> {
    rule: Rule,
    /// The leader's log end when the epoch began: a member that joins has no less.
    start: u64,
    /// Values up to here are of earlier epochs: they do not count by a rule that counts its own
    /// epoch only.
    earlier: u64,
    members: SmallVec<[Member<M>; 4]>,
}

/// Drops the members one at a time, each panic contained: two panics in one drop are an abort.
impl<M> Drop for Set<M> {
    fn drop(&mut self) {
        for member in self.members.drain(..) {
            let _ = contain(|| drop(member));
        }
    }
}

impl<M> Set<M> {
    /// Returns the reason to cancel the waits of a set that has too few members; `None` if it has
    /// enough.
    pub(super) fn below_floor(&self) -> Option<CancelReason> {
        let members = self.members.len();
        let floor = self.rule.members_min();
        (members < floor).then_some(CancelReason::BelowFloor { members, floor })
    }
}

impl<M: Eq + Clone> Set<M> {
    /// Makes a set of distinct members. No member counts as having more than the leader, whose log
    /// ends at `log_end`. The set takes effect once its epoch [begins](Self::begin).
    ///
    /// # Errors
    /// [`WaitError::IsMember`] if a member comes twice.
    pub(super) fn new(
        rule: Rule,
        members: impl IntoIterator<Item = (M, u64)>,
        log_end: u64,
    ) -> Result<Self, WaitError> {
        let mut set = Set {
            rule,
            start: log_end,
            earlier: 0,
            members: SmallVec::new(),
        };
        let mut comes_twice = false;
        for (name, value) in members {
            comes_twice |= set.place_of(&name).is_some();
            set.members.push(Member {
                name,
                value: value.min(log_end),
                lag: None,
            });
        }
        // Fail only once the set has all members, so that it drops them.
        match comes_twice {
            true => Err(WaitError::IsMember),
            false => Ok(set),
        }
    }

    /// Makes the set of the next epoch: the same members and rule, with the values that the members
    /// are known to have. The leader has `log_end`. The others have no more than the watermark for
    /// certain: a value that they reported above it may be of another log.
    ///
    /// # Errors
    /// [`WaitError::NoMember`] if the leader is not in the set.
    pub(super) fn led_by(
        &self,
        leader: &M,
        log_end: u64,
        watermark: u64,
    ) -> Result<Self, WaitError> {
        let place = self.place_of(leader).ok_or(WaitError::NoMember)?;
        let mut next = self.clone();
        next.start = log_end;
        for member in &mut next.members {
            member.value = member.value.min(watermark);
            member.lag = None;
        }
        next.members[place].value = log_end;
        Ok(next)
    }

    /// Begins the epoch of this set with the watermark of the last one. Returns the watermark,
    /// raised to the value that the members have.
    ///
    /// # Errors
    /// [`WaitError::Behind`] if the leader lacks an acknowledged value.
    pub(super) fn begin(&mut self, epoch: u64, watermark: u64) -> Result<u64, WaitError> {
        if self.start < watermark {
            let by = watermark - self.start;
            return Err(WaitError::Behind { by });
        }
        if epoch > 0 {
            self.earlier = self.start;
        }
        Ok(self.raised(watermark))
    }

    #[inline]
    fn place_of(&self, name: &M) -> Option<usize> {
        self.members.iter().position(|member| member.name == *name)
    }

    fn has(&self, name: Option<&M>) -> bool {
        name.is_some_and(|name| self.place_of(name).is_some())
    }

    /// Returns copies of the members with the ranks of their values. O(members).
    pub(super) fn members(&self) -> Vec<(M, u64)> {
        let copied = |member: &Member<M>| (member.name.clone(), member.value);
        self.members.iter().map(copied).collect()
    }

    /// Returns the watermark, raised to the value that the members have reported. O(members).
    #[inline(always)] // a call costs a report 20 instructions
    fn raised(&self, watermark: u64) -> u64 {
        let members = self.members.as_slice();
        let Some(needed) = self.rule.needed_of(members.len()) else {
            return watermark; // Held
        };
        // Return early: most reports are not the last one that a value needs.
        let mut counted_from = watermark;
        if self.rule.counts_own_epoch_only() {
            counted_from = watermark.max(self.earlier);
        }
        let mut may_lack = members.len() - needed;
        for member in members {
            if member.value > counted_from {
                continue;
            }
            if may_lack == 0 {
                return watermark;
            }
            may_lack -= 1;
        }
        reported_by(needed, members)
    }

    /// Records the value of a member. Returns the watermark that follows.
    ///
    /// # Errors
    /// [`WaitError::Behind`] if the value is below the watermark, and the member had reached that
    /// before or all members have to reach it. The value counts nevertheless: by [`Rule::all`] the
    /// watermark does not rise before the member has left or caught up.
    #[inline]
    pub(super) fn report(
        &mut self,
        name: &M,
        value: u64,
        watermark: u64,
    ) -> Result<u64, WaitError> {
        let is_it = |member: &&mut Member<M>| member.name == *name;
        let Some(member) = self.members.iter_mut().find(is_it) else {
            return Err(WaitError::NoMember);
        };
        let before = mem::replace(&mut member.value, value);
        if value < before || member.lag.is_some_and(|lag| lag.behind <= value) {
            self.see_who_caught_up();
        }
        if value < watermark {
            // A minority may be slow.
            if self.rule.needed == Needed::All || before >= watermark {
                let by = watermark - value;
                return Err(WaitError::Behind { by });
            }
            return Ok(watermark);
        }
        Ok(self.raised(watermark))
    }

    /// Forgets the lags of members that have the value they lagged behind, or the highest that is
    /// left.
    #[cold]
    fn see_who_caught_up(&mut self) {
        let highest = self.highest();
        for member in &mut self.members {
            if let Some(lag) = &mut member.lag {
                lag.behind = lag.behind.min(highest);
            }
            member.lag = member.lag.filter(|lag| lag.behind > member.value);
        }
    }

    /// Returns the highest value that a member has.
    pub(super) fn highest(&self) -> u64 {
        let values = self.members.iter().map(|member| member.value);
        values.max().unwrap_or(0)
    }

    /// Refuses a member that has less than it needs to join (Caught up).
    fn check_caught_up(&self, value: u64, watermark: u64) -> Result<(), WaitError> {
        let needed = watermark.max(self.start);
        if value < needed && !failpoint!(JoinerNeedsNothing) {
            let by = needed - value;
            return Err(WaitError::Behind { by });
        }
        Ok(())
    }

    /// Lets a member in if it has caught up, and takes its `name` then. Returns the watermark that
    /// follows.
    pub(super) fn join(
        &mut self,
        name: &mut Option<M>,
        value: u64,
        watermark: u64,
    ) -> Result<u64, WaitError> {
        if self.has(name.as_ref()) {
            return Err(WaitError::IsMember);
        }
        self.check_caught_up(value, watermark)?;
        self.members.extend(name.take().map(|name| Member {
            name,
            value,
            lag: None,
        }));
        Ok(self.raised(watermark)) // the set may have been below the floor
    }

    /// Takes a member out. Its name goes to `gone`, to be dropped unlocked. Returns the watermark
    /// that follows.
    pub(super) fn leave(
        &mut self,
        name: &M,
        gone: &mut Option<M>,
        watermark: u64,
    ) -> Result<u64, WaitError> {
        let place = self.place_of(name).ok_or(WaitError::NoMember)?;
        *gone = Some(self.members.remove(place).name);
        self.see_who_caught_up();
        Ok(self.raised(watermark))
    }

    /// Replaces the rule. Returns the watermark that follows.
    pub(super) fn set_rule(&mut self, rule: Rule, watermark: u64) -> u64 {
        self.rule = rule;
        self.raised(watermark)
    }

    /// Returns the members that have less than the highest value, the lowest first. For members
    /// that were not known to lag, remembers the value that they are behind; its time is
    /// [set](Self::lag_since) later.
    pub(super) fn lagging(&mut self, now_ns: u64) -> Vec<(M, u64, Duration)> {
        let highest = self.highest();
        let mut lagging = Vec::new();
        for member in &mut self.members {
            if member.value == highest {
                continue;
            }
            let lag = member.lag.get_or_insert(Lag {
                since_ns: u64::MAX,
                behind: highest,
            });
            let lagged_for = Duration::from_nanos(now_ns.saturating_sub(lag.since_ns));
            lagging.push((member.name.clone(), member.value, lagged_for));
        }
        lagging.sort_by_key(|(_, value, _)| *value);
        lagging
    }

    /// Sets the time of lags that have none, after a look at which the highest value was `highest`.
    pub(super) fn lag_since(&mut self, now_ns: u64, highest: u64) {
        for member in &mut self.members {
            if let Some(lag) = &mut member.lag {
                if lag.since_ns == u64::MAX && lag.behind <= highest {
                    lag.since_ns = now_ns;
                }
            }
        }
    }
}

/// Returns the highest value that at least `needed` of the members have reported.
fn reported_by<M>(needed: usize, members: &[Member<M>]) -> u64 {
    let values = members.iter().map(|member| member.value);
    if needed == members.len() {
        return values.min().unwrap_or(0); // without a sort
    }
    let mut sorted: SmallVec<[u64; 8]> = values.collect();
    sorted.sort_unstable();
    sorted[members.len() - needed]
}
