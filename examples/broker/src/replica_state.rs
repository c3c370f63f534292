//! What the leader of a partition knows of the followers, each from its last fetch and so one fetch
//! late: where their logs start and end, and who is in sync.

use std::mem;

use crate::partition::Offsets;

pub(crate) const LEADER_ID: i32 = 1;
pub(crate) const FOLLOWER_IDS: [i32; 2] = [2, 3];

#[derive(Default)]
pub(crate) struct Replicas {
    /// The first ones of [`FOLLOWER_IDS`].
    followers: Vec<FollowerState>,
    /// Checks for lagging replicas, counted: no clock is read.
    lag_period: u64,
}

#[derive(Default)]
struct FollowerState {
    log_start: i64,
    log_end: i64,
    out_of_sync: bool,
    /// The lag period in which it last had the whole log.
    caught_up: u64,
    /// The log end at its last fetch, and the lag period of that.
    last_fetch: (i64, u64),
}

impl Replicas {
    /// So many, the leader included.
    pub(crate) fn new(replicas: usize) -> Replicas {
        let followers = (1..replicas).map(|_| FollowerState::default()).collect();
        Replicas { followers, lag_period: 0 }
    }

    /// The in-sync replicas, the leader included.
    pub(crate) fn in_sync(&self) -> usize {
        1 + self.followers().count()
    }

    pub(crate) fn in_sync_followers(&self) -> Vec<i32> {
        self.followers().map(|(id, _)| id).collect()
    }

    fn followers(&self) -> impl Iterator<Item = (i32, &FollowerState)> {
        FOLLOWER_IDS.into_iter().zip(&self.followers).filter(|(_, follower)| !follower.out_of_sync)
    }

    pub(crate) fn smallest_end(&self, leaders: i64) -> i64 {
        self.followers().map(|(_, follower)| follower.log_end).fold(leaders, i64::min)
    }

    pub(crate) fn smallest_start(&self, leaders: i64) -> i64 {
        self.followers().map(|(_, follower)| follower.log_start).fold(leaders, i64::min)
    }

    /// `leader` is what it is told now. Up to the high watermark is in sync.
    pub(crate) fn note_fetch(&mut self, id: i32, log_start: i64, log_end: i64, leader: Offsets) {
        let lag_period = self.lag_period;
        let index = FOLLOWER_IDS.iter().position(|follower| *follower == id);
        if let Some(follower) = index.and_then(|index| self.followers.get_mut(index)) {
            follower.log_start = log_start;
            follower.log_end = log_end.min(leader.log_end);
            follower.out_of_sync &= log_end < leader.high_watermark;
            // Under load it is always a fetch behind: what counts is the log end it was told then.
            let (told_end, told_in) = follower.last_fetch;
            if log_end >= told_end {
                follower.caught_up = follower.caught_up.max(told_in);
            }
            follower.last_fetch = (leader.log_end, lag_period);
        }
        self.note_caught_up(leader.log_end);
    }

    pub(crate) fn note_caught_up(&mut self, leaders_end: i64) {
        for follower in &mut self.followers {
            if follower.log_end == leaders_end {
                follower.caught_up = self.lag_period;
            }
        }
    }

    /// Takes who was behind for the longest lag, so many whole lag periods, out of the in-sync set;
    /// returns their ids.
    pub(crate) fn begin_lag_period(&mut self, leaders_end: i64, a_lag: u32) -> Vec<i32> {
        self.note_caught_up(leaders_end);
        self.lag_period += 1;
        let mut left = Vec::new();
        for (id, follower) in FOLLOWER_IDS.into_iter().zip(&mut self.followers) {
            let lags = self.lag_period - follower.caught_up > u64::from(a_lag);
            if lags && !mem::replace(&mut follower.out_of_sync, true) {
                left.push(id);
            }
        }
        left
    }
}
