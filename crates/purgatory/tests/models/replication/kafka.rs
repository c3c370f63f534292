//! Kafka's replication. A controller knows the epoch, its leader, and the replicas that are in
//! sync; it elects a leader from these. Replicas that leave a set which is then too small stay
//! *eligible*: the controller elects one of them if no replica in sync is up (KIP-966). A
//! follower's fetch tells how far it has come. A follower gets in sync once it has caught up, and
//! is taken out if it lags: the leader proposes each change to the controller, by the guide's
//! recipe, over the same network.

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use purgatory::{Rule, WaitError};

use super::{
    Acked, CONTROLLER, Entry, Log, NODES, Network, Node, Protocol,
    guide::alter_partition::{self, InSync, Replica},
    leader::Leader,
};

/// The names of the nodes.
const NAMES: [Replica; NODES] = ["0", "1", "2", "3", "4"];

fn named(name: Replica) -> Node {
    NAMES.iter().position(|of| *of == name).unwrap()
}

/// A mistake that a leader makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// It lets in a follower that has not caught up, by beginning a set with it.
    JoinerBelowWatermark,
    /// It counts fetches of earlier epochs.
    ReportsOfNoEpoch,
    /// It counts a follower's records that came from another leader, before they are cut off.
    CountsOtherRecords,
    /// It takes a follower out before the controller has agreed.
    LeavesAlone,
    /// It lets a follower in later than the controller does.
    JoinsAfterController,
    /// It takes out the followers that an answer lacks, even if that is late, repeated or a
    /// refusal.
    ForgetsProposals,
    /// It acknowledges by a large enough set before the controller has that set.
    EnoughBeforeController,
}

#[derive(Clone, Debug)]
enum Message {
    /// From the controller: the leader and the in-sync set. Also the answer to a proposal.
    Led { leader: Node, in_sync: InSync },
    /// To the controller: a proposal.
    Alter { from: Node, proposed: InSync },
    /// The end of a follower's log, and the epoch of its last record.
    Fetch {
        epoch: u64,
        from: Node,
        end: usize,
        last: Option<u64>,
    },
    Fetched {
        epoch: u64,
        end: usize,
        entries: Log,
    },
    /// The leader's log has another record before this end than the follower.
    Diverges {
        epoch: u64,
        end: usize,
        last: Option<u64>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Down,
    Leader,
    Follower(Option<Node>),
}

/// A broker. Its log and its epoch are on disk.
struct Broker {
    log: Log,
    epoch: u64,
    role: Role,
    leader: Leader<Replica>,
    /// The leader of the last epoch that this broker led.
    partition: Option<alter_partition::Leader>,
    late_joins: Vec<(Replica, u64)>,
}

struct Controller {
    leader: Node,
    in_sync: InSync,
    eligible: BTreeSet<Replica>,
}

pub(super) struct Cluster {
    brokers: Vec<Broker>,
    controller: Controller,
    network: Network<Message>,
    acked: Vec<Acked>,
    min_in_sync: usize,
    /// The number of steps with trouble for each 960 others.
    unrest: u16,
    next_id: u64,
    random: Rng,
    mistake: Option<Mistake>,
}

impl Protocol for Cluster {
    type Mistake = Mistake;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = Rng::with_seed(seed);
        let broker = |_| Broker {
            log: Vec::new(),
            epoch: 0,
            role: Role::Follower(None),
            leader: Leader::new(),
            partition: None,
            late_joins: Vec::new(),
        };
        let min_in_sync = random.usize(1..4);
        let unrest = [4, 16, 64][random.usize(..3)];
        let mut cluster = Cluster {
            brokers: (0..NODES).map(broker).collect(),
            controller: Controller {
                leader: 0,
                in_sync: InSync {
                    leader_epoch: 0,
                    version: 0,
                    replicas: NAMES.into(),
                },
                eligible: BTreeSet::new(),
            },
            network: Network::new(),
            acked: Vec::new(),
            min_in_sync,
            unrest,
            next_id: 0,
            random,
            mistake,
        };
        cluster.elect();
        cluster
    }

