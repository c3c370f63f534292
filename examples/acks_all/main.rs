//! acks=all: a produce is answered once every in-sync replica has its record, or when its timeout
//! fires. Here a leader and two followers are threads of one process.
//!
//! There are two ways to wait, and each is all that a broker writes for it: [`kafka`] with
//! [`high_watermark`], as Kafka does it, and [`replica_sets`]. `--by` chooses one. The way of a
//! record:
//! 1. [`produce`](AcksAll::produce) appends it to the log of a [`Partition`], and waits until the
//!    high watermark has passed it.
//! 2. Each follower fetches it, writes it to a log of its own, and says so with its next
//!    [fetch](AcksAll::fetch), which may advance the high watermark: the event. A follower that
//!    [falls out](AcksAll::falls_out) of the in-sync set may advance it, too: the produces that
//!    waited for that follower go on with the replicas that are left.
//! 3. The event completes the produces that it reaches, or the timing wheel expires them first. A
//!    [new leader](AcksAll::change_leader) ends those of the last one.
//!
//! [`partition`] has the logs. The [`verifier`] is the rest of the program: producers, followers
//! (one can stall, fall out and join again, one can become the leader), and the audit of every
//! answer.
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
    /// Every in-sync replica has it.
    Acknowledged,
    /// The leader has it; not every in-sync follower has written it in time.
    TimedOut,
    /// The leader has changed, and the new one may lack it. Kafka: `NOT_LEADER_OR_FOLLOWER`.
    LeaderChanged,
    /// The leader was shut down meanwhile.
    Cancelled,
    /// The purgatory would not take it.
    Refused(WaitError),
}

/// The leader of all partitions, and where the produces wait for its followers.
trait AcksAll: Observed + Send + Sync {
    /// Serves a producer's request: appends the record to its partition, and answers when every
    /// in-sync replica has it, or after `timeout`.
    fn produce(&self, request: Request, record: Record, timeout: Duration);

    /// Notes a follower's fetch, which says that it has everything below this end of its log. One
    /// that fell out joins the in-sync set again if it has caught up. Returns true if it is in the
    /// set.
    fn fetch(&self, from: &Partition, follower: usize, has: LogEnd) -> bool;

    /// Takes a follower that has fallen behind out of a partition's in-sync set. Returns how many
    /// produces waited for it alone: they are acknowledged by the replicas that are left.
    fn falls_out(&self, of: &Partition, follower: usize) -> usize;

    /// Makes the [next leader](partition::NEXT_LEADER) the leader, on its own thread. What it lacks
    /// is taken back, and no produce of the last leader is acknowledged any more.
    fn change_leader(&self, of: &Partition) -> Change;
}

fn main() -> ExitCode {
    verifier::main()
}
