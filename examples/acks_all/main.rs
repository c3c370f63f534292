//! acks=all: a produce is answered once every in-sync replica has its record, or when its timeout
//! fires. Here a leader and two followers are threads of one process.
//!
//! There are two ways to wait, each with all the code that a broker needs for it: [`kafka`] with
//! [`high_watermark`], as Kafka does it, and [`replica_sets`]. `--by` chooses one. The steps:
//! 1. [`produce`](AcksAll::produce) appends a record to the log of a [`Partition`], and waits until
//!    the high watermark has passed it.
//! 2. Each follower fetches the record, writes it to its own log, and reports that with its next
//!    [fetch](AcksAll::fetch), which may advance the high watermark: the event. So may a follower
//!    that [falls out](AcksAll::falls_out) of the in-sync set: the produces that waited for it go
//!    on with the remaining replicas.
//! 3. The event completes the produces that the high watermark has reached, unless the timing wheel
//!    has expired them. A [new leader](AcksAll::change_leader) ends the previous leader's produces.
//!
//! [`partition`] holds the logs. The [`verifier`] is the rest of the program: producers, followers
//! (one can stall, fall out and join again; the other can become the leader), and the audit of
//! every answer.
//!
//! `cargo run --release --example acks_all -- --help`

mod high_watermark;
mod kafka;
mod partition;
mod replica_sets;
mod verifier;

use std::{process::ExitCode, time::Duration};

use purgatory::WaitError;

use partition::{Change, LogEnd, Partition, Record};
use verifier::{load::Request, watch::Observed};

/// The answer to a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Every in-sync replica has the record.
    Acknowledged,
    /// The leader has the record; not every in-sync follower wrote it in time.
    TimedOut,
    /// The leader has changed; the new one may lack the record. Kafka: `NOT_LEADER_OR_FOLLOWER`.
    LeaderChanged,
    /// The leader was shut down while the produce waited.
    Cancelled,
    /// The purgatory refused the produce.
    Refused(WaitError),
}

/// The leader of all partitions; produces wait in it for the followers.
trait AcksAll: Observed + Send + Sync {
    /// Serves a producer's request: appends the record to its partition, and answers when every
    /// in-sync replica has it, or after `timeout`.
    fn produce(&self, request: Request, record: Record, timeout: Duration);

    /// Notes a follower's fetch, which says that the follower has every record below the end `has`.
    /// A follower that fell out joins the in-sync set again if it has caught up. Returns true if
    /// the follower is in the set.
    fn fetch(&self, from: &Partition, follower: usize, has: LogEnd) -> bool;

    /// Takes a follower that has fallen behind out of a partition's in-sync set. Returns the number
    /// of produces that waited for it alone; the remaining replicas acknowledge them.
    fn falls_out(&self, of: &Partition, follower: usize) -> usize;

    /// Makes the [next leader](partition::NEXT_LEADER) the leader; called on that follower's
    /// thread. Records that it lacks are taken back, and no produce of the previous leader is
    /// acknowledged any more.
    fn change_leader(&self, of: &Partition) -> Change;
}

fn main() -> ExitCode {
    verifier::main()
}
