// Linearizable reads of a Raft leader (read index, section 6.4 of Raft's dissertation): a read sees
// all that any leader committed before the read came. No read is written to the log.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use purgatory::{ReplicaSets, Rule, Timeout, WaitError, Watermarks};

pub type Node = usize;

/// A server and the forms that its reads wait in. All are on one timer.
#[derive(Clone)]
pub struct Server {
    /// The log end of each node: the watermark is the commit index.
    pub logs: ReplicaSets<(), Node>,
    /// The last round of heartbeats that each node has answered.
    pub heard: ReplicaSets<(), Node>,
    /// The index up to which the state machine has applied the log.
    pub applied: Watermarks<()>,
}

impl Server {
    /// Begins a term that this server leads. Its log ends at `log_end`, and it appends an empty
    /// entry next.
    pub fn lead(&self, term: u64, nodes: &[Node], log_end: u64) -> Result<Leader, WaitError> {
        let begin = |sets: &ReplicaSets<(), Node>, start| {
            let nodes = nodes.iter().map(|&node| (node, 0)); // they report to this leader
            sets.set(&(), term, nodes, start, Rule::majority())
        };
        let round = term << 32; // above those of earlier terms
        begin(&self.logs, log_end)?;
        begin(&self.heard, round)?;
        Ok(Leader {
            server: self.clone(),
            term,
            first_index: log_end + 1,
            round: AtomicU64::new(round),
        })
    }

    /// Another server leads this term. Reads of the last term get an error.
    pub fn follow(&self, term: u64) -> Result<(), WaitError> {
        self.logs.follow(&(), term)?;
        self.heard.follow(&(), term)?;
        Ok(())
    }

    /// A node has the log up to this index, as it said in this term. Returns how many waits this has
    /// ended.
    pub fn appended(&self, term: u64, node: Node, index: u64) -> Result<usize, WaitError> {
        self.logs.in_epoch(&(), term).report(&node, index)
    }

    /// A node has answered a round of heartbeats in this term, so it had not voted in a later term
    /// by then. Its answers come in order over one connection. A late answer takes back the rounds
    /// after its own; a read that waits for one of these then waits for the next round.
    pub fn answered(&self, term: u64, node: Node, round: u64) -> Result<usize, WaitError> {
        match self.heard.in_epoch(&(), term).report(&node, round) {
            Err(WaitError::Behind { .. }) => Ok(0), // a late answer to an earlier round
            answered => answered,
        }
    }
}

/// A server in a term that it leads.
pub struct Leader {
    pub server: Server,
    pub term: u64,
    /// The index of the empty entry.
    pub first_index: u64,
    /// The last round of heartbeats that has begun.
    round: AtomicU64,
}

impl Leader {
    /// Begins a round of heartbeats: heartbeats and answers carry its number. This server answers
    /// at once. One round serves all reads that came before it.
    pub fn begin_round(&self, this: Node) -> Result<u64, WaitError> {
        let round = self.round.fetch_add(1, SeqCst) + 1;
        self.server.answered(self.term, this, round)?;
        Ok(round)
    }

    /// Yields an index that the state machine has reached: it may be read now.
    pub async fn read(&self, timeout: Duration) -> Result<u64, WaitError> {
        let Server {
            logs,
            heard,
            applied,
        } = &self.server;
        let deadline = Timeout::At(applied.waits().timer().now() + timeout);
        // 1. The commit index. A leader knows what earlier leaders committed once an entry of its
        //    own is committed.
        let led = logs.in_epoch(&(), self.term);
        let index = led.wait_for(self.first_index, deadline).await?;
        // 2. No later leader can have committed more before the read came: a majority answers a round
        //    that begins from here on.
        let next_round = self.round.load(SeqCst) + 1;
        let led = heard.in_epoch(&(), self.term);
        led.wait_for(next_round, deadline).await?;
        // 3. The state machine has applied the log up to this index.
        applied.wait_for(&(), index, deadline).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server {
        logs: ReplicaSets::new("logs")?,
        heard: ReplicaSets::new("heard")?,
        applied: Watermarks::new("applied")?,
    };
    let leader = server.lead(7, &[0, 1, 2], 40)?;
    server.appended(7, 0, 41)?; // the empty entry
    server.appended(7, 1, 41)?;
    // The read comes, then the next round of heartbeats.
    let network = async {
        let round = leader.begin_round(0)?;
        server.answered(7, 2, round)?;
        server.applied.advance(&(), 41)
    };
    let (read, applied) = tokio::join!(leader.read(Duration::from_secs(30)), network);
    assert_eq!((read, applied), (Ok(41), Ok(0)));

    // Another server was elected meanwhile, and a majority answers that server.
    let round = leader.begin_round(0)?;
    let network = async {
        server.answered(7, 1, round - 1)?; // it answered before the election
        server.follow(8)
    };
    let (read, followed) = tokio::join!(leader.read(Duration::from_secs(30)), network);
    assert!(read.is_err() && followed.is_ok());
    Ok(())
}
