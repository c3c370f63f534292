//! The command line. Nearly every bound of the broker is an option with a default.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use example_support::{between, number};

use crate::partition::{FOLLOWER_IDS, LEADER_ID};
use crate::topics::TopicConfig;

const EXIT_CODES: &str = "\
Ctrl-C or SIGTERM answers waiting requests, prints counts and ends. The exit code is 0 then, 1 when
it cannot run or acknowledged a record too early, 2 when an argument is wrong.";

/// A small broker that speaks the Kafka wire protocol, to try the purgatory with real clients.
///
/// One leader and two followers run inside this process, or each in one of its own: `broker
/// cluster`. An acks=all produce waits in the purgatory until the in-sync replicas have it, or
/// until the client's own timeout: REQUEST_TIMED_OUT. A fetch waits until there is enough to read.
/// Topics are made on first use and kept in memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "broker", version, after_help = EXIT_CODES, allow_negative_numbers = true)]
pub struct Args {
    /// Address to listen on; port 0 picks a free one (no authentication: keep it on loopback)
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9092")]
    pub listen: SocketAddr,

    /// Settings of every topic.
    #[command(flatten)]
    pub topic: TopicConfig,

    /// Partitions the broker makes at most, over all topics; followers fetch them all at once
    #[arg(long, default_value_t = 1000, value_parser = number::<u16>(1..=32_000))]
    pub max_partitions: u16,

    /// The followers fetch nothing: acks=all times out, and is refused once they have left the
    /// in-sync set
    #[arg(long)]
    pub pause_followers: bool,

    /// Time a follower takes between two fetches, so that an acks=all produce is seen to wait for
    /// it: its next fetch says that it has the records
    // Less than the time after which the leader closes an idle connection.
    #[arg(long, default_value = "10ms")]
    #[arg(allow_hyphen_values = true, value_parser = between("0s", "5m"))]
    pub follower_interval: Duration,

    /// A follower not caught up for this many milliseconds leaves the in-sync set
    #[arg(long, default_value_t = 30_000, value_parser = number::<u64>(10..=86_400_000))]
    pub replica_lag_time_max_ms: u64,

    /// Run a cluster: this leader, and two followers as processes of their own, which fetch from it
    /// over the wire
    #[arg(value_name = "cluster", value_parser = ["cluster"])]
    command: Option<String>,

    /// Run one node of a cluster of processes: 1 leads, 2 and 3 follow
    #[arg(long, requires = "leader", value_parser = number::<i32>(1..=3))]
    node: Option<i32>,

    /// The cluster: `1=IP:PORT,2,3`. Followers serve no clients, so only the leader has an address
    #[arg(long = "cluster", value_name = "LIST", requires = "node", value_parser = leader_of)]
    leader: Option<SocketAddr>,

    /// Largest request in bytes (Kafka's default is 100 MiB); a larger one closes its connection. A
    /// follower's fetch names every partition, so there is a least
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    #[arg(value_parser = number::<u32>(10 << 20..=1 << 30))]
    pub max_frame: u32,

    /// Connections open at a time; one more is closed at once. Followers in this process have places of
    /// their own, those of a cluster do not
    #[arg(long, value_name = "N", default_value_t = 4096)]
    #[arg(value_parser = number::<usize>(1..=1_000_000))]
    pub max_connections: usize,

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub metrics_addr: SocketAddr,

    /// Log every connection and how every produce ended
    #[arg(long, short)]
    pub verbose: bool,
}

/// The role of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// A leader that listens at this address, with its followers inside this process.
    AllInOne(SocketAddr),
    /// The parent of a cluster's nodes, which are processes of their own.
    Cluster,
    /// The leader of a cluster, which listens at its address in the list of nodes.
    Leader(SocketAddr),
    /// A follower of a cluster.
    Follower {
        /// Its number in the list.
        id: i32,
        /// The address of its leader.
        leader: SocketAddr,
    },
}