    fn step(&mut self) {
        let node = self.random.usize(..NODES);
        match self.random.u16(..960 + self.unrest) {
            0..120 => self.produce(node),
            120..360 => self.fetch(node),
            360..840 => self.deliver(),
            840..880 => self.propose(node),
            880..900 => self.tell(node),
            900..920 => self.fence(node),
            920..940 => self.restart(node),
            940..960 => self.join_late(node),
            trouble => match trouble % 4 {
                0 => self.elect(),
                1 => self.crash(node),
                _ => self.network.cut_or_heal(&mut self.random),
            },
        }
        for node in 0..NODES {
            let acked = self.brokers[node].leader.acknowledged();
            self.acked.extend(acked);
        }
    }

    fn lost(&self) -> Option<String> {
        for acked in &self.acked {
            let Controller {
                in_sync, eligible, ..
            } = &self.controller;
            for &member in in_sync.replicas.union(eligible) {
                if !acked.is_in(&self.brokers[named(member)].log) {
                    let epoch = in_sync.leader_epoch;
                    return Some(format!(
                        "{acked:?} is not in the log of {member}, which may lead after epoch {epoch}"
                    ));
                }
            }
        }
        None
    }

    fn acked(&self) -> usize {
        self.acked.len()
    }
}

/// The controller's part.
impl Cluster {
    fn is_up(&self, node: Node) -> bool {
        self.brokers[node].role != Role::Down
    }

    fn are_up(&self, replicas: &BTreeSet<Replica>) -> BTreeSet<Replica> {
        let is_up = |name: &Replica| self.is_up(named(name));
        replicas.iter().copied().filter(is_up).collect()
    }

    /// Elects a leader from the replicas in sync that are up; if none is, an eligible replica,
    /// which is then the only one in sync.
    fn elect(&mut self) {
        let before = self.controller.in_sync.replicas.clone();
        let mut candidates = self.are_up(&before);
        let is_in_sync = !candidates.is_empty();
        if !is_in_sync {
            candidates = self.are_up(&self.controller.eligible);
        }
        let Some(leader) = self.random.choice(&candidates).copied() else {
            return;
        };
        self.controller.leader = named(leader);
        let in_sync = &mut self.controller.in_sync;
        in_sync.leader_epoch += 1;
        in_sync.version += 1;
        if !is_in_sync {
            in_sync.replicas = [leader].into();
        } else if self.random.bool() {
            // The controller knows already which replicas are down.
            in_sync.replicas = candidates;
        }
        self.keep_eligible(before);
        for node in 0..NODES {
            self.tell(node);
        }
    }

    /// Tells a broker which one leads. The message may come late, or never.
    fn tell(&mut self, node: Node) {
        let led = Message::Led {
            leader: self.controller.leader,
            in_sync: self.controller.in_sync.clone(),
        };
        self.network.send(&mut self.random, CONTROLLER, node, led);
    }

    /// Takes a broker that is down out of the set in sync. The leader stays: another one has to be
    /// elected first.
    fn fence(&mut self, node: Node) {
        let in_sync = &mut self.controller.in_sync;
        let before = in_sync.replicas.clone();
        let is_down = self.brokers[node].role == Role::Down;
        if is_down && node != self.controller.leader && in_sync.replicas.remove(NAMES[node]) {
            in_sync.version += 1;
        }
        self.keep_eligible(before);
    }

    /// Keeps replicas that have left a set which is too small eligible, until the set is large
    /// enough.
    fn keep_eligible(&mut self, before: BTreeSet<Replica>) {
        let in_sync = &self.controller.in_sync.replicas;
        let eligible = &mut self.controller.eligible;
        eligible.extend(before);
        if in_sync.len() >= self.min_in_sync {
            eligible.clear();
        }
        eligible.retain(|name| !in_sync.contains(name));
    }

    /// Accepts a proposal or, for whatever reason, refuses it; then answers.
    fn alter(&mut self, from: Node, proposed: InSync) {
        if self.random.u8(..8) > 0 {
            let before = self.controller.in_sync.replicas.clone();
            self.controller.in_sync.alter(proposed);
            self.keep_eligible(before);
        }
        self.tell(from);
    }
}

/// The brokers' part.
impl Cluster {
    /// Returns a broker that takes itself for the leader, or `node` if there is none. There may be
    /// two.
    fn leader_or(&mut self, node: Node) -> Node {
        let leads = |node: &Node| self.brokers[*node].role == Role::Leader;
        let leaders: Vec<Node> = (0..NODES).filter(leads).collect();
        if leaders.is_empty() {
            return node;
        }
        leaders[self.random.usize(..leaders.len())]
    }

