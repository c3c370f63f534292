//! Raft. A majority elects a leader; each node votes once in a term, and not for a candidate whose
//! log lacks records of its own. A record is acknowledged once a majority has it and a record of
//! the leader's own term, which may be the same one or a later one. A leader reads by the guide's
//! recipe: a record that was acknowledged before a read came is in the state machine when the read
//! ends.

mod joint;
mod reads;

use std::collections::BTreeSet;

use fastrand::Rng;
use purgatory::Rule;

pub(super) use self::joint::Joint;
use self::{joint::Changes, reads::Reads};
use super::{Acked, Entry, Log, NODES, Network, Node, Protocol, leader::Leader};

/// A mistake that a leader makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// It acknowledges records of earlier terms once a majority has them, because each of its terms
    /// begins as epoch 0 of a new set.
    CountsEarlierTerms,
    /// It counts replies of earlier terms.
    ReportsOfNoEpoch,
    /// It acknowledges records that two of the five nodes have.
    TooFew,
    /// It reads after a round of heartbeats that was answered before the read came.
    ReadsByPastRound,
    /// It reads before an entry of its own term is committed.
    ReadsBeforeOwnEntry,
    /// It changes to another set of nodes in one step.
    ChangesAtOnce,
    /// It counts only the next set as soon as there is one.
    CountsNextAlone,
}

#[derive(Clone, Debug)]
enum Message {
    Elect {
        term: u64,
        from: Node,
        last: (u64, usize),
    },
    Vote {
        term: u64,
        from: Node,
    },
    Append {
        term: u64,
        from: Node,
        end: usize,
        last: u64,
        entries: Log,
        round: u64,
    },
    /// The end up to which the follower's log is the leader's; `None` if it differs.
    Appended {
        term: u64,
        from: Node,
        end: Option<usize>,
        round: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Down,
    Follower,
    Candidate,
    Leader,
}

/// A server. Its log, its term and its vote are on disk.
struct Server {
    log: Log,
    term: u64,
    vote: Option<Node>,
    role: Role,
    votes: BTreeSet<Node>,
    /// The end from which each follower is sent records.
    next: [usize; NODES],
    leader: Leader,
    reads: Reads,
}

impl Server {
    /// Returns the term of the record before this end.
    fn term_before(&self, end: usize) -> u64 {
        match end.checked_sub(1) {
            Some(at) => self.log[at].epoch,
            None => 0,
        }
    }

    fn last(&self) -> (u64, usize) {
        (self.term_before(self.log.len()), self.log.len())
    }

    /// Follows a newer term; returns false if the term is over.
    fn see(&mut self, term: u64) -> bool {
        if term > self.term {
            self.term = term;
            self.vote = None;
            self.role = Role::Follower;
        }
        term == self.term
    }
}

pub(super) struct Cluster {
    servers: Vec<Server>,
    network: Network<Message>,
    acked: Vec<Acked>,
    lost_at_once: Option<String>,
    reads: usize,
    /// The number of steps with trouble for each 960 others.
    unrest: u16,
    /// Of 8 steps that may produce a record, the number that do, on average.
    eager: u8,
    next_id: u64,
    random: Rng,
    /// For reads, so that they do not change the other steps.
    random_reads: Rng,
    /// Whether waits end when their leader steps down. Otherwise they stay, and may be answered
    /// late.
    tells_waits: bool,
    /// `None` if all nodes always count.
    changes: Option<Changes>,
    mistake: Option<Mistake>,
}

impl Protocol for Cluster {
    type Mistake = Mistake;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let server = |_| {
            let leader = Leader::new();
            Server {
                log: Vec::new(),
                term: 0,
                vote: None,
                role: Role::Follower,
                votes: BTreeSet::new(),
                next: [0; NODES],
                reads: Reads::new(&leader),
                leader,
            }
        };
        let mut random = Rng::with_seed(seed);
        Cluster {
            tells_waits: mistake.is_none() && seed % 2 == 0,
            changes: None,
            unrest: [4, 16, 64, 200][random.usize(..4)],
            eager: [1, 8][random.usize(..2)],
            servers: (0..NODES).map(server).collect(),
            network: Network::new(),
            acked: Vec::new(),
            lost_at_once: None,
            reads: 0,
            next_id: 0,
            random_reads: random.clone(),
            random,
            mistake,
        }
    }

    fn step(&mut self) {
        let node = self.random.usize(..NODES);
        match self.random.u16(..960 + self.unrest) {
            0..80 if self.random.u8(..8) < self.eager => self.produce(node),
            0..80 => {}
            80..360 => self.append(node),
            360..920 => self.deliver(),
            920..940 => self.restart(node),
            940..960 if !self.has_leader() => self.stand(node),
            940..960 => {}
            trouble => match trouble % 4 {
                0 | 1 => self.stand(node),
                2 => self.crash(node),
                _ => self.network.cut_or_heal(&mut self.random),
            },
        }
        self.read();
        self.step_down();
        for node in 0..NODES {
            for acked in self.servers[node].leader.acknowledged() {
                self.acknowledge(acked);
            }
        }
    }

