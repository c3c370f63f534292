//! The leader's view of its replicas: log end offsets, the in-sync set, and the high watermark that
//! follows from them.
//!
//! Pure: every call is told what time it is. The rules are Kafka's. A follower is caught up at the
//! moment of a fetch that asks for the leader's log end, or at the moment of its *previous* fetch
//! if it now has all that was in the log then; without the second half no follower would ever count
//! as caught up while records keep coming. It leaves the set when that moment lies too far back,
//! and returns when it has everything below the high watermark.

use std::time::Duration;

/// How many followers a partition has; the leader comes on top.
pub const FOLLOWERS: usize = 2;

/// How many replicas a partition has.
pub const REPLICAS: usize = FOLLOWERS + 1;

/// A replica: number 0 is the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica(usize);

impl Replica {
    /// The replica that producers append to.
    pub const LEADER: Replica = Replica(0);

    /// The follower with this number, from 1 to [`FOLLOWERS`].
    pub fn follower(number: usize) -> Self {
        assert!((1..=FOLLOWERS).contains(&number), "there is no follower {number}");
        Self(number)
    }

    /// All of them, the leader first.
    pub fn all() -> impl Iterator<Item = Replica> {
        (0..REPLICAS).map(Replica)
    }

    /// The followers.
    pub fn followers() -> impl Iterator<Item = Replica> {
        Self::all().skip(1)
    }

    /// Its number: 0 is the leader.
    pub fn number(self) -> usize {
        self.0
    }

    /// Its place among the followers; none for the leader.
    pub fn follower_index(self) -> Option<usize> {
        self.0.checked_sub(1)
    }

    /// What messages call it.
    pub fn name(self) -> String {
        match self.0 {
            0 => "the leader".to_owned(),
            number => format!("follower {number}"),
        }
    }
}

/// A set of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members(pub u8);

impl Members {
    /// Every replica.
    pub const ALL: Members = Members((1 << REPLICAS) - 1);

    /// Whether the replica is one of them.
    pub fn contains(self, replica: Replica) -> bool {
        self.0 & (1 << replica.number()) != 0
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// What a change did to the high watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an advance must be followed by its event"]
pub enum HighWatermark {
    /// It went up: whoever waits in this partition must be told.
    Advanced,
    /// It stayed where it was.
    Same,
}

#[derive(Debug, Clone, Copy)]
struct Follower {
    log_end: u64,
    in_sync: bool,
    caught_up_at: Duration,
    fetched_at: Duration,
    leader_end_at_fetch: u64,
}

/// One partition's replicas, as its leader knows them.
#[derive(Debug)]
pub struct InSyncSet {
    shrink_after: Option<Duration>,
    leader_end: u64,
    high_watermark: u64,
    followers: [Follower; FOLLOWERS],
}

impl InSyncSet {
    /// All replicas empty and in sync. Without `shrink_after` they stay in sync for good.
    pub fn new(shrink_after: Option<Duration>, now: Duration) -> Self {
        let follower = Follower {
            log_end: 0,
            in_sync: true,
            caught_up_at: now,
            fetched_at: now,
            leader_end_at_fetch: 0,
        };
        Self { shrink_after, leader_end: 0, high_watermark: 0, followers: [follower; FOLLOWERS] }
    }

    /// The offset below which every in-sync replica has every record.
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark
    }

    /// The in-sync set.
    pub fn members(&self) -> Members {
        let leader = 1 << Replica::LEADER.number();
        let members =
            self.followers.iter().enumerate().map(|(index, f)| u8::from(f.in_sync) << (index + 1));
        Members(members.fold(leader, |set, member| set | member))
    }

    /// How far the follower's log end, as last told, is behind the leader's.
    pub fn lag(&self, follower: Replica) -> u64 {
        follower.follower_index().map_or(0, |index| self.leader_end - self.followers[index].log_end)
    }

    /// The leader's log has grown.
    pub fn appended(&mut self, leader_end: u64) -> HighWatermark {
        self.leader_end = leader_end;
        self.recompute()
    }

    /// A follower fetches from `log_end` on: by that it says that it has everything below.
    pub fn fetched(&mut self, follower: Replica, log_end: u64, now: Duration) -> HighWatermark {
        let Some(index) = follower.follower_index() else {
            return HighWatermark::Same;
        };
        let follower = &mut self.followers[index];
        follower.log_end = log_end;
        if log_end >= self.leader_end {
            follower.caught_up_at = now;
        } else if log_end >= follower.leader_end_at_fetch {
            follower.caught_up_at = follower.caught_up_at.max(follower.fetched_at);
        }
        follower.fetched_at = now;
        follower.leader_end_at_fetch = self.leader_end;
        follower.in_sync |= log_end >= self.high_watermark;
        self.recompute()
    }

    /// Takes out the followers that have not been caught up for too long.
    pub fn shrink(&mut self, now: Duration) -> HighWatermark {
        let Some(shrink_after) = self.shrink_after else {
            return HighWatermark::Same;
        };
        for follower in &mut self.followers {
            let behind = follower.log_end < self.leader_end;
            if behind && now.saturating_sub(follower.caught_up_at) > shrink_after {
                follower.in_sync = false;
            }
        }
        self.recompute()
    }

    /// The smallest log end in the set; it never goes back.
    fn recompute(&mut self) -> HighWatermark {
        let in_sync = self.followers.iter().filter(|follower| follower.in_sync);
        let lowest = in_sync.map(|follower| follower.log_end).fold(self.leader_end, u64::min);
        if lowest <= self.high_watermark {
            return HighWatermark::Same;
        }
        self.high_watermark = lowest;
        HighWatermark::Advanced
    }
}

#[cfg(test)]
mod tests {
    use super::HighWatermark::{Advanced, Same};
    use super::*;

