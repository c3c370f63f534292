//! Kafka's replication. A controller knows the epoch, its leader, and the replicas that are in sync;
//! it elects a leader from these. A follower's fetch says what it has. It gets in sync once it has
//! caught up, and the leader takes one out that lags.

use std::collections::BTreeSet;

use fastrand::Rng;
use purgatory::Rule;

use super::{Acked, Entry, Log, NODES, Network, Node, Protocol, leader::Leader};

/// A mistake of the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// It lets a follower in that has not caught up, by beginning a set with it.
    JoinerBelowWatermark,
    /// It counts fetches of earlier epochs.
    ReportsOfNoEpoch,
    /// It takes a follower out before the controller has agreed.
    LeavesAlone,
    /// It lets a follower in some time after the controller has.
    JoinsAfterController,
}

#[derive(Clone, Debug)]
enum Message {
    /// From the controller.
    Led {
        epoch: u64,
        leader: Node,
        in_sync: BTreeSet<Node>,
    },
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
    /// The log of the leader has no record of this epoch before this end.
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

/// The log and the epoch are on disk.
struct Broker {
    log: Log,
    epoch: u64,
    role: Role,
    leader: Leader,
    late_joins: Vec<(Node, u64)>,
}

struct Controller {
    epoch: u64,
    leader: Node,
    in_sync: BTreeSet<Node>,
}

pub(super) struct Cluster {
    brokers: Vec<Broker>,
    controller: Controller,
    network: Network<Message>,
    acked: Vec<Acked>,
    min_in_sync: usize,
    /// How often there is trouble: of 960 steps and these.
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
            late_joins: Vec::new(),
        };
        let min_in_sync = random.usize(1..4);
        let unrest = [4, 16, 64][random.usize(..3)];
        let mut cluster = Cluster {
            brokers: (0..NODES).map(broker).collect(),
            controller: Controller {
                epoch: 0,
                leader: 0,
                in_sync: (0..NODES).collect(),
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
            840..880 => self.shrink(node),
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
            for &member in &self.controller.in_sync {
                if !acked.is_in(&self.brokers[member].log) {
                    let epoch = self.controller.epoch;
                    return Some(format!(
                        "{acked:?} is not in the log of {member}, in sync in epoch {epoch}"
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

/// The controller.
impl Cluster {
    fn is_up(&self, node: Node) -> bool {
        self.brokers[node].role != Role::Down
    }

    /// Elects a leader of the replicas in sync that are up.
    fn elect(&mut self) {
        let up = |node: &Node| self.is_up(*node);
        let candidates: Vec<Node> = self.controller.in_sync.iter().copied().filter(up).collect();
        if candidates.is_empty() {
            return;
        }
        self.controller.leader = candidates[self.random.usize(..candidates.len())];
        self.controller.epoch += 1;
        if self.random.bool() {
            // It knows already who is down.
            self.controller.in_sync = candidates.into_iter().collect();
        }
        for node in 0..NODES {
            self.tell(node);
        }
    }

    /// Tells a broker who leads. This may come late, or never.
    fn tell(&mut self, node: Node) {
        let led = Message::Led {
            epoch: self.controller.epoch,
            leader: self.controller.leader,
            in_sync: self.controller.in_sync.clone(),
        };
        self.network.send(&mut self.random, None, node, led);
    }

    /// Takes a broker that is down out of the replicas in sync, but for the leader: another one has to
    /// be elected first.
    fn fence(&mut self, node: Node) {
        if !self.is_up(node) && node != self.controller.leader {
            self.controller.in_sync.remove(&node);
        }
    }

    /// True if the controller hears this leader, and takes it for one.
    fn agrees(&self, leader: Node) -> bool {
        !self.network.is_cut[leader] && self.controller.epoch == self.brokers[leader].epoch
    }
}

/// Brokers.
impl Cluster {
    /// A broker that takes itself for the leader, most times; there may be two.
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
        broker.leader.report(Some(epoch), node, end as u64);
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
        self.network
            .send(&mut self.random, Some(node), leader, fetch);
    }

    fn deliver(&mut self) {
        let Some((to, message)) = self.network.deliver(&mut self.random) else {
            return;
        };
        if !self.is_up(to) {
            return;
        }
        match message {
            Message::Led {
                epoch,
                leader,
                in_sync,
            } => self.led(to, epoch, leader, &in_sync),
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

    /// A broker learns of an epoch. The waits of the last one stay where they are.
    fn led(&mut self, node: Node, epoch: u64, leader: Node, in_sync: &BTreeSet<Node>) {
        let broker = &mut self.brokers[node];
        if epoch <= broker.epoch {
            return;
        }
        broker.epoch = epoch;
        broker.late_joins.clear();
        if leader != node {
            broker.role = Role::Follower(Some(leader));
            return;
        }
        broker.role = Role::Leader;
        let own_end = broker.log.len() as u64;
        let mut members = Vec::new();
        for &member in in_sync {
            // A follower has not told this leader what it has.
            let end = if member == node { own_end } else { 0 };
            members.push((member, end));
        }
        let rule = Rule::all().floor(self.min_in_sync);
        broker.leader.begin(epoch, &members, rule);
    }

    /// A follower says what it has, and asks for more.
    fn fetched_by(
        &mut self,
        node: Node,
        epoch: u64,
        (from, end, last): (Node, usize, Option<u64>),
    ) {
        // 1. It follows this leader.
        let broker = &mut self.brokers[node];
        if broker.role != Role::Leader {
            return;
        }
        if broker.epoch != epoch {
            if self.mistake == Some(Mistake::ReportsOfNoEpoch) {
                broker.leader.report(None, from, end as u64);
            }
            return;
        }
        // 2. Its log is the beginning of the leader's.
        let at = end.checked_sub(1).map(|before| broker.log.get(before));
        if at.is_some_and(|entry| entry.map(|entry| entry.epoch) != last) {
            let diverges = Message::Diverges { epoch, end, last };
            self.network
                .send(&mut self.random, Some(node), from, diverges);
            return;
        }
        // 3. So this is its report.
        let entries: Log = broker.log[end..].iter().copied().take(3).collect();
        broker.leader.report(Some(epoch), from, end as u64);
        if !self.controller.in_sync.contains(&from) {
            self.expand(node, from, end as u64);
        }
        let fetched = Message::Fetched {
            epoch,
            end,
            entries,
        };
        self.network
            .send(&mut self.random, Some(node), from, fetched);
    }

    /// Lets a follower in, if it has caught up: the leader first, then the controller.
    fn expand(&mut self, node: Node, from: Node, end: u64) {
        if !self.agrees(node) {
            return;
        }
        let epoch = self.brokers[node].epoch;
        let rule = Rule::all().floor(self.min_in_sync);
        let leader = &self.brokers[node].leader;
        match self.mistake {
            Some(Mistake::JoinerBelowWatermark) if !leader.members().contains(&from) => {
                let mut members = leader.sets.members(&());
                members.push((from, end));
                leader.sets.remove(&());
                leader.begin(epoch, &members, rule);
            }
            Some(Mistake::JoinsAfterController) if !leader.members().contains(&from) => {
                // It asks whether it could let it in.
                if !leader.join(from, end) {
                    return;
                }
                leader.leave(from);
                self.brokers[node].late_joins.push((from, end));
            }
            _ if leader.members().contains(&from) => {
                // The controller took it out; this leader did not. It has to have caught up.
                if leader.present().replace(&from, from, end).is_err() {
                    return;
                }
            }
            _ => {
                if !leader.join(from, end) {
                    return;
                }
            }
        }
        self.controller.in_sync.insert(from);
    }

    /// Lets a follower in that the controller has let in before: a mistake.
    fn join_late(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        if let Some((from, end)) = broker.late_joins.pop() {
            if broker.role == Role::Leader {
                broker.leader.join(from, end);
            }
        }
    }

    /// Takes a follower out that lags: the controller first, then the leader.
    fn shrink(&mut self, node: Node) {
        let node = self.leader_or(node);
        if self.brokers[node].role != Role::Leader {
            return;
        }
        let agrees = self.agrees(node);
        let is_alone = self.mistake == Some(Mistake::LeavesAlone);
        if !agrees && !is_alone {
            return;
        }
        let members: Vec<Node> = self.brokers[node].leader.members().into_iter().collect();
        let member = members[self.random.usize(..members.len())];
        let is_well = self.is_up(member) && !self.network.is_cut[member];
        if member == node || is_well && self.random.u8(..8) > 0 {
            return;
        }
        if agrees {
            self.controller.in_sync.remove(&member);
        }
        self.brokers[node].leader.leave(member);
    }

    /// The waits go with the memory.
    fn crash(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        broker.role = Role::Down;
        broker.leader = Leader::new();
        broker.late_joins.clear();
    }

    fn restart(&mut self, node: Node) {
        let broker = &mut self.brokers[node];
        if broker.role == Role::Down {
            broker.role = Role::Follower(None);
        }
    }
}