    fn lost(&self) -> Option<String> {
        for acked in &self.acked {
            for (node, server) in self.servers.iter().enumerate() {
                let is_later = server.role == Role::Leader && server.term > acked.by;
                if is_later && !acked.is_in(&server.log) {
                    let term = server.term;
                    return Some(format!(
                        "{acked:?} is not in the log of {node}, the leader of term {term}"
                    ));
                }
            }
        }
        self.lost_at_once.clone()
    }

    fn acked(&self) -> usize {
        self.acked.len()
    }

    fn reads(&self) -> usize {
        self.reads
    }
}

impl Cluster {
    /// Records an acknowledgement, and checks that a majority has the record.
    fn acknowledge(&mut self, acked: Acked) {
        let has_it = |server: &&Server| acked.is_in(&server.log);
        let count = self.servers.iter().filter(has_it).count();
        if count <= NODES / 2 && self.mistake.is_none() && self.changes.is_none() {
            self.lost_at_once = Some(format!("{acked:?} is in {count} logs"));
        }
        self.acked.push(acked);
    }

    fn rule(&self) -> Rule {
        match self.mistake {
            Some(Mistake::TooFew) => Rule::at_least(2),
            _ => Rule::majority(),
        }
    }

    /// Returns the epoch of a term's set.
    fn epoch(&self, term: u64) -> u64 {
        match self.mistake {
            Some(Mistake::CountsEarlierTerms) => 0,
            _ => term,
        }
    }

    /// Returns a server that takes itself for the leader, or `node` if there is none. There may be
    /// two.
    fn leader_or(&mut self, node: Node) -> Node {
        let leads = |node: &Node| self.servers[*node].role == Role::Leader;
        let leaders: Vec<Node> = (0..NODES).filter(leads).collect();
        if leaders.is_empty() {
            return node;
        }
        leaders[self.random.usize(..leaders.len())]
    }

    /// Returns true if a server leads that is not cut off.
    fn has_leader(&self) -> bool {
        let leads = |node: Node| self.servers[node].role == Role::Leader;
        (0..NODES).any(|node| leads(node) && !self.network.is_cut[node])
    }

    fn produce(&mut self, node: Node) {
        let node = self.leader_or(node);
        let server = &mut self.servers[node];
        if server.role != Role::Leader {
            return;
        }
        self.next_id += 1;
        let term = server.term;
        let id = self.next_id;
        let entry = Entry { epoch: term, id };
        server.log.push(entry);
        let end = server.log.len();
        self.wait(node, entry, end);
        self.report(node, node, end);
    }

    /// Lets a client wait until a leader acknowledges a record.
    fn wait(&mut self, node: Node, entry: Entry, end: usize) {
        let by = self.servers[node].term;
        let epoch = self.epoch(by);
        let clients = &mut self.servers[node].leader;
        match &self.changes {
            Some(changes) => changes.wait(node, clients, Acked { entry, end, by }),
            None => clients.wait_for(epoch, entry, end, by),
        }
    }

    /// Tells a leader how far a node's log agrees with its own.
    fn report(&mut self, node: Node, from: Node, end: usize) {
        let server = &self.servers[node];
        let epoch = self.epoch(server.term);
        server.leader.report(Some(epoch), from, end as u64);
        if let Some(changes) = &mut self.changes {
            changes.report(node, from, end);
        }
    }

    /// Lets a server stand for election.
    fn stand(&mut self, node: Node) {
        let server = &mut self.servers[node];
        if server.role == Role::Down || server.role == Role::Leader {
            return;
        }
        server.term += 1;
        server.vote = Some(node);
        server.role = Role::Candidate;
        server.votes = BTreeSet::from([node]);
        let elect = Message::Elect {
            term: server.term,
            from: node,
            last: server.last(),
        };
        for other in 0..NODES {
            if other != node {
                let elect = elect.clone();
                self.network.send(&mut self.random, node, other, elect);
            }
        }
    }

    /// Sends a follower some records that it may lack, or none. Each such message is a heartbeat,
    /// too.
    fn append(&mut self, node: Node) {
        let to = self.random.usize(..NODES);
        let node = self.leader_or(node);
        let server = &self.servers[node];
        if server.role != Role::Leader || to == node {
            return;
        }
        let end = server.next[to].min(server.log.len());
        let count = self.random.usize(..5);
        let append = Message::Append {
            term: server.term,
            from: node,
            end,
            last: server.term_before(end),
            entries: server.log[end..].iter().copied().take(count).collect(),
            round: server.reads.round,
        };
        self.network.send(&mut self.random, node, to, append);
    }

