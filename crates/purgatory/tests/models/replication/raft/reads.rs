//! Reads of a Raft leader, by the guide's recipe or with a mistake, and leaders that step down.

use std::{pin::Pin, sync::Arc, task::Waker, time::Duration};

use purgatory::{ReplicaSets, WaitError, Watermarks};

use super::{Cluster, Mistake, Role, Server};
use crate::{
    acting,
    replication::{Acked, NODES, Node, guide::read_index, leader::Leader},
};

/// A server's reads. They are in memory, and are lost when it crashes.
pub(super) struct Reads {
    pub(super) server: read_index::Server,
    /// The leader of the last term that this server led.
    leader: Option<Arc<read_index::Leader>>,
    /// The last round of heartbeats that has begun.
    pub(super) round: u64,
    /// The reads under way, each with the last record acknowledged before it came.
    under_way: Vec<(Option<Acked>, Read)>,
}

type Read = Pin<Box<dyn Future<Output = Result<u64, WaitError>>>>;

impl Reads {
    pub(super) fn new(of: &Leader) -> Self {
        Reads {
            server: read_index::Server {
                logs: of.sets.clone(),
                heard: ReplicaSets::on(&of.timer, "heard").unwrap(),
                applied: Watermarks::on(&of.timer, "applied").unwrap(),
            },
            leader: None,
            round: 0,
            under_way: Vec::new(),
        }
    }

    /// Leads a term in this epoch.
    pub(super) fn lead(&mut self, epoch: u64, log_end: usize, mistake: Option<Mistake>) {
        let lead = || {
            let nodes: Vec<Node> = (0..NODES).collect();
            self.server.lead(epoch, &nodes, log_end as u64)
        };
        let leader = lead().or_else(|refused| {
            assert!(mistake.is_some(), "{refused}");
            self.server.logs.remove(&()); // a mistake let it lead without all that was acknowledged
            self.server.heard.remove(&());
            lead()
        });
        self.leader = leader.ok().map(Arc::new);
    }

    fn begin_round(&mut self, node: Node) {
        if let Some(leader) = &self.leader {
            self.round = leader.begin_round(node).unwrap();
        }
    }

    /// Begins a read.
    fn come(&mut self, acked: Option<Acked>, mistake: Option<Mistake>) {
        if let Some(leader) = self.leader.clone() {
            let read = Box::pin(read(leader, self.round, mistake));
            self.under_way.push((acked, read));
        }
    }

    /// Polls the reads; returns those that have ended, with their indices.
    fn ended(&mut self) -> Vec<(Option<Acked>, u64)> {
        let mut ended = Vec::new();
        self.under_way.retain_mut(|(acked, read)| {
            let end = acting::poll(read, Waker::noop());
            if let Some(Ok(index)) = end {
                ended.push((*acked, index));
            }
            end.is_none()
        });
        ended
    }
}

/// Reads by the recipe, or with a mistake.
async fn read(
    leader: Arc<read_index::Leader>,
    last_round: u64,
    mistake: Option<Mistake>,
) -> Result<u64, WaitError> {
    let read_index::Server {
        logs,
        heard,
        applied,
    } = &leader.server;
    let index = logs.watermark(&()).unwrap_or(0);
    let round = match mistake {
        Some(Mistake::ReadsByPastRound) if index >= leader.first_index => 0,
        Some(Mistake::ReadsBeforeOwnEntry) => last_round + 1,
        _ => return leader.read(Duration::MAX).await,
    };
    let led = heard.in_epoch(&(), leader.term);
    led.wait_for(round, Duration::MAX).await?;
    applied.wait_for(&(), index, Duration::MAX).await
}

impl Cluster {
    /// Begins a read at a server that takes itself for the leader, or does work that reads wait
    /// for.
    pub(super) fn read(&mut self) {
        let node = self.random_reads.usize(..NODES);
        let Server { role, reads, .. } = &mut self.servers[node];
        if *role != Role::Leader || self.changes.is_some() {
            return; // reads count all nodes
        }
        let read_index::Server { logs, applied, .. } = &reads.server;
        match self.random_reads.u8(..16) {
            0 => reads.begin_round(node),
            1 => _ = applied.advance(&(), logs.watermark(&()).unwrap_or(0)),
            2 => {
                let acked = self.acked.iter().max_by_key(|acked| acked.end);
                reads.come(acked.copied(), self.mistake);
            }
            _ => {}
        }
        for (acked, index) in reads.ended() {
            if let Some(acked) = acked.filter(|acked| index < acked.end as u64) {
                let lost = format!("{acked:?} is not in a read at {index} that came later");
                self.lost_at_once = Some(lost);
            }
            self.reads += 1;
        }
    }

    /// Lets a leader step down in its term, as if it were cut off. Each follower that led before,
    /// whatever the reason why it no longer does, ends its waits. (A candidate may yet lead its
    /// term.)
    pub(super) fn step_down(&mut self) {
        if !self.tells_waits {
            return;
        }
        let node = self.random_reads.usize(..NODES);
        let server = &mut self.servers[node];
        if server.role == Role::Leader && self.random_reads.u8(..64) == 0 {
            server.role = Role::Follower;
        }
        for server in &self.servers {
            if server.role != Role::Follower || server.reads.leader.is_none() {
                continue;
            }
            let forms = &server.reads.server;
            forms.follow(server.term).unwrap();
            assert!(forms.logs.waits().is_empty() && forms.heard.waits().is_empty());
        }
    }
}
