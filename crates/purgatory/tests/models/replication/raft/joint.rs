//! Raft with joint consensus, by the guide's recipe: an entry of the log changes the set of nodes
//! that count. A server goes by the last such entry in its log, committed or not.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use purgatory::Watermarks;
use timer_core::ManualTimer;

use super::{Cluster, Mistake, Role};
use crate::replication::{
    Acked, Entry, NODES, Node, Protocol,
    guide::joint_consensus::{self, Nodes},
    leader::Leader,
};

/// The sets of nodes that count, and the leaders that count by them.
pub(super) struct Changes {
    /// The sets that an entry puts into force, by the entry's number.
    by_id: BTreeMap<u64, Vec<Nodes>>,
    /// The leader of each node's last term, in memory.
    leaders: [Option<joint_consensus::Leader>; NODES],
    timer: ManualTimer,
}

impl Changes {
    fn new() -> Self {
        Changes {
            by_id: BTreeMap::new(),
            leaders: Default::default(),
            timer: ManualTimer::new(),
        }
    }

    /// Returns the sets in force in a log, and the end of the log at the entry that put them there.
    fn in_force(&self, log: &[Entry]) -> (Vec<Nodes>, usize) {
        for (at, entry) in log.iter().enumerate().rev() {
            if let Some(sets) = self.by_id.get(&entry.id) {
                return (sets.clone(), at + 1);
            }
        }
        (vec![(0..NODES).collect()], 0)
    }

    /// Returns true if a majority of each set has voted.
    pub(super) fn elect(&self, log: &[Entry], votes: &BTreeSet<Node>) -> bool {
        let (sets, _) = self.in_force(log);
        let has_majority = |set: &Nodes| 2 * set.intersection(votes).count() > set.len();
        sets.iter().all(has_majority)
    }

    pub(super) fn lead(&mut self, node: Node, term: u64, log: &[Entry]) {
        let committed = match self.leaders[node].take() {
            Some(last) => last.committed,
            None => Watermarks::on(&self.timer, "committed").unwrap(),
        };
        let (sets, _) = self.in_force(log);
        let log_end = log.len() as u64;
        let leader = joint_consensus::Leader::lead(committed, term, log_end, sets);
        self.leaders[node] = Some(leader.unwrap());
    }

    pub(super) fn wait(&self, node: Node, clients: &mut Leader, record: Acked) {
        if let Some(leader) = &self.leaders[node] {
            clients.keep(record, leader.commit(record.end as u64));
        }
    }

    pub(super) fn report(&mut self, node: Node, from: Node, end: usize) {
        if let Some(leader) = &mut self.leaders[node] {
            leader.appended(from, end as u64).unwrap();
        }
    }

    pub(super) fn crash(&mut self, node: Node) {
        self.leaders[node] = None;
    }
}

/// A cluster whose nodes change.
pub(in crate::replication) struct Joint(Cluster);

impl Protocol for Joint {
    type Mistake = Mistake;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut cluster = Cluster::new(seed, mistake);
        cluster.changes = Some(Changes::new());
        Joint(cluster)
    }

    fn step(&mut self) {
        self.0.step();
        self.0.change();
    }

    fn lost(&self) -> Option<String> {
        self.0.lost()
    }

    fn acked(&self) -> usize {
        self.0.acked()
    }
}

impl Cluster {
    /// Now and then, appends an entry that begins the next change or ends it.
    fn change(&mut self) {
        // 1. A leader, and the sets in force.
        let node = self.random_reads.usize(..NODES);
        let server = &mut self.servers[node];
        let Some(changes) = &mut self.changes else {
            return;
        };
        let (mut sets, at) = changes.in_force(&server.log);
        let Some(leader) = &mut changes.leaders[node] else {
            return;
        };
        if server.role != Role::Leader || self.random_reads.u8(..32) > 0 {
            return;
        }
        // 2. First both sets; then the next one alone, once the entry with both is committed.
        let is_committed = leader.committed.value(&()) >= Some(at as u64);
        if sets.len() == 1 {
            let next = some_of(&mut self.random_reads);
            assert!(leader.change_to(next.clone()));
            sets.push(next);
            if self.mistake == Some(Mistake::ChangesAtOnce) {
                sets.remove(0);
            }
            if self.mistake.is_some() {
                leader.changed().unwrap();
            }
        } else if is_committed {
            sets.remove(0);
            leader.changed().unwrap();
        } else {
            return;
        }
        // 3. The entry that puts them into force.
        self.next_id += 1;
        let id = self.next_id;
        changes.by_id.insert(id, sets);
        let epoch = server.term;
        server.log.push(Entry { epoch, id });
        let end = server.log.len();
        self.report(node, node, end);
    }
}

/// Returns at least one of the nodes, at random.
fn some_of(random: &mut Rng) -> Nodes {
    let one = random.usize(..NODES);
    (0..NODES)
        .filter(|node| *node == one || random.bool())
        .collect()
}
