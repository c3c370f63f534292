//! The leader's view of its replicas: log end offsets, the in-sync set, and the high watermark that
//! follows from them.
//!
//! Pure: every call is told what time it is. The rules are Kafka's. A follower is caught up at the
//! moment of a fetch that asks for the leader's log end, or at the moment of its *previous* fetch
//! if it now has all that was in the log then; without the second half no follower would ever count
//! as caught up while records keep coming. It leaves the set when that moment lies too far back,
//! and returns when it has everything below the high watermark.
//!
//! A call that moves the high watermark returns the new one: its event must follow.

use std::time::Duration;

/// How many followers a partition has, numbered from 0; the leader comes on top.
pub const FOLLOWERS: usize = 2;

/// How many replicas a partition has.
pub const REPLICAS: usize = FOLLOWERS + 1;

/// What messages and the command line call a follower.
pub fn name(follower: usize) -> String {
    format!("follower {}", follower + 1)
}

/// The followers in an in-sync set, a bit each. The leader is always in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members(pub u8);

impl Members {
    /// Every follower.
    pub const ALL: Members = Members((1 << FOLLOWERS) - 1);

    /// Whether the follower is one of them.
    pub fn contains(self, follower: usize) -> bool {
        self.0 & (1 << follower) != 0
    }

    /// How many replicas that are, with the leader.
    pub fn count(self) -> usize {
        1 + self.0.count_ones() as usize
    }
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
        let bits = self.followers.iter().enumerate().map(|(at, f)| u8::from(f.in_sync) << at);
        Members(bits.sum())
    }

    /// How far the follower's log end, as last told, is behind the leader's.
    pub fn lag(&self, follower: usize) -> u64 {
        self.leader_end - self.followers[follower].log_end
    }

    /// The leader's log has grown.
    #[must_use]
    pub fn appended(&mut self, leader_end: u64) -> Option<u64> {
        self.leader_end = leader_end;
        self.recompute()
    }

    /// A follower fetches from `log_end` on: by that it says that it has everything below.
    #[must_use]
    pub fn fetched(&mut self, follower: usize, log_end: u64, now: Duration) -> Option<u64> {
        let follower = &mut self.followers[follower];
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
    #[must_use]
    pub fn shrink(&mut self, now: Duration) -> Option<u64> {
        let shrink_after = self.shrink_after?;
        for follower in &mut self.followers {
            let behind = follower.log_end < self.leader_end;
            if behind && now.saturating_sub(follower.caught_up_at) > shrink_after {
                follower.in_sync = false;
            }
        }
        self.recompute()
    }

    /// The smallest log end in the set; it never goes back.
    fn recompute(&mut self) -> Option<u64> {
        let in_sync = self.followers.iter().filter(|follower| follower.in_sync);
        let lowest = in_sync.map(|follower| follower.log_end).fold(self.leader_end, u64::min);
        if lowest <= self.high_watermark {
            return None;
        }
        self.high_watermark = lowest;
        Some(lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHRINK: Duration = Duration::from_millis(100);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_slowest_replica_holds_the_high_watermark() {
        let mut set = InSyncSet::new(None, ms(0));
        assert_eq!(set.appended(10), None);
        assert_eq!(set.fetched(0, 10, ms(1)), None);
        assert_eq!(set.fetched(1, 4, ms(1)), Some(4));
        assert_eq!(set.fetched(1, 10, ms(2)), Some(10));
        assert_eq!(set.fetched(1, 10, ms(3)), None);
        assert_eq!((set.lag(0), set.lag(1)), (0, 0));
    }

    #[test]
    fn a_fixed_set_never_shrinks() {
        let mut set = InSyncSet::new(None, ms(0));
        assert_eq!(set.appended(10), None);
        assert_eq!(set.fetched(0, 10, ms(1)), None);
        assert_eq!(set.shrink(ms(3_600_000)), None);
        assert_eq!((set.members(), set.high_watermark()), (Members::ALL, 0));
    }

    #[test]
    fn a_stalled_follower_leaves_and_comes_back_when_it_has_everything() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.appended(10), None);
        assert_eq!(set.fetched(0, 10, ms(50)), None);
        assert_eq!(set.shrink(ms(100)), None, "exactly at the bound it is still in");
        assert_eq!(set.shrink(ms(101)), Some(10));
        assert_eq!((set.members(), set.members().count()), (Members(0b01), 2));

        assert_eq!(set.fetched(1, 9, ms(110)), None, "one record short: still out");
        assert!(!set.members().contains(1));
        assert_eq!(set.fetched(1, 10, ms(111)), None);
        assert_eq!(set.members(), Members::ALL);
        assert_eq!(set.appended(11), None, "it counts again");
        assert_eq!(set.fetched(0, 11, ms(112)), None);
        assert_eq!(set.fetched(1, 11, ms(113)), Some(11));
    }

    #[test]
    fn a_leader_left_alone_advances_by_appending() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.appended(1), None);
        assert_eq!(set.shrink(ms(200)), Some(1));
        assert_eq!(set.members().count(), 1);
        assert_eq!(set.appended(2), Some(2));
    }

    #[test]
    fn a_follower_one_fetch_behind_a_steady_stream_stays_in() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        for step in 1..=10 {
            let _ = set.appended(step * 10);
            let _ = set.fetched(0, (step - 1) * 10, ms(step * 60));
            let _ = set.fetched(1, (step - 1) * 10, ms(step * 60));
            let _ = set.shrink(ms(step * 60));
            assert_eq!(set.members(), Members::ALL, "at step {step}");
        }
    }

    #[test]
    fn an_idle_follower_that_has_everything_stays_in() {
        let mut set = InSyncSet::new(Some(SHRINK), ms(0));
        assert_eq!(set.shrink(ms(10_000)), None);
        assert_eq!(set.members(), Members::ALL);
    }
}
