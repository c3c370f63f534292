// The leader of a partition. A controller keeps the in-sync set and elects the next leader from it.
// The leader proposes other sets (Kafka's AlterPartition). Until it hears the answer, it counts
// each replica that the controller may have in sync. While the controller's set is too small, the
// leader acknowledges nothing, since the controller may elect a replica that has left (KIP-966).

use std::{collections::BTreeSet, time::Duration};

use purgatory::{ReplicaSets, Rule, WaitError};

const LAG_MAX: Duration = Duration::from_secs(10); // replica.lag.time.max.ms

pub type Replica = &'static str;

/// An in-sync set: the one that the controller has, or one that a leader proposes.
#[derive(Clone, Debug, PartialEq)]
pub struct InSync {
    pub leader_epoch: u64,
    /// The version of the controller's set, Kafka's partition epoch. A proposal has the version of
    /// the set that it changes.
    pub version: u64,
    pub replicas: BTreeSet<Replica>,
}

impl InSync {
    /// The controller's part: it takes a proposal of the present leader for the present version,
    /// and answers with the set that it then has. So it takes one of all proposals for a version.
    pub fn alter(&mut self, proposed: InSync) -> InSync {
        let goes_from = (proposed.leader_epoch, proposed.version);
        if goes_from == (self.leader_epoch, self.version) {
            self.version += 1;
            self.replicas = proposed.replicas;
        }
        self.clone()
    }
}

/// *Larger*: the replicas that count are those of the last set that the controller has confirmed,
/// and of each proposal since. A replica to be added joins before it is proposed; a replica to be
/// removed leaves when a later version is confirmed without it.
pub struct Leader {
    this: Replica,
    /// The log end of each replica that counts. Handlers have clones, and wait in the epoch.
    pub logs: ReplicaSets<(), Replica>,
    confirmed: InSync,
    /// A set was proposed since then, and the controller may yet take it.
    has_proposed: bool,
    min_in_sync: usize,
}

/// *Enough*: while the controller has fewer than these, no number of members is enough. Replicas
/// that are only proposed do not help yet.
fn enough(confirmed: &InSync, min_in_sync: usize) -> Rule {
    let has_enough = confirmed.replicas.len() >= min_in_sync;
    Rule::all().floor(if has_enough { min_in_sync } else { usize::MAX })
}

impl Leader {
    /// Begins the epoch of this leader, as the controller says. The other replicas report how much
    /// of its log they have.
    pub fn lead(
        logs: ReplicaSets<(), Replica>,
        this: Replica,
        log_end: u64,
        confirmed: InSync,
        min_in_sync: usize, // min.insync.replicas
    ) -> Result<Leader, WaitError> {
        let has = |replica| if replica == this { log_end } else { 0 };
        let in_sync = confirmed.replicas.iter().map(|&one| (one, has(one)));
        let rule = enough(&confirmed, min_in_sync);
        logs.set(&(), confirmed.leader_epoch, in_sync, log_end, rule)?;
        Ok(Leader {
            this,
            logs,
            confirmed,
            has_proposed: false,
            min_in_sync,
        })
    }

    /// A replica has come this far in the log. If it does not count yet, it joins as soon as it has
    /// caught up. Returns how many waits this has ended.
    pub fn fetched(&self, replica: Replica, offset: u64) -> Result<usize, WaitError> {
        let led = self.logs.in_epoch(&(), self.confirmed.leader_epoch);
        let counted = match led.report(&replica, offset) {
            Err(WaitError::NoMember) => led.join(replica, offset),
            reported => reported,
        };
        match counted {
            // It goes on catching up; if it has lost its log, it leaves once it has lagged for too
            // long.
            Err(WaitError::Behind { .. }) => Ok(0),
            counted => counted,
        }
    }

    /// The set to propose: the replicas that count, without those that lag for too long. `None` if
    /// the controller has this set and may take no other. Send it when a replica has joined, and
    /// every `LAG_MAX / 2`, until it is answered: the last proposal states the set that is wanted,
    /// though the controller may take an earlier one.
    pub fn proposal(&mut self) -> Option<InSync> {
        let members = self.logs.members(&());
        let counted: BTreeSet<Replica> = members.iter().map(|of| of.0).collect();
        let mut replicas = counted.clone();
        for (replica, _, lagged_for) in self.logs.lagging(&()) {
            if lagged_for >= LAG_MAX && replica != self.this {
                replicas.remove(replica);
            }
        }
        // A proposed replica that lags by now is removed as any other. A former leader counts none.
        let is_confirmed = replicas == counted && counted == self.confirmed.replicas;
        if is_confirmed && !self.has_proposed || counted.is_empty() {
            return None;
        }
        self.has_proposed = true;
        Some(InSync {
            replicas,
            ..self.confirmed
        })
    }

    /// Takes over the set that the controller says it has, in an answer or after a change of its
    /// own. Returns how many waits this has ended.
    ///
    /// A version that the leader knows already says nothing about the proposals since. So an answer
    /// that is late, comes twice, or refuses a proposal changes nothing: another copy of the proposal
    /// may yet be taken.
    pub fn confirmed(&mut self, said: InSync) -> Result<usize, WaitError> {
        let is_later = said.version > self.confirmed.version;
        if said.leader_epoch != self.confirmed.leader_epoch || !is_later {
            return Ok(0);
        }
        let led = self.logs.in_epoch(&(), said.leader_epoch);
        // Set the rule before replicas leave that hold the watermark back: it must stay if too few
        // are left.
        let rule = enough(&said, self.min_in_sync);
        let mut ended = led.set_rule(rule)?;
        for (replica, _) in self.logs.members(&()) {
            if !said.replicas.contains(replica) {
                ended += led.leave(&replica)?;
            }
        }
        self.confirmed = said;
        self.has_proposed = false; // for this version
        Ok(ended)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::timer_core::ManualTimer;

    let timer = ManualTimer::new();
    let mut controller = InSync {
        leader_epoch: 1,
        version: 0,
        replicas: BTreeSet::from(["leader", "a"]),
    };
    let logs = ReplicaSets::on(&timer, "orders-0")?;
    let mut leader = Leader::lead(logs, "leader", 0, controller.clone(), 2)?;
    let produce = |leader: &Leader, offset| {
        let led = leader.logs.in_epoch(&(), 1);
        led.wait_for(offset, Duration::from_secs(30))
    };

    // "b" has caught up. It counts before the controller knows it.
    leader.fetched("b", 0)?;
    let with_b = leader.proposal().unwrap();
    let first = produce(&leader, 1);
    leader.fetched("leader", 1)?;
    assert_eq!(leader.fetched("a", 1)?, 0);
    assert_eq!(leader.fetched("b", 1)?, 1);
    assert_eq!(first.wait_blocking(), Ok(1));
    leader.confirmed(controller.alter(with_b))?;

    // "a" stops. It counts until the controller has taken it out.
    let second = produce(&leader, 2);
    leader.fetched("leader", 2)?;
    leader.fetched("b", 2)?;
    assert_eq!(leader.proposal(), None);
    timer.advance(LAG_MAX);
    let without_a = leader.proposal().unwrap();
    let answer = controller.alter(without_a.clone());
    assert_eq!(controller.alter(without_a), answer); // asked twice, it answers the same
    assert_eq!(leader.confirmed(answer)?, 1);
    assert_eq!(second.wait_blocking(), Ok(2));
    Ok(())
}