    fn produce(&mut self, node: Node) {
        let node = self.leader_or(node);
        let broker = &mut self.brokers[node];
        if broker.role != Role::Leader {
            return;
        }
        self.next_id += 1;
        let epoch = broker.epoch;
        let id = self.next_id;
        let entry = Entry { epoch, id };
        broker.log.push(entry);
        let end = broker.log.len();
        broker.leader.wait_for(epoch, entry, end, epoch);
        broker.leader.report(Some(epoch), NAMES[node], end as u64);
    }

    fn fetch(&mut self, node: Node) {
        let broker = &self.brokers[node];
        let Role::Follower(Some(leader)) = broker.role else {
            return;
        };
        let fetch = Message::Fetch {
            epoch: broker.epoch,
            from: node,
            end: broker.log.len(),
            last: broker.log.last().map(|entry| entry.epoch),
        };
        self.network.send(&mut self.random, node, leader, fetch);
    }

    fn deliver(&mut self) {
        let Some((to, message)) = self.network.deliver(&mut self.random) else {
            return;
        };
        if let Message::Alter { from, proposed } = message {
            self.alter(from, proposed);
            return;
        }
        if !self.is_up(to) {
            return;
        }
        match message {
            Message::Alter { .. } => {}
            Message::Led { leader, in_sync } => self.led(to, leader, in_sync),
            Message::Fetch {
                epoch,
                from,
                end,
                last,
            } => self.fetched_by(to, epoch, (from, end, last)),
            Message::Fetched {
                epoch,
                end,
                entries,
            } => {
                let broker = &mut self.brokers[to];
                if broker.epoch == epoch && broker.log.len() == end {
                    broker.log.extend(entries);
                }
            }
            Message::Diverges { epoch, end, last } => {
                let broker = &mut self.brokers[to];
                let is_last = broker.log.last().map(|entry| entry.epoch) == last;
                if broker.epoch == epoch && broker.log.len() == end && is_last {
                    broker.log.pop();
                }
            }
        }
    }

    /// Tells a broker of an epoch, or of another set in its epoch. The waits of the last epoch stay
    /// where they are.
    fn led(&mut self, node: Node, leader: Node, in_sync: InSync) {
        let broker = &mut self.brokers[node];
        let epoch = in_sync.leader_epoch;
        if epoch < broker.epoch {
            return;
        }
        if epoch == broker.epoch {
            if broker.role == Role::Leader {
                self.confirmed(node, in_sync);
            }
            return;
        }
        broker.epoch = epoch;
        broker.late_joins.clear();
        if leader != node {
            broker.role = Role::Follower(Some(leader));
            return;
        }
        broker.role = Role::Leader;
        let log_end = broker.log.len() as u64;
        let sets = &broker.leader.sets;
        let lead = || {
            let confirmed = in_sync.clone();
            let min_in_sync = self.min_in_sync;
            alter_partition::Leader::lead(
                sets.clone(),
                NAMES[node],
                log_end,
                confirmed,
                min_in_sync,
            )
        };
        let partition = lead().or_else(|_| {
            sets.remove(&()); // a mistake let it lead without all acknowledged records; it goes on
            lead()
        });
        broker.partition = partition.ok();
        self.counts_proposed(node);
    }

    /// Plants the mistake to acknowledge by a set that the controller does not have yet.
    fn counts_proposed(&self, node: Node) {
        if self.mistake == Some(Mistake::EnoughBeforeController) {
            let rule = Rule::all().floor(self.min_in_sync);
            _ = self.brokers[node].leader.present().set_rule(rule);
        }
    }

    /// Tells a leader which set the controller has.
    fn confirmed(&mut self, node: Node, said: InSync) {
        let broker = &mut self.brokers[node];
        let Some(partition) = &mut broker.partition else {
            return;
        };
        partition.confirmed(said.clone()).unwrap();
        self.counts_proposed(node);
        let broker = &mut self.brokers[node];
        let members = broker.leader.members();
        match self.mistake {
            Some(Mistake::ForgetsProposals) => {
                for &member in members.difference(&said.replicas) {
                    broker.leader.leave(member);
                }
            }
            Some(Mistake::JoinsAfterController) => {
                let end = broker.log.len() as u64;
                for &name in said.replicas.difference(&members) {
                    broker.late_joins.push((name, end));
                }
            }
            _ => {}
        }
    }