impl Args {
    /// Returns the role that the arguments ask for.
    pub fn role(&self) -> Role {
        // A node has both of its options; any other role has neither.
        match (self.node, self.leader) {
            (Some(LEADER_ID), Some(listen)) => Role::Leader(listen),
            (Some(id), Some(leader)) => Role::Follower { id, leader },
            _ if self.command.is_some() => Role::Cluster,
            _ => Role::AllInOne(self.listen),
        }
    }

    /// Returns true for a node that `broker cluster` has started: its arguments include that word.
    pub(crate) fn is_started_by_cluster(&self) -> bool {
        self.command.is_some() && self.node.is_some()
    }

    /// Returns the followers that run inside this process.
    pub(crate) fn followers_here(&self) -> &'static [i32] {
        match self.role() {
            Role::AllInOne(_) => &FOLLOWER_IDS,
            Role::Cluster | Role::Leader(_) | Role::Follower { .. } => &[],
        }
    }
}

/// Parses the leader's address from a list of all three nodes.
fn leader_of(text: &str) -> Result<SocketAddr, String> {
    let leader = text
        .strip_prefix("1=")
        .and_then(|leader| leader.strip_suffix(",2,3"));
    let expected = "expected three nodes: 1=IP:PORT,2,3";
    let address = leader.ok_or(expected)?;
    address.parse().map_err(|_| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_told_by_word_and_node() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 9092));
        let leader = SocketAddr::from(([127, 0, 0, 1], 1234));
        let node = |id| ["--node", id, "--cluster=1=127.0.0.1:1234,2,3"];
        for (arguments, role) in [
            (&[][..], Role::AllInOne(listen)),
            (&["cluster"], Role::Cluster),
            (&node("1"), Role::Leader(leader)),
            (&node("3"), Role::Follower { id: 3, leader }),
        ] {
            let args = Args::parse_from([&["broker"], arguments].concat());
            assert_eq!(args.role(), role, "{arguments:?}");
            assert!(!args.is_started_by_cluster(), "{arguments:?}");
        }
        let started = Args::parse_from([&["broker"], &node("2")[..], &["cluster"]].concat());
        assert_eq!(started.role(), Role::Follower { id: 2, leader });
        assert!(started.is_started_by_cluster());
    }

    #[test]
    fn bad_arguments_are_refused_with_their_bounds() {
        example_support::assert_parsed::<Args>(&[
            ("--partitions=1000", ""),
            ("--partitions=0", "from 1 to 1000"),
            ("--partitions=-1", "from 1 to 1000"),
            ("--min-insync-replicas=4", "from 1 to 3"),
            ("--message-max-bytes=0", "from 1 to 1073741824"),
            ("--max-log=18446744073709551615", ""),
            ("--max-log=0", "from 1 to 18446744073709551615"),
            ("--max-partitions=32001", "from 1 to 32000"),
            ("--follower-interval=0s", ""),
            ("--follower-interval=-1s", "from 0s to 5m"),
            ("--follower-interval=1ns", ""),
            ("--follower-interval=5m", ""),
            ("--follower-interval=5m 1ns", "from 0s to 5m"),
            ("--follower-interval=18446744073709551615s", "from 0s to 5m"),
            ("--replica-lag-time-max-ms=9", "from 10 to 86400000"),
            (
                "--replica-lag-time-max-ms=18446744073709551615",
                "from 10 to 86400000",
            ),
            ("--max-frame=1", "from 10485760 to 1073741824"),
            ("--max-connections=0", "from 1 to 1000000"),
            (
                "--max-connections=18446744073709551616",
                "from 1 to 1000000",
            ),
            ("--listen=localhost", "IP:PORT"),
            ("--listen=127.0.0.1:65536", "IP:PORT"),
            ("--node=4", "from 1 to 3"),
            ("--cluster=2=127.0.0.1:1,3", "1=IP:PORT,2,3"),
            ("--cluster=1=nowhere,2,3", "1=IP:PORT,2,3"),
            ("clusters", "cluster"),
        ]);
    }
}
