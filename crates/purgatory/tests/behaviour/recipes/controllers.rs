//! A controller keeps the in-sync set: proposals and answers are lost, late, refused or repeated.
//! After each of them, the leader counts every replica that the controller may have in its set.

use super::{
    guide::alter_partition::{InSync, Leader, Replica},
    *,
};

const LAG_MAX: Duration = Duration::from_secs(10);

fn in_sync<const N: usize>(version: u64, replicas: [Replica; N]) -> InSync {
    InSync {
        leader_epoch: 1,
        version,
        replicas: replicas.into(),
    }
}

/// The leader of epoch 1, and the controller's set. All replicas have the first 10 records.
struct Cluster {
    timer: ManualTimer,
    leader: Leader,
    controller: InSync,
}

impl Cluster {
    fn new<const N: usize>(replicas: [Replica; N]) -> Self {
        Cluster::of_enough(1, replicas)
    }

    fn of_enough<const N: usize>(min_in_sync: usize, replicas: [Replica; N]) -> Self {
        let timer = ManualTimer::new();
        let logs = ReplicaSets::on(&timer, "test").unwrap();
        let controller = in_sync(0, replicas);
        let leader = Leader::lead(logs, "leader", 10, controller.clone(), min_in_sync).unwrap();
        for replica in replicas {
            leader.fetched(replica, 10).unwrap();
        }
        Cluster {
            timer,
            leader,
            controller,
        }
    }

    #[track_caller]
    fn proposed(&mut self) -> InSync {
        self.leader.proposal().expect("another set")
    }

    /// Lets the controller take the leader's proposal; returns its answer.
    #[track_caller]
    fn alter(&mut self) -> InSync {
        let proposed = self.proposed();
        self.controller.alter(proposed)
    }

    fn counted(&self) -> Vec<Replica> {
        let members = self.leader.logs.members(&());
        let mut counted: Vec<_> = members.iter().map(|of| of.0).collect();
        counted.sort_unstable();
        counted
    }

    /// Appends a record, which these replicas have; returns the produce that waits for it.
    fn append<const N: usize>(&self, end: u64, replicas: [Replica; N]) -> WaitFuture<u64> {
        let produce = self.leader.logs.in_epoch(&(), 1).wait_for(end, NEVER);
        for replica in replicas {
            self.leader.fetched(replica, end).unwrap();
        }
        produce
    }

    /// Lets only these replicas fetch for as long as the others may lag.
    fn lag_out<const N: usize>(&mut self, end: u64, replicas: [Replica; N]) {
        for replica in replicas {
            self.leader.fetched(replica, end).unwrap();
        }
        self.leader.proposal();
        self.timer.advance(LAG_MAX);
    }
}

#[test]
fn joiner_counts_though_no_answer_comes() {
    let mut cluster = Cluster::new(["leader", "a"]);
    assert_eq!(cluster.leader.fetched("b", 9), Ok(0));
    assert_eq!(cluster.leader.proposal(), None, "it is behind");
    assert_eq!(cluster.leader.fetched("b", 10), Ok(0));
    let proposed = cluster.proposed();
    assert_eq!(proposed, in_sync(0, ["leader", "a", "b"]));
    cluster.controller.alter(proposed.clone()); // its answer is lost

    let mut produce = cluster.append(11, ["leader", "a"]);
    assert!(poll(&mut produce).is_pending(), "b may lead next");
    assert_eq!(cluster.proposed(), proposed, "once more");
    let answer = cluster.controller.alter(proposed);
    assert_eq!(cluster.leader.confirmed(answer), Ok(0));
    assert!(poll(&mut produce).is_pending());
    assert_eq!(cluster.leader.fetched("b", 11), Ok(1));
    assert_eq!(over(&mut produce), Ok(11));
    assert_eq!(cluster.leader.proposal(), None);
    nothing_waits(&cluster.leader.logs.waits());
}