    fn deliver(&mut self) {
        let Some((to, message)) = self.network.deliver(&mut self.random) else {
            return;
        };
        if self.servers[to].role == Role::Down {
            return;
        }
        match message {
            Message::Elect { term, from, last } => self.asked_to_vote(to, term, from, last),
            Message::Vote { term, from } => self.voted(to, term, from),
            Message::Append {
                term,
                from,
                end,
                last,
                entries,
                round,
            } => {
                let matched = self.appends(to, term, (end, last, &entries));
                if let Some(end) = matched {
                    let appended = Message::Appended {
                        term,
                        from: to,
                        end,
                        round,
                    };
                    self.network.send(&mut self.random, to, from, appended);
                }
            }
            Message::Appended {
                term,
                from,
                end,
                round,
            } => self.appended(to, term, from, (end, round)),
        }
    }

    fn asked_to_vote(&mut self, node: Node, term: u64, from: Node, last: (u64, usize)) {
        let server = &mut self.servers[node];
        let is_free = server.see(term) && server.vote.is_none_or(|vote| vote == from);
        if is_free && last >= server.last() {
            server.vote = Some(from);
            let vote = Message::Vote { term, from: node };
            self.network.send(&mut self.random, node, from, vote);
        }
    }

    fn voted(&mut self, node: Node, term: u64, from: Node) {
        let server = &mut self.servers[node];
        if !server.see(term) || server.role != Role::Candidate {
            return;
        }
        server.votes.insert(from);
        let is_elected = match &self.changes {
            Some(changes) => changes.elect(&server.log, &server.votes),
            None => server.votes.len() > NODES / 2,
        };
        if is_elected {
            self.lead(node, term);
        }
    }

    /// Makes an elected server lead. Its clients wait for the records of earlier terms, too.
    fn lead(&mut self, node: Node, term: u64) {
        let epoch = self.epoch(term);
        let rule = self.rule();
        let server = &mut self.servers[node];
        server.role = Role::Leader;
        server.next = [server.log.len(); NODES];
        let log_end = server.log.len();
        if epoch == 0 {
            server.leader.sets.remove(&());
            server.reads.server.heard.remove(&());
        }
        server.reads.lead(epoch, log_end, self.mistake);
        server.leader.present().set_rule(rule).unwrap();
        if let Some(changes) = &mut self.changes {
            changes.lead(node, term, &server.log);
        }
        self.report(node, node, log_end);
        for at in 0..log_end {
            let entry = self.servers[node].log[at];
            self.wait(node, entry, at + 1);
        }
    }

    /// Appends the entries that a leader sent. Returns the end up to which the logs then agree,
    /// `Some(None)` if they do not; `None` if the term is over.
    fn appends(
        &mut self,
        node: Node,
        term: u64,
        (end, last, entries): (usize, u64, &[Entry]),
    ) -> Option<Option<usize>> {
        // 1. The leader is of this term, and its entries continue this log.
        let server = &mut self.servers[node];
        if !server.see(term) {
            return None;
        }
        server.role = Role::Follower;
        let mut matched = None;
        if end <= server.log.len() && server.term_before(end) == last {
            // 2. Entries that differ are removed. A late message removes no entry that agrees.
            for (at, &entry) in (end..).zip(entries) {
                if server.log.get(at) != Some(&entry) {
                    server.log.truncate(at);
                    server.log.push(entry);
                }
            }
            matched = Some(end + entries.len());
        }
        Some(matched)
    }

    fn appended(&mut self, node: Node, term: u64, from: Node, (end, round): (Option<usize>, u64)) {
        let epoch = self.epoch(term);
        let counts_all = self.mistake == Some(Mistake::ReportsOfNoEpoch);
        let server = &mut self.servers[node];
        let is_present = server.see(term);
        if server.role != Role::Leader {
            return;
        }
        if is_present {
            _ = server.reads.server.answered(epoch, from, round);
        }
        match end {
            Some(end) if is_present => {
                server.next[from] = end;
                self.report(node, from, end);
            }
            Some(end) if counts_all => server.leader.report(None, from, end as u64),
            None if is_present => server.next[from] = server.next[from].saturating_sub(1),
            _ => {}
        }
    }

    /// Crashes a server: its waits are lost with its memory.
    fn crash(&mut self, node: Node) {
        let server = &mut self.servers[node];
        server.role = Role::Down;
        server.leader = Leader::new();
        server.reads = Reads::new(&server.leader);
        if let Some(changes) = &mut self.changes {
            changes.crash(node);
        }
    }

    fn restart(&mut self, node: Node) {
        let server = &mut self.servers[node];
        if server.role == Role::Down {
            server.role = Role::Follower;
        }
    }
}
