//! Two replication protocols over a network that loses, repeats and delays messages, with five
//! nodes that crash and are cut off. Each leader acknowledges produces by a real `ReplicaSets`, and
//! follows the guide's recipes. After each step, every acknowledged record has to be where the
//! protocol promises it: in the log of each member of the set of its time, and of each later
//! leader.
//!
//! Then the same with a planted mistake in the use of the protocol or of the API. Each mistake has
//! to lose an acknowledged record; the test prints after how many steps.
//!
//! Each protocol makes 5000 steps times `TEST_EFFORT`, in CI a million. `MODEL_SEED` changes them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it found"
)]

mod kafka;
mod leader;
mod raft;

/// The guide's recipes, which these leaders follow.
#[path = "../../src/guide/recipes"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "for the guide's readers, who run each file's `main`"
)]
mod guide {
    pub(super) mod alter_partition;
    pub(super) mod joint_consensus;
    pub(super) mod read_index;
}

use std::collections::VecDeque;

use fastrand::Rng;

use crate::effort::{effort, number};

/// The number of steps; `TEST_EFFORT` multiplies it.
const STEPS: u64 = 5_000;
const STEPS_A_CASE: u64 = 1_000;

/// The number of steps within which a mistake has to lose a record.
const STEPS_TO_LOSS: u64 = 1_000_000;

const NODES: usize = 5;

type Node = usize;

/// The address of the controller, which is no node.
const CONTROLLER: Node = NODES;

/// A record in a log: the epoch (or term) in which it was appended, and its unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    epoch: u64,
    id: u64,
}

type Log = Vec<Entry>;

/// An acknowledged record, which lies before this end of the log.
#[derive(Clone, Copy, Debug)]
struct Acked {
    entry: Entry,
    end: usize,
    /// The epoch of the leader that acknowledged it.
    by: u64,
}

impl Acked {
    fn is_in(&self, log: &[Entry]) -> bool {
        log.get(self.end - 1) == Some(&self.entry)
    }
}

/// The messages under way, and the nodes that are cut off.
struct Network<M> {
    under_way: VecDeque<(Node, M)>,
    /// Copies that are delivered much later, when epochs and leaders have changed.
    late: Vec<(Node, M)>,
    is_cut: [bool; NODES + 1],
}

impl<M: Clone> Network<M> {
    const MAX: usize = 20;
    const LATE_MAX: usize = 20;

    fn new() -> Self {
        Network {
            under_way: VecDeque::new(),
            late: Vec::new(),
            is_cut: [false; NODES + 1],
        }
    }

    /// Sends a message, which may be lost, overtaken or, as a copy, delivered much later.
    fn send(&mut self, random: &mut Rng, from: Node, to: Node, message: M) {
        if self.is_cut[from] || self.is_cut[to] || random.u8(..16) == 0 {
            return;
        }
        if random.u8(..8) == 0 {
            if self.late.len() == Self::LATE_MAX {
                self.late.swap_remove(random.usize(..Self::LATE_MAX));
            }
            self.late.push((to, message.clone()));
        }
        if random.u8(..16) > 0 {
            self.under_way.push_back((to, message));
            self.under_way.truncate(Self::MAX);
        }
    }

    fn deliver(&mut self, random: &mut Rng) -> Option<(Node, M)> {
        if !self.late.is_empty() && random.u8(..16) == 0 {
            return Some(self.late.swap_remove(random.usize(..self.late.len())));
        }
        let among = self.under_way.len().min(4);
        if among == 0 {
            return None;
        }
        self.under_way.remove(random.usize(..among))
    }

    /// Cuts a node off, or heals the network. Messages under way may still arrive.
    fn cut_or_heal(&mut self, random: &mut Rng) {
        if random.u8(..3) > 0 {
            self.is_cut = [false; NODES + 1];
        } else {
            let node = random.usize(..NODES);
            self.is_cut[node] = true;
        }
    }
}

/// A protocol under test.
trait Protocol {
    /// The mistakes that can be planted.
    type Mistake: Copy + std::fmt::Debug;

    fn new(seed: u64, mistake: Option<Self::Mistake>) -> Self;

    fn step(&mut self);

