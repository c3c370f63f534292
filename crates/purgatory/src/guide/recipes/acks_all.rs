// Produces of one partition that are answered once every in-sync replica has their record. The
// set changes while they wait, and so does the leader.

use std::{sync::Mutex, time::Duration};

use purgatory::{ReplicaSets, Rule, WaitError, WaitFuture};

const TIMEOUT: Duration = Duration::from_secs(30);
const LAG_MAX: Duration = Duration::from_secs(10); // replica.lag.time.max.ms
const MIN_IN_SYNC: usize = 2; // min.insync.replicas

pub type Replica = &'static str;

pub struct Partition {
    pub this: Replica,                  // the leader, one of the replicas
    pub log: Mutex<Vec<&'static str>>,  // of this replica
    pub logs: ReplicaSets<(), Replica>, // the log end of each replica that is in sync
}

impl Partition {
    /// A leader begins its epoch. Its log ends at `log_end`, and the in-sync replicas have as much
    /// of it as `in_sync` says, as far as the leader knows. The produces of the last leader are
    /// cancelled.
    pub fn lead(
        &self,
        epoch: u64,
        in_sync: &[(Replica, u64)],
        log_end: u64,
    ) -> Result<usize, WaitError> {
        let in_sync = in_sync.iter().copied();
        let rule = Rule::all().floor(MIN_IN_SYNC);
        self.logs.set(&(), epoch, in_sync, log_end, rule)
    }

    /// The leader of this epoch appends a record, and returns the future of its acknowledgement.
    pub fn append(&self, epoch: u64, record: &'static str) -> Result<WaitFuture<u64>, WaitError> {
        // 1. With too few replicas in sync, nothing is acknowledged: append nothing.
        if let Some(below) = self.logs.below_floor(&()) {
            return Err(WaitError::Cancelled(below));
        }
        // 2. Report the new end under the log's lock, since the last report counts. If another epoch
        //    has begun, the report is refused and the log stays as it is.
        let mut log = self.log.lock().unwrap();
        let end = log.len() as u64 + 1;
        self.logs.in_epoch(&(), epoch).report(&self.this, end)?;
        log.push(record);
        Ok(self.produce(epoch, end))
    }

    /// A future of the high watermark, ready once it has passed the record of this epoch.
    pub fn produce(&self, epoch: u64, required_offset: u64) -> WaitFuture<u64> {
        let led = self.logs.in_epoch(&(), epoch);
        led.wait_for(required_offset, TIMEOUT)
    }

    /// A replica has come this far in the log of this epoch's leader, as its fetch of this epoch says.
    /// A replica that is not in sync joins as soon as it has caught up.
    pub fn fetched(&self, epoch: u64, replica: Replica, offset: u64) -> Result<usize, WaitError> {
        let led = self.logs.in_epoch(&(), epoch);
        match led.report(&replica, offset) {
            Err(WaitError::NoMember) => match led.join(replica, offset) {
                Err(WaitError::Behind { .. }) => Ok(0), // it goes on catching up
                Err(WaitError::IsMember) => Ok(0),      // it joined by a fetch meanwhile
                joined => joined,
            },
            // The fetch comes late, or the replica has lost records that it had. It holds the
            // others up until its next fetch, or until it is taken out.
            Err(WaitError::Behind { .. }) => Ok(0),
            reported => reported,
        }
    }

    /// Takes replicas out of the set that have lagged behind this epoch's leader for too long. Call
    /// it every `LAG_MAX / 2`, but not right after a pause of this process, in which no replica could
    /// fetch.
    pub fn shrink(&self, epoch: u64) -> Result<usize, WaitError> {
        let led = self.logs.in_epoch(&(), epoch);
        let mut answered = 0;
        for (replica, _, lagged_for) in self.logs.lagging(&()) {
            if lagged_for >= LAG_MAX && replica != self.this {
                answered += match led.leave(&replica) {
                    Err(WaitError::NoMember) => 0, // it has left meanwhile
                    left => left?,
                };
            }
        }
        Ok(answered)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::timer_core::ManualTimer;

    let timer = ManualTimer::new(); // in a program: none, and `ReplicaSets::new`
    let orders = Partition {
        this: "leader",
        log: Mutex::default(),
        logs: ReplicaSets::on(&timer, "orders-0")?,
    };
    orders.lead(1, &[("leader", 0), ("a", 0), ("b", 0)], 0)?;
    let first = orders.append(1, "first")?;
    let second = orders.append(1, "second")?;
    orders.fetched(1, "a", 2)?;
    assert_eq!(orders.fetched(1, "b", 1)?, 1);
    assert_eq!(first.wait_blocking(), Ok(1));
    // "b" has lost its disk: it is taken out, the others suffice, and it comes back once it has all.
    assert_eq!(orders.fetched(1, "b", 0)?, 0);
    assert_eq!(orders.shrink(1)?, 0);
    timer.advance(LAG_MAX);
    assert_eq!(orders.shrink(1)?, 1);
    assert_eq!(second.wait_blocking(), Ok(2));
    assert_eq!(orders.fetched(1, "b", 1)?, 0);
    assert_eq!(orders.logs.members(&()).len(), 2);
    orders.fetched(1, "b", 2)?;
    assert_eq!(orders.logs.members(&()).len(), 3);
    Ok(())
}