    /// Takes a follower's fetch: the end of its log, and the request for more.
    fn fetched_by(
        &mut self,
        node: Node,
        epoch: u64,
        (from, end, last): (Node, usize, Option<u64>),
    ) {
        // 1. The follower follows this leader.
        let broker = &mut self.brokers[node];
        if broker.role != Role::Leader {
            return;
        }
        if broker.epoch != epoch {
            if self.mistake == Some(Mistake::ReportsOfNoEpoch) {
                broker.leader.report(None, NAMES[from], end as u64);
            }
            return;
        }
        // 2. The follower's log is the beginning of the leader's.
        let at = end.checked_sub(1).map(|before| broker.log.get(before));
        if at.is_some_and(|entry| entry.map(|entry| entry.epoch) != last) {
            let diverges = Message::Diverges { epoch, end, last };
            self.network.send(&mut self.random, node, from, diverges);
            if self.mistake == Some(Mistake::CountsOtherRecords) {
                self.counts(node, NAMES[from], end as u64);
            }
            return;
        }
        // 3. So the fetch is the follower's report.
        let entries: Log = broker.log[end..].iter().copied().take(3).collect();
        self.counts(node, NAMES[from], end as u64);
        let fetched = Message::Fetched {
            epoch,
            end,
            entries,
        };
        self.network.send(&mut self.random, node, from, fetched);
    }

    /// Counts a follower's report. A follower that has caught up joins.
    fn counts(&mut self, node: Node, from: Replica, end: u64) {
        let broker = &mut self.brokers[node];
        let Some(partition) = &mut broker.partition else {
            return;
        };
        let is_member = broker.leader.members().contains(from);
        match self.mistake {
            Some(Mistake::JoinerBelowWatermark) if !is_member => {
                let mut members = broker.leader.sets.members(&());
                members.push((from, end));
                broker.leader.sets.remove(&());
                let rule = Rule::all().floor(self.min_in_sync);
                broker.leader.begin(broker.epoch, &members, rule);
                return;
            }
            Some(Mistake::JoinsAfterController) if !is_member => {
                // It tries whether it could let the follower in.
                if broker.leader.join(from, end) {
                    let with_it = partition.proposal();
                    broker.leader.leave(from);
                    self.send_proposal(node, with_it);
                }
                return;
            }
            _ => {}
        }
        let counted = partition.fetched(from, end);
        assert!(!matches!(
            counted,
            Err(WaitError::NoMember | WaitError::IsMember)
        ));
    }

    /// Plants the mistake to let a follower in later than the controller does.
    fn join_late(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        if let Some((from, end)) = broker.late_joins.pop() {
            if broker.role == Role::Leader {
                broker.leader.join(from, end);
            }
        }
    }

    /// Lets half of the time pass that a follower may lag. Then the leader proposes a set.
    fn propose(&mut self, node: Node) {
        let node = self.leader_or(node);
        let broker = &mut self.brokers[node];
        if broker.role != Role::Leader {
            return;
        }
        broker.leader.timer.advance(Duration::from_secs(5));
        let proposed = broker.partition.as_mut().and_then(|one| one.proposal());
        if let (Some(Mistake::LeavesAlone), Some(proposed)) = (self.mistake, &proposed) {
            for &member in broker.leader.members().difference(&proposed.replicas) {
                broker.leader.leave(member);
            }
        }
        self.send_proposal(node, proposed);
    }

    fn send_proposal(&mut self, from: Node, proposed: Option<InSync>) {
        if let Some(proposed) = proposed {
            let alter = Message::Alter { from, proposed };
            self.network.send(&mut self.random, from, CONTROLLER, alter);
        }
    }

    /// Crashes a broker: its waits are lost with its memory.
    fn crash(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        broker.role = Role::Down;
        broker.leader = Leader::new();
        broker.partition = None;
        broker.late_joins.clear();
    }

    fn restart(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        if broker.role == Role::Down {
            broker.role = Role::Follower(None);
        }
    }
}
