//! A node's part of the API: what a leader acknowledges by.

use std::{collections::BTreeSet, task::Waker, time::Duration};

use purgatory::{ReplicaSets, Rule, Timeout, WaitFuture, Watermarks};
use timer_core::ManualTimer;

use super::{Acked, Entry, Node};
use crate::acting;

/// How a leader learns that a record is replicated.
pub(super) enum Acks {
    Sets(ReplicaSets<(), Node>),
    /// The way before there were sets: a value of each replica, and waits for those of the replicas
    /// that are in sync as the record is appended.
    Each(Watermarks<Node>, BTreeSet<Node>),
}

enum Wait {
    Set(WaitFuture<u64>),
    Each(WaitFuture<Vec<(Node, u64)>>),
}

/// A leader's waits. They are in memory, and lost with it.
pub(super) struct Leader {
    pub(super) acks: Acks,
    waits: Vec<(Acked, Wait)>,
    _timer: ManualTimer,
}

impl Leader {
    pub(super) fn new(by_each_replica: bool) -> Self {
        let timer = ManualTimer::new();
        let acks = if by_each_replica {
            let ends = Watermarks::builder("ends").timer(&timer).shards(1);
            Acks::Each(ends.build().unwrap(), BTreeSet::new())
        } else {
            let sets = ReplicaSets::builder("logs").timer(&timer).shards(1);
            Acks::Sets(sets.build().unwrap())
        };
        Leader {
            acks,
            waits: Vec::new(),
            _timer: timer,
        }
    }

    pub(super) fn begin(&mut self, epoch: u64, members: &[(Node, u64)], rule: Rule) {
        match &mut self.acks {
            Acks::Sets(sets) => {
                // A leader that lacks what was acknowledged is told so. It is one only by a mistake,
                // which goes on.
                if sets.set(&(), epoch, members.iter().copied(), rule).is_err() {
                    sets.remove(&());
                    _ = sets.set(&(), epoch, members.iter().copied(), rule);
                }
            }
            Acks::Each(ends, in_sync) => {
                in_sync.clear();
                for &(member, end) in members {
                    in_sync.insert(member);
                    ends.begin_epoch(&member, epoch, end).unwrap();
                }
            }
        }
    }

    /// Counts a report; one of an epoch, if that is named.
    pub(super) fn report(&self, epoch: Option<u64>, member: Node, end: u64) {
        match (&self.acks, epoch) {
            (Acks::Sets(sets), Some(epoch)) => _ = sets.report_in(&(), epoch, &member, end),
            (Acks::Sets(sets), None) => _ = sets.report(&(), &member, end),
            (Acks::Each(ends, _), Some(epoch)) => _ = ends.advance_in(&member, epoch, end),
            (Acks::Each(ends, _), None) => _ = ends.advance(&member, end),
        }
    }

    pub(super) fn members(&self) -> BTreeSet<Node> {
        match &self.acks {
            Acks::Sets(sets) => {
                let members = sets.members(&()).into_iter();
                members.map(|(member, _)| member).collect()
            }
            Acks::Each(_, in_sync) => in_sync.clone(),
        }
    }

    /// Returns whether a follower is let in.
    pub(super) fn join(&mut self, member: Node, end: u64) -> bool {
        match &mut self.acks {
            Acks::Sets(sets) => sets.join(&(), member, end).is_ok(),
            Acks::Each(ends, in_sync) => {
                let values = in_sync.iter().map(|member| ends.value(member).unwrap_or(0));
                let is_in = values.min().is_none_or(|watermark| end >= watermark);
                if is_in {
                    in_sync.insert(member);
                }
                is_in
            }
        }
    }

    pub(super) fn leave(&mut self, member: Node) {
        match &mut self.acks {
            Acks::Sets(sets) => _ = sets.leave(&(), &member),
            Acks::Each(_, in_sync) => _ = in_sync.remove(&member),
        }
    }

    /// Waits for the acknowledgement of a record.
    pub(super) fn wait_for(&mut self, epoch: u64, entry: Entry, end: usize, by: u64) {
        let wait = match &self.acks {
            Acks::Sets(sets) => Wait::Set(sets.wait_for_in(&(), epoch, end as u64, Timeout::Never)),
            Acks::Each(ends, in_sync) => {
                let thresholds: Vec<(Node, u64)> =
                    in_sync.iter().map(|&member| (member, end as u64)).collect();
                Wait::Each(ends.wait_for_each(&thresholds, Duration::MAX))
            }
        };
        self.waits.push((Acked { entry, end, by }, wait));
    }

    /// Takes the records that are acknowledged now.
    pub(super) fn acknowledged(&mut self) -> Vec<Acked> {
        let mut acked = Vec::new();
        self.waits.retain_mut(|(record, wait)| {
            let ended = match wait {
                Wait::Set(wait) => poll(wait),
                Wait::Each(wait) => poll(wait),
            };
            if ended == Some(true) {
                acked.push(*record);
            }
            ended.is_none()
        });
        acked
    }
}

/// `Some(true)` once the wait is met, `Some(false)` once it has ended otherwise.
fn poll<T>(wait: &mut WaitFuture<T>) -> Option<bool>
where
    WaitFuture<T>: Future<Output = Result<T, purgatory::WaitError>> + Unpin,
{
    Some(acting::poll(wait, Waker::noop())?.is_ok())
}
