// The leader of a partition whose in-sync set a controller keeps, from which that elects the next
// leader. The leader proposes another set (Kafka's AlterPartition). Until it hears what became of
// that, it counts each replica that the controller may have in sync. While the controller has too few,
// it acknowledges nothing, since that may elect one that has left (KIP-966).

use std::{collections::BTreeSet, time::Duration};

use purgatory::{ReplicaSets, Rule, WaitError};

const LAG_MAX: Duration = Duration::from_secs(10); // replica.lag.time.max.ms

pub type Replica = &'static str;

/// An in-sync set: the one that the controller has, or one that a leader proposes.
#[derive(Clone, Debug, PartialEq)]
pub struct InSync {
    pub leader_epoch: u64,
    /// The version of the controller's set, Kafka's partition epoch. A proposal has that of the set
    /// from which it goes.
    pub version: u64,
    pub replicas: BTreeSet<Replica>,
}

impl InSync {
    /// The controller's part: it takes a proposal of the present leader for the present version, and
    /// answers with what it has then. So of all proposals for a version it takes one.
    pub fn alter(&mut self, proposed: InSync) -> InSync {
        let goes_from = (proposed.leader_epoch, proposed.version);
        if goes_from == (self.leader_epoch, self.version) {
            self.version += 1;
            self.replicas = proposed.replicas;
        }
        self.clone()
    }
}

/// *Larger*: the replicas that count are those of the last set that the controller has confirmed, and
/// of each proposal since. One that is to come in joins before it is proposed; one that is to go
/// leaves when a later version is confirmed without it.
pub struct Leader {
    /// The log end of each replica that counts. Handlers have clones, and wait in the epoch.
    pub logs: ReplicaSets<(), Replica>,
    confirmed: InSync,
    /// A set was proposed since, which the controller may yet take.
    has_proposed: bool,
    min_in_sync: usize,
}

/// *Enough*: while the controller has fewer than these, no number of members is enough. Who is to come
/// in does not help yet.
fn enough(confirmed: &InSync, min_in_sync: usize) -> Rule {
    let has_enough = confirmed.replicas.len() >= min_in_sync;
    Rule::all().floor(if has_enough { min_in_sync } else { usize::MAX })
}

impl Leader {
    /// Begins the epoch of this leader, as the controller says. What the others have of its log, they
    /// report.
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
            logs,
            confirmed,
            has_proposed: false,
            min_in_sync,
        })
    }

    /// A replica has come this far in the log. One that does not count yet joins as soon as it has
    /// caught up. Returns how many waits this has ended.
    pub fn fetched(&self, replica: Replica, offset: u64) -> Result<usize, WaitError> {
        let led = self.logs.in_epoch(&(), self.confirmed.leader_epoch);
        let counted = match led.report(&replica, offset) {
            Err(WaitError::NoMember) => led.join(replica, offset),
            reported => reported,
        };
        match counted {
            // It goes on catching up; one that has lost its log, until it leaves as others that lag.
            Err(WaitError::Behind { .. }) => Ok(0),
            counted => counted,
        }
    }

    /// The set to propose: the replicas that count, without those that lag for too long. `None` if the
    /// controller has it, and may take no other. Send it when a replica has joined, and at each half of
    /// the limit, until it is answered: the last proposal says what is to be, whatever those before said.
    pub fn proposal(&mut self) -> Option<InSync> {
        let members = self.logs.members(&());
        let counted: BTreeSet<Replica> = members.iter().map(|of| of.0).collect();
        let mut replicas = counted.clone();
        for (replica, _, lagged_for) in self.logs.lagging(&()) {
            if lagged_for >= LAG_MAX {
                replicas.remove(replica);
            }
        }
        // One that was proposed, and lags now, is to go as any other. A leader no more counts none.
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

    /// Makes the set what the controller says that it has: in an answer, or since it changed the set
    /// itself. Returns how many waits this has ended.
    ///
    /// What it said before says nothing of the proposals since. So an answer that is late, comes
    /// twice, or refuses a proposal changes nothing: another copy may yet be taken.
    pub fn confirmed(&mut self, said: InSync) -> Result<usize, WaitError> {
        let is_later = said.version > self.confirmed.version;
        if said.leader_epoch != self.confirmed.leader_epoch || !is_later {
            return Ok(0);
        }
        let led = self.logs.in_epoch(&(), said.leader_epoch);
        // Before those leave that hold the watermark, since it has to stay if too few are left.
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

    // "a" stops. It counts until the controller has it no more.
    let second = produce(&leader, 2);
    leader.fetched("leader", 2)?;
    leader.fetched("b", 2)?;
    assert_eq!(leader.proposal(), None);
    timer.advance(LAG_MAX);
    let without_a = leader.proposal().unwrap();
    let answer = controller.alter(without_a.clone());
    assert_eq!(controller.alter(without_a), answer); // asked twice, it says the same
    assert_eq!(leader.confirmed(answer)?, 1);
    assert_eq!(second.wait_blocking(), Ok(2));
    Ok(())
}
