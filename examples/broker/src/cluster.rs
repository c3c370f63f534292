//! A cluster of processes: `broker cluster` starts the nodes and does nothing else, so that it can
//! end and reap them all, however one of them ends. `--node` runs one node.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::{env, net::SocketAddr, thread};

use anyhow::{Context, Result, ensure};
use example_support::Stop;

use crate::partition::{FOLLOWER_IDS, LEADER_ID};
use crate::{args::Args, replica_fetcher::Follower};

/// Runs a follower until `stop` has a message. Its logs are in memory, so it has nothing to save.
///
/// # Errors
/// When no thread can be started.
pub fn run_follower(id: i32, leader: SocketAddr, args: &Args, stop: &Receiver<()>) -> Result<()> {
    let follower = Follower::new(id, args.pause_followers);
    let interval = args.follower_interval;
    let follow = move || follower.follow(leader, &Stop::new(), interval);
    let thread = thread::Builder::new().name("fetcher".to_owned());
    thread.spawn(follow).context("no thread for the follower")?;
    stop.recv().context("the signal handler is gone")
}

/// Stops a node of `broker cluster` when that process ends: the node's standard input ends with it.
pub fn stop_with_cluster(args: &Args, stop: Sender<()>) {
    if !args.is_started_by_cluster() {
        return;
    }
    thread::spawn(move || {
        // An error ends the input, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // If the receiver is gone, the node is already stopping.
        let _ = stop.send(());
    });
}

/// The nodes that were started. Dropping this kills all of them, even suspended ones.
struct Nodes(Vec<Child>);

/// Runs all three nodes, until `stop` has a message or the leader ends.
///
/// # Errors
/// When a process cannot be started, or the leader ends with an error.
pub fn run_cluster(args: &Args, stop: Receiver<()>) -> Result<()> {
    let mut nodes = Nodes(Vec::new());
    let mut out = io::stdout();
    let leader = nodes.start(LEADER_ID, &format!("1={},2,3", args.listen), Stdio::piped())?;
    let input = leader.stdin.take();
    let output = leader.stdout.take().context("no output")?;
    // The leader's input ends when this process is stopped, and then the leader ends by itself.
    thread::spawn(move || {
        let _ = stop.recv();
        drop(input);
    });

    // The leader's first line has the address that the followers need.
    for line in BufReader::new(output).lines() {
        let line = line?;
        if let Some(address) = line.strip_prefix("broker: listening on ") {
            let list = format!("1={address},2,3");
            writeln!(out, "broker: a node is run by: --node N --cluster {list}")?;
            for id in FOLLOWER_IDS {
                nodes.start(id, &list, Stdio::null())?;
            }
            for (id, node) in (LEADER_ID..).zip(&nodes.0) {
                writeln!(out, "broker: node {id} is process {}", node.id())?;
            }
        }
        writeln!(out, "{line}")?;
    }
    let status = nodes.0[0].wait()?;
    ensure!(
        status.success(),
        "node 1, the leader, ended: {status}; its followers end with it"
    );
    Ok(())
}

impl Nodes {
    /// Starts this program again with the same arguments, as a node.
    fn start(&mut self, id: i32, list: &str, out: Stdio) -> Result<&mut Child> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["--node", &id.to_string(), "--cluster", list])
            .args(env::args_os().skip(1));
        let node = command.stdin(Stdio::piped()).stdout(out).spawn();
        self.0.push(node.context("cannot start a node")?);
        self.0.last_mut().context("no node")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            // An error means that the node has already ended.
            if node.kill().is_ok() {
                let _ = node.wait();
            }
        }
    }
}
