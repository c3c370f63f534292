//! Consumer groups, after Kafka's classic group coordinator: the members of a group join, the
//! coordinator chooses one as their leader, the leader assigns the partitions, and each member
//! learns its own from its sync. A member that joins, leaves or falls silent starts this again: a
//! rebalance.
//!
//! What waits is parked, each kind in a purgatory of its own on the broker's timer (`coordinator`):
//! a rebalance for its members, a sync for the leader's assignment, a session for its end.
//!
//! Left out: static members (JoinGroup stops below the versions that have them), KIP-848's
//! protocol, describing and deleting groups. Offsets are kept in memory only, and for as long as
//! the broker runs. The leader's preference decides between assignors, where Kafka counts the
//! members' votes.

mod coordinator;
mod offsets;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use coordinator::{GroupCoordinator, find_coordinator};