/// "a" leaves and comes back. The answer by which it had left comes last.
#[test]
fn answer_of_an_older_version_takes_nobody_out() {
    let mut cluster = Cluster::new(["leader", "a", "b"]);
    drop(cluster.append(11, ["leader", "b"]));
    cluster.lag_out(11, ["leader", "b"]);
    let without = cluster.alter();
    cluster.leader.confirmed(without.clone()).unwrap();
    cluster.leader.fetched("a", 11).unwrap();
    let with = cluster.alter();
    cluster.leader.confirmed(with).unwrap();
    assert_eq!(cluster.leader.confirmed(without), Ok(0));
    assert_eq!(cluster.counted(), ["a", "b", "leader"]);
    assert_eq!(cluster.leader.proposal(), None);
}

/// The controller refuses "b", which it takes for dead; later a copy of the proposal comes and is
/// accepted.
#[test]
fn refused_joiner_counts_since_a_copy_may_be_taken() {
    let mut cluster = Cluster::new(["leader", "a"]);
    cluster.leader.fetched("b", 10).unwrap();
    let proposed = cluster.proposed();
    let refusal = cluster.controller.clone();
    assert_eq!(cluster.leader.confirmed(refusal), Ok(0));
    let mut produce = cluster.append(11, ["leader", "a"]);
    assert!(poll(&mut produce).is_pending());
    let answer = cluster.controller.alter(proposed);
    assert_eq!(cluster.leader.confirmed(answer), Ok(0));
    assert!(poll(&mut produce).is_pending(), "b is in sync");
}

/// "b" dies before the controller has it: whichever of two proposals the controller accepts first,
/// it refuses the other one.
#[test]
fn joiner_that_dies_is_withdrawn() {
    for takes_first in [false, true] {
        let mut cluster = Cluster::new(["leader", "a"]);
        cluster.leader.fetched("b", 10).unwrap();
        let with = cluster.proposed();
        let mut produce = cluster.append(11, ["leader", "a"]);
        cluster.lag_out(11, ["leader", "a"]);
        let without = cluster.proposed();
        assert_eq!(without, in_sync(0, ["leader", "a"]));
        let mut proposals = [without, with];
        if takes_first {
            proposals.reverse();
        }
        let answers = proposals.map(|proposed| cluster.controller.alter(proposed));
        assert_eq!(answers[0], answers[1]);
        let [answer, _late] = answers;
        assert_eq!(
            cluster.leader.confirmed(answer),
            Ok(usize::from(!takes_first))
        );
        assert_eq!(poll(&mut produce).is_pending(), takes_first);
        if takes_first {
            let answer = cluster.alter();
            assert_eq!(cluster.leader.confirmed(answer), Ok(1));
        }
        assert_eq!(cluster.counted(), ["a", "leader"]);
        assert_eq!(cluster.leader.proposal(), None);
    }
}

/// "a" may be elected until the controller has "b", so "b" does not yet count towards the minimum.
#[test]
fn too_few_confirmed_replicas_acknowledge_nothing() {
    let mut cluster = Cluster::of_enough(2, ["leader", "a"]);
    let mut produce = cluster.append(11, ["leader"]);
    cluster.lag_out(11, ["leader"]);
    let without_a = cluster.alter();
    assert_eq!(cluster.leader.confirmed(without_a.clone()), Ok(0));
    assert_eq!(cluster.leader.fetched("b", 11), Ok(0));
    assert_eq!(cluster.counted(), ["b", "leader"]);
    assert!(poll(&mut produce).is_pending());
    assert!(cluster.leader.logs.below_floor(&()).is_some());

    // The same holds for a leader that begins with too few replicas.
    let timer = ManualTimer::new();
    let logs = ReplicaSets::on(&timer, "test").unwrap();
    let next = Leader::lead(logs, "leader", 11, without_a, 2).unwrap();
    next.fetched("b", 11).unwrap();
    let mut second = next.logs.in_epoch(&(), 1).wait_for(11, NEVER);
    assert!(poll(&mut second).is_pending());

    let with_b = cluster.alter();
    assert_eq!(cluster.leader.confirmed(with_b), Ok(1));
    assert_eq!(over(&mut produce), Ok(11));
    assert_eq!(cluster.leader.logs.below_floor(&()), None);
}