    const SHRINK: Duration = Duration::from_millis(100);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn one() -> Replica {
        Replica::follower(1)
    }

    fn two() -> Replica {
        Replica::follower(2)
    }

    #[test]
    fn the_slowest_replica_holds_the_high_watermark() {
        let mut set = InSyncSet::new(None, ms(0));
        assert_eq!(set.appended(10), Same);
        assert_eq!(set.fetched(one(), 10, ms(1)), Same);
        assert_eq!(set.fetched(two(), 4, ms(1)), Advanced);
        assert_eq!(set.high_watermark(), 4);
        assert_eq!(set.fetched(two(), 10, ms(2)), Advanced);
        assert_eq!(set.high_watermark(), 10);
        assert_eq!(set.fetched(two(), 10, ms(3)), Same);
        assert_eq!((set.lag(one()), set.lag(two())), (0, 0));
    }

    #[test]
    fn a_fixed_set_never_shrinks() {
        let mut set = InSyncSet::new(None, ms(0));
        assert_eq!(set.appended(10), Same);
        assert_eq!(set.fetched(one(), 10, ms(1)), Same);
        assert_eq!(set.shrink(ms(3_600_000)), Same);
        assert_eq!((set.members(), set.high_watermark()), (Members::ALL, 0));
    }

    #[test]
    fn a_stalled_follower_leaves_and_comes_back_when_it_has_everything() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.appended(10), Same);
        assert_eq!(set.fetched(one(), 10, ms(50)), Same);
        assert_eq!(set.shrink(ms(100)), Same, "exactly at the bound it is still in");
        assert_eq!(set.shrink(ms(101)), Advanced);
        assert_eq!((set.members(), set.high_watermark()), (Members(0b011), 10));

        assert_eq!(set.fetched(two(), 9, ms(110)), Same, "one record short: still out");
        assert!(!set.members().contains(two()));
        assert_eq!(set.fetched(two(), 10, ms(111)), Same);
        assert_eq!(set.members(), Members::ALL);
        assert_eq!(set.appended(11), Same, "it counts again");
        assert_eq!(set.fetched(one(), 11, ms(112)), Same);
        assert_eq!(set.fetched(two(), 11, ms(113)), Advanced);
    }

    #[test]
    fn a_leader_left_alone_advances_by_appending() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.appended(1), Same);
        assert_eq!(set.shrink(ms(200)), Advanced);
        assert_eq!(set.members().count(), 1);
        assert_eq!(set.appended(2), Advanced);
        assert_eq!(set.high_watermark(), 2);
    }

    #[test]
    fn a_follower_one_fetch_behind_a_steady_stream_stays_in() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        for step in 1..=10 {
            let _ = set.appended(step * 10);
            let _ = set.fetched(one(), (step - 1) * 10, ms(step * 60));
            let _ = set.fetched(two(), (step - 1) * 10, ms(step * 60));
            let _ = set.shrink(ms(step * 60));
            assert_eq!(set.members(), Members::ALL, "at step {step}");
        }
    }

    #[test]
    fn an_idle_follower_that_has_everything_stays_in() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.shrink(ms(10_000)), Same);
        assert_eq!(set.members(), Members::ALL);
    }
}
