//! A rule of one's own, joint consensus, compared with a count of the nodes that have each entry.

use fastrand::Rng;

use super::{
    guide::joint_consensus::{Leader, Nodes},
    *,
};

/// Creates the leader of term 7, whose log ends at 40, with these sets in force.
fn leader(in_force: &[&[usize]]) -> (ManualTimer, Waits<()>, Leader) {
    let (timer, waits, committed) = watermarks();
    let in_force = in_force.iter().map(|nodes| set(nodes)).collect();
    let leader = Leader::lead(committed, 7, 40, in_force).unwrap();
    (timer, waits, leader)
}

fn set(nodes: &[usize]) -> Nodes {
    nodes.iter().copied().collect()
}

fn append(leader: &mut Leader, nodes: &[usize], index: u64) {
    for &node in nodes {
        leader.appended(node, index).unwrap();
    }
}

/// A majority has entries of earlier terms; they are committed together with one of this term.
#[test]
fn next_term_counts_from_its_own_entries() {
    let (_timer, waits, mut first) = leader(&[&[0, 1, 2], &[3, 4, 5]]);
    let mut old = first.commit(41);
    append(&mut first, &[0, 1], 41);
    let in_force = vec![set(&[0, 1, 2])];
    let mut next = Leader::lead(first.committed.clone(), 8, 41, in_force).unwrap();
    assert_eq!(over(&mut old), Err(WaitError::Cancelled(epoch_over(7, 8))));
    append(&mut first, &[3], 41);
    assert_eq!(first.appended(4, 41), Err(other_epoch(7, 8)));
    let mut wait = next.commit(42);
    append(&mut next, &[0, 1, 2], 41);
    assert_eq!(next.committed.value(&()), Some(0));
    append(&mut next, &[1, 2], 42);
    assert_eq!(over(&mut wait), Ok(42));
    nothing_waits(&waits);
}

/// Returns true if more than half of each set has the log up to this index.
fn is_committed(log_ends: &[u64], in_force: &[Nodes], index: u64) -> bool {
    in_force.iter().all(|nodes| {
        let has = |node: &&usize| log_ends[**node] >= index;
        2 * nodes.iter().filter(has).count() > nodes.len()
    })
}

#[test]
fn committed_entries_have_a_majority_of_each_set() {
    const NODES: usize = 7;
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut in_force = vec![set(&[0, 1, 2])];
        let (_timer, waits, mut leader) = leader(&[&[0, 1, 2]]);
        let mut log_ends = [0; NODES];
        let mut parked = Vec::new();
        let (mut log_end, mut joint_at, mut committed) = (40, 0, 40);
        for _ in 0..200 {
            match random.u8(..16) {
                0 if in_force.len() == 1 => {
                    let next: Nodes = (0..NODES).filter(|_| random.bool()).chain([6]).collect();
                    joint_at = log_end + 1;
                    in_force.push(next.clone());
                    assert!(leader.change_to(next));
                }
                0 => assert!(!leader.change_to(set(&[0])), "one at a time"),
                1 if in_force.len() == 2 && committed >= joint_at => {
                    in_force.remove(0);
                    leader.changed().unwrap();
                }
                2..6 => {
                    log_end += 1;
                    parked.push((log_end, leader.commit(log_end)));
                }
                _ => {
                    let node = random.usize(..NODES);
                    let index = random.u64(40..=log_end);
                    log_ends[node] = index.max(log_ends[node]);
                    leader.appended(node, index).unwrap();
                }
            }
            let is_one = |&index: &u64| is_committed(&log_ends, &in_force, index);
            committed = (41..=log_end).filter(is_one).fold(committed, u64::max);
            parked.retain_mut(|(index, commit)| {
                let is_over = poll(commit).is_ready();
                assert_eq!(is_over, *index <= committed, "seed {seed}: {index}");
                !is_over
            });
        }
        assert!(committed > 45, "seed {seed}: {committed}");
        drop(parked);
        nothing_waits(&waits);
    }
}
