// A rule that `Rule` does not offer: the leader derives the value itself, and advances a watermark
// to it. Here the rule is Raft's joint consensus: while the nodes change from one set to another,
// an entry is committed once a majority of each set has it. (Elections then also need a majority of
// each.)

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use purgatory::{WaitError, WaitFuture, Watermarks};

const TIMEOUT: Duration = Duration::from_secs(30);

pub type Node = usize;
pub type Nodes = BTreeSet<Node>;

/// A leader in its term. It is not shared: reports and changes of the nodes come one after another.
pub struct Leader {
    pub term: u64,
    /// Clients have clones, and wait in the term.
    pub committed: Watermarks<()>,
    /// The index of the first entry of this term: entries before it are not committed by counting.
    first_index: u64,
    log_ends: BTreeMap<Node, u64>,
    /// The sets that each need a majority: one, or two while they are joint.
    in_force: Vec<Nodes>,
}

impl Leader {
    /// Begins a term. The log ends at `log_end`, and its last configuration is in force. The waits
    /// of the last term are cancelled.
    pub fn lead(
        committed: Watermarks<()>,
        term: u64,
        log_end: u64,
        in_force: Vec<Nodes>,
    ) -> Result<Leader, WaitError> {
        let index = committed.value(&()).unwrap_or(0);
        committed.begin_epoch(&(), term, index)?;
        Ok(Leader {
            term,
            committed,
            first_index: log_end + 1,
            log_ends: BTreeMap::new(),
            in_force,
        })
    }

    /// A future of the committed index, once that is at least `index`, an entry of this term.
    pub fn commit(&self, index: u64) -> WaitFuture<u64> {
        self.committed
            .in_epoch(&(), self.term)
            .wait_for(index, TIMEOUT)
    }

    /// The entry with both sets is appended: from here on, each set needs a majority, even for
    /// entries before it. Returns false while an earlier change goes on.
    pub fn change_to(&mut self, next: Nodes) -> bool {
        let may_change = self.in_force.len() == 1;
        if may_change {
            self.in_force.push(next);
        }
        may_change
    }

    /// The entry with the next set alone is appended, after the entry with both was committed: from
    /// here on the next set suffices. Returns how many waits this has ended.
    pub fn changed(&mut self) -> Result<usize, WaitError> {
        let last = self.in_force.len() - 1;
        self.in_force.drain(..last);
        self.count()
    }

    /// A node has the log up to this index, as it said in this term. This leader also reports.
    pub fn appended(&mut self, node: Node, index: u64) -> Result<usize, WaitError> {
        let log_end = self.log_ends.entry(node).or_default();
        *log_end = index.max(*log_end); // a report that comes late takes nothing back
        self.count()
    }

    /// Commits the entries that a majority of each set has.
    fn count(&self) -> Result<usize, WaitError> {
        let of_each = self.in_force.iter().map(|nodes| self.majority_has(nodes));
        let index = of_each.min().unwrap_or(0);
        if index < self.first_index {
            return Ok(0);
        }
        self.committed.in_epoch(&(), self.term).advance(index)
    }

    /// The index up to which more than half of these nodes have the log.
    fn majority_has(&self, nodes: &Nodes) -> u64 {
        let log_end = |node| self.log_ends.get(node).copied().unwrap_or(0);
        let mut log_ends: Vec<u64> = nodes.iter().map(log_end).collect();
        log_ends.sort_unstable();
        let may_lack = log_ends.len().saturating_sub(1) / 2;
        log_ends.get(may_lack).copied().unwrap_or(0)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let committed = Watermarks::new("committed")?;
    let old = Nodes::from([0, 1, 2]);
    let mut leader = Leader::lead(committed, 7, 40, vec![old])?;
    let [first, joint, last] = [41, 42, 43].map(|index| leader.commit(index));
    leader.appended(0, 41)?;
    assert_eq!(leader.appended(1, 41)?, 1);
    assert_eq!(first.wait_blocking(), Ok(41));

    // Entry 42 has both sets. Two of the old three have it, and then two of the new three.
    assert!(leader.change_to(Nodes::from([0, 3, 4])));
    leader.appended(0, 42)?;
    assert_eq!(leader.appended(1, 42)?, 0);
    assert_eq!(leader.appended(3, 42)?, 1);
    assert_eq!(joint.wait_blocking(), Ok(42));

    // Entry 43 has the new set alone.
    leader.changed()?;
    leader.appended(0, 43)?;
    assert_eq!(leader.appended(1, 43)?, 0);
    assert_eq!(leader.appended(4, 43)?, 1);
    assert_eq!(last.wait_blocking(), Ok(43));
    Ok(())
}
