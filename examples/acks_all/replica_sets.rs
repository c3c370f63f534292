//! The second way: [`ReplicaSets`] keeps each partition's in-sync set and its members' log ends. A
//! produce is a future that waits for the high watermark, which follows from them.

use std::time::Duration;

use purgatory::{CancelReason, ReplicaSets, Rule, WaitError};
use timer_core::BuildError;

use crate::partition::{Change, FOLLOWERS, LogEnd, Partition, PartitionKey, Record};
use crate::verifier::load::Request;
use crate::{AcksAll, Answer};

/// A member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replica {
    Leader,
    Follower(usize),
}
use Replica::{Follower, Leader};

/// The in-sync sets of all partitions. The leader reports under its log's lock, so its reports come
/// in the order of its appends. The set also changes under this lock, so no follower joins with a
/// log of another epoch. Either change only wakes tasks, which run elsewhere.
#[derive(Debug)]
pub(crate) struct InSyncSets {
    pub(crate) sets: ReplicaSets<PartitionKey, Replica>,
}

impl InSyncSets {
    /// Makes sets of all replicas with empty logs, and a timing wheel of their own.
    pub(crate) fn new(partitions: &[Partition]) -> Result<Self, BuildError> {
        let sets = ReplicaSets::new("produce")?;
        for partition in partitions {
            let mut members = vec![(Leader, 0)];
            members.extend((0..FOLLOWERS).map(|follower| (Follower(follower), 0)));
            let set = sets.set(&partition.key, 0, members, 0, rule());
            set.expect("each partition is new");
        }
        Ok(Self { sets })
    }
}

/// Returns the rule: a record is acknowledged when all members, at least two, have it.
fn rule() -> Rule {
    Rule::all().floor(2)
}

impl AcksAll for InSyncSets {
    fn produce(&self, request: Request, record: Record, timeout: Duration) {
        // The report completes nothing: no follower has the record yet.
        let sets = &self.sets;
        let key = request.partition().key;
        let end = request.partition().append(record, |end| {
            _ = sets.in_epoch(&key, end.epoch).report(&Leader, end.offset);
        });
        let wait = sets.in_epoch(&key, end.epoch).wait_for(end.offset, timeout);
        request.answer_by(async move { answer(wait.await) }, end);
    }

    fn fetch(&self, from: &Partition, follower: usize, has: LogEnd) -> bool {
        // The report is the event: it completes the produces that the high watermark has reached.
        let LogEnd { epoch, offset } = has;
        let member = Follower(follower);
        let led = self.sets.in_epoch(&from.key, epoch);
        match led.report(&member, offset) {
            // A follower that fell out joins again once it has caught up.
            Err(WaitError::NoMember) => {
                from.in_order(|present| present == epoch && led.join(member, offset).is_ok())
            }
            reported => reported.is_ok(),
        }
    }

    fn falls_out(&self, of: &Partition, follower: usize) -> usize {
        of.in_order(|epoch| {
            let led = self.sets.in_epoch(&of.key, epoch);
            led.leave(&Follower(follower)).unwrap_or(0)
        })
    }

    fn change_leader(&self, of: &Partition) -> Change {
        of.change_leader(|start| {
            // The followers will report to the new leader what they have.
            let mut members = self.sets.members(&of.key);
            for (member, value) in &mut members {
                *value = if *member == Leader { start.offset } else { 0 };
            }
            let LogEnd { epoch, offset } = start;
            let set = self.sets.set(&of.key, epoch, members, offset, rule());
            set.expect("a follower in the set has all that was acknowledged");
        })
    }
}

/// Returns the answer for the ending of a wait.
fn answer(ended: Result<u64, WaitError>) -> Answer {
    match ended {
        Ok(_) => Answer::Acknowledged,
        Err(WaitError::Expired) => Answer::TimedOut,
        Err(WaitError::OtherEpoch { .. }) => Answer::LeaderChanged,
        Err(WaitError::Cancelled(CancelReason::EpochOver { .. })) => Answer::LeaderChanged,
        Err(WaitError::Cancelled(_)) => Answer::Cancelled,
        Err(reason) => Answer::Refused(reason),
    }
}