/// "a" catches up before the controller has heard that it lags, and no answer comes.
#[test]
fn laggard_that_catches_up_is_proposed_again() {
    let mut cluster = Cluster::new(["leader", "a"]);
    drop(cluster.append(11, ["leader"]));
    cluster.lag_out(11, ["leader"]);
    cluster.alter();
    cluster.leader.fetched("a", 11).unwrap();
    let proposed = cluster.proposed();
    assert_eq!(proposed, in_sync(0, ["leader", "a"]));
    let without = cluster.controller.alter(proposed);
    assert_eq!(without, in_sync(1, ["leader"]));
    assert_eq!(cluster.leader.confirmed(without), Ok(0));
    assert_eq!(cluster.leader.fetched("a", 11), Ok(0));
    let answer = cluster.alter();
    assert_eq!(answer, in_sync(2, ["leader", "a"]));
    assert_eq!(cluster.leader.confirmed(answer), Ok(0));
    assert_eq!(cluster.leader.proposal(), None);
}

/// The controller takes "a" out by itself, and the leader's proposal of "a" and "b" comes late.
#[test]
fn controller_that_changes_the_set_itself_is_followed() {
    let mut cluster = Cluster::new(["leader", "a"]);
    cluster.leader.fetched("b", 10).unwrap();
    let late = cluster.proposed();
    cluster.controller = in_sync(1, ["leader"]);
    let told = cluster.controller.alter(late);
    assert_eq!(told, in_sync(1, ["leader"]), "it refuses it");
    assert_eq!(cluster.leader.confirmed(told), Ok(0));
    assert_eq!(cluster.counted(), ["leader"]);

    // Both join anew if they still have all records.
    assert_eq!(cluster.leader.fetched("a", 10), Ok(0));
    assert_eq!(cluster.leader.fetched("b", 9), Ok(0));
    assert_eq!(cluster.proposed(), in_sync(1, ["leader", "a"]));
}

/// "a" reports more than the leader's log has, which nothing refuses: the leader lags behind it.
#[test]
fn leader_proposes_no_set_without_itself() {
    let mut cluster = Cluster::new(["leader", "a"]);
    assert_eq!(cluster.leader.fetched("a", 500), Ok(0));
    assert_eq!(cluster.leader.proposal(), None);
    cluster.timer.advance(LAG_MAX);
    assert_eq!(cluster.leader.proposal(), None);
}

#[test]
fn leader_that_was_replaced_proposes_no_empty_set() {
    let mut cluster = Cluster::new(["leader", "a"]);
    cluster.leader.fetched("b", 10).unwrap();
    assert!(cluster.leader.proposal().is_some());
    cluster.leader.logs.follow(&(), 1).unwrap();
    assert_eq!(cluster.leader.proposal(), None);
    cluster.leader.logs.remove(&());
    assert_eq!(cluster.leader.proposal(), None);
}

/// The answer to the leader of epoch 1 comes when "a" leads epoch 2, in this process or another.
#[test]
fn answer_to_the_last_leader_leaves_the_next_ones_set() {
    let mut cluster = Cluster::new(["leader", "a", "b"]);
    drop(cluster.append(11, ["leader", "a"]));
    cluster.lag_out(11, ["leader", "a"]);
    let late = cluster.alter();
    let next = InSync {
        leader_epoch: 2,
        version: 2,
        replicas: ["leader", "a", "b"].into(),
    };
    let logs = cluster.leader.logs.clone();
    let mut next_leader = Leader::lead(logs, "a", 11, next.clone(), 1).unwrap();
    assert_eq!(next_leader.confirmed(late.clone()), Ok(0));
    assert_eq!(cluster.leader.confirmed(late), Err(other_epoch(1, 2)));
    assert_eq!(cluster.leader.confirmed(next.clone()), Ok(0));
    assert_eq!(cluster.leader.fetched("a", 12), Err(other_epoch(1, 2)));
    assert_eq!(cluster.counted(), ["a", "b", "leader"]);

    // The controller refuses proposals of the last leader, too.
    let mut controller = next.clone();
    if let Some(proposed) = cluster.leader.proposal() {
        assert_eq!(controller.alter(proposed), next);
    }
}
