//! A node's use of the API: the sets and waits by which a leader acknowledges.

use std::{collections::BTreeSet, task::Waker};

use purgatory::{InEpoch, ReplicaSets, Rule, Timeout, WaitFuture};
use timer_core::ManualTimer;

use super::{Acked, Entry, Node};
use crate::acting;

/// A leader's set and its waits. They are in memory, and are lost when it crashes.
pub(super) struct Leader<M: Send + 'static = Node> {
    pub(super) sets: ReplicaSets<(), M>,
    waits: Vec<(Acked, WaitFuture<u64>)>,
    pub(super) timer: ManualTimer,
}

impl<M: Copy + Ord + Send> Leader<M> {
    pub(super) fn new() -> Self {
        let timer = ManualTimer::new();
        let sets = ReplicaSets::builder("logs").timer(&timer).shards(1);
        Leader {
            sets: sets.build().unwrap(),
            waits: Vec::new(),
            timer,
        }
    }

    /// Begins an epoch. A leader that lacks acknowledged records is refused; only a planted mistake
    /// makes one, so it then begins all the same.
    pub(super) fn begin(&self, epoch: u64, members: &[(M, u64)], rule: Rule) {
        let log_end = members.iter().map(|of| of.1).max().unwrap_or(0);
        let begin = || {
            let members = members.iter().copied();
            self.sets.set(&(), epoch, members, log_end, rule)
        };
        if begin().is_err() {
            self.sets.remove(&());
            _ = begin();
        }
    }

    /// Names the group's own epoch, as a node does that does not look at the epoch of a message.
    pub(super) fn present(&self) -> InEpoch<'_, ReplicaSets<(), M>, ()> {
        self.sets.in_epoch(&(), self.sets.epoch(&()).unwrap_or(0))
    }

    /// Counts a report, in the named epoch or in the present one.
    pub(super) fn report(&self, epoch: Option<u64>, member: M, end: u64) {
        match epoch {
            Some(epoch) => _ = self.sets.in_epoch(&(), epoch).report(&member, end),
            None => _ = self.present().report(&member, end),
        }
    }

    pub(super) fn members(&self) -> BTreeSet<M> {
        let members = self.sets.members(&()).into_iter();
        members.map(|(member, _)| member).collect()
    }

    /// Lets a follower in; returns false if that is refused.
    pub(super) fn join(&self, member: M, end: u64) -> bool {
        self.present().join(member, end).is_ok()
    }

    pub(super) fn leave(&self, member: M) {
        _ = self.present().leave(&member);
    }

    /// Waits for the acknowledgement of a record.
    pub(super) fn wait_for(&mut self, epoch: u64, entry: Entry, end: usize, by: u64) {
        let group = self.sets.in_epoch(&(), epoch);
        let wait = group.wait_for(end as u64, Timeout::Never);
        self.keep(Acked { entry, end, by }, wait);
    }

    /// Keeps a wait for the acknowledgement of a record.
    pub(super) fn keep(&mut self, record: Acked, wait: WaitFuture<u64>) {
        self.waits.push((record, wait));
    }

    /// Takes the records that are acknowledged now.
    pub(super) fn acknowledged(&mut self) -> Vec<Acked> {
        let mut acked = Vec::new();
        self.waits.retain_mut(|(record, wait)| {
            let ended = acting::poll(wait, Waker::noop());
            if let Some(Ok(_)) = ended {
                acked.push(*record);
            }
            ended.is_none()
        });
        acked
    }
}