    /// Returns an acknowledged record that is lost now.
    fn lost(&self) -> Option<String>;

    /// The number of records that were acknowledged.
    fn acked(&self) -> usize;

    /// The number of reads that were answered, in a protocol with reads.
    fn reads(&self) -> usize {
        0
    }
}

/// The work of some cases, up to the first loss.
#[derive(Debug, Default)]
struct Ran {
    steps: u64,
    acked: u64,
    reads: u64,
    /// The lost record.
    lost: Option<String>,
}

/// Runs cases until a record is lost, or until they are enough.
fn run_until<P: Protocol>(
    mistake: Option<P::Mistake>,
    first_seed: u64,
    is_enough: impl Fn(&Ran) -> bool,
) -> Ran {
    let mut ran = Ran::default();
    let mut seed = first_seed;
    while !is_enough(&ran) {
        let mut protocol = P::new(seed, mistake);
        for _ in 0..STEPS_A_CASE {
            protocol.step();
            ran.steps += 1;
            if let Some(lost) = protocol.lost() {
                ran.lost = Some(format!("MODEL_SEED={seed}: {lost}"));
                return ran;
            }
        }
        ran.acked += protocol.acked() as u64;
        ran.reads += protocol.reads() as u64;
        seed += 1;
    }
    ran
}

/// Checks that no record is lost. The run goes on until it has acknowledged a record for each 200
/// of the steps asked for and answered `reads_min` reads, since fewer would prove little; it fails
/// if ten times these steps are not enough.
fn holds<P: Protocol>(name: &str, reads_min: u64) {
    let seed = number("MODEL_SEED").unwrap_or(0);
    let asked = effort(STEPS);
    let has_said_enough = |ran: &Ran| ran.acked > asked / 200 && ran.reads >= reads_min;
    let ran = run_until::<P>(None, seed, |ran| {
        ran.steps >= 10 * asked || ran.steps >= asked && has_said_enough(ran)
    });
    assert_eq!(ran.lost, None, "after {} steps of {name}", ran.steps);
    assert!(has_said_enough(&ran), "too little: {ran:?}");
    let Ran {
        steps,
        acked,
        reads,
        ..
    } = ran;
    println!("{name}: {acked} records acknowledged in {steps} steps, {reads} read; none lost");
}

/// Checks that each mistake loses a record.
fn mistakes_lose<P: Protocol>(mistakes: &[P::Mistake]) {
    for &mistake in mistakes {
        let Ran { steps, lost, .. } =
            run_until::<P>(Some(mistake), 0, |ran| ran.steps >= STEPS_TO_LOSS);
        let lost = lost.unwrap_or_else(|| panic!("{mistake:?} lost nothing in {steps} steps"));
        println!("{mistake:?}, after {steps} steps: {lost}");
    }
}

#[test]
fn in_sync_replicas_have_what_is_acknowledged() {
    holds::<kafka::Cluster>("in-sync replicas", 0);
}

#[test]
fn mistakes_with_in_sync_replicas_lose_records() {
    use kafka::Mistake::*;
    mistakes_lose::<kafka::Cluster>(&[
        JoinerBelowWatermark,
        ReportsOfNoEpoch,
        CountsOtherRecords,
        LeavesAlone,
        JoinsAfterController,
        ForgetsProposals,
        EnoughBeforeController,
    ]);
}

#[test]
fn later_raft_leaders_have_what_is_acknowledged() {
    holds::<raft::Cluster>("raft", effort(STEPS) / 1250);
}

#[test]
fn leaders_after_joint_changes_have_acknowledged_data() {
    holds::<raft::Joint>("raft, with nodes that change", 0);
}

#[test]
fn mistakes_with_joint_changes_lose_records() {
    use raft::Mistake::*;
    mistakes_lose::<raft::Joint>(&[ChangesAtOnce, CountsNextAlone]);
}

#[test]
fn mistakes_with_raft_lose_records() {
    use raft::Mistake::*;
    mistakes_lose::<raft::Cluster>(&[
        CountsEarlierTerms,
        ReportsOfNoEpoch,
        TooFew,
        ReadsByPastRound,
        ReadsBeforeOwnEntry,
    ]);
}
