//! A cluster of processes: `--node` runs one of them, `broker cluster` all three, on this machine.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc::Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal as Unix, kill_process};

use crate::{args::Args, replica_fetcher::Follower, replica_state::FOLLOWER_IDS, signal::Signal};

/// How long a process that was told to end may take.
const END_MAX: Duration = Duration::from_secs(5);
/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a follower until told to stop. Its logs are in memory, so nobody waits for what it does then.
///
/// # Errors
/// When there is no thread to be had.
pub fn run_follower(node: i32, leader: SocketAddr, args: &Args, stop: &Receiver<()>) -> Result<()> {
    let signal = Arc::new(Signal::default());
    signal.pause_followers(args.pause_followers);
    let (stopped, interval) = (Arc::clone(&signal), args.follower_interval);
    let follow = move || Follower::new(node).follow(leader, &signal, interval);
    thread::Builder::new().name("fetcher".to_owned()).spawn(follow)?;
    stop.recv().context("the signal handler is gone")?;
    stopped.stop();
    Ok(())
}

/// Runs a leader, on this address, and two followers as processes of this program with these arguments, until told to
/// stop or the leader ends; then ends them all. A follower that ends is reported, and missed by
/// nobody: `--node` starts it again.
///
/// # Errors
/// When a process cannot be started, or the leader fails.
pub fn run_cluster(listen: SocketAddr, args: &[OsString], stop: &Receiver<()>) -> Result<()> {
    let mut leader = Node::start(1, &format!("1={listen},2,3"), args)?;
    let stdout = leader.child.stdout.take().context("the leader has no standard output")?;
    let mut lines = BufReader::new(stdout).lines();
    let first = lines.next().context("the leader ended at once")??;
    let address = first.rsplit(' ').next().unwrap_or_default();
    let cluster = format!("1={address},2,3");
    let mut nodes = vec![leader];
    for id in FOLLOWER_IDS {
        nodes.push(Node::start(id, &cluster, args)?);
    }
    for Node { id, child } in &nodes {
        writeln!(io::stdout(), "broker: node {id} is process {}", child.id())?;
    }
    writeln!(io::stdout(), "broker: a node is run by: --node N --cluster {cluster}\n{first}")?;
    io::stdout().flush()?;
    let passed_on = thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = writeln!(io::stdout(), "{line}");
        }
    });
    let watched = watch(&mut nodes, stop);
    let ended = nodes.iter_mut().rev().map(Node::end).fold(Ok(()), Result::and);
    let _ = passed_on.join();
    watched.and(ended)
}

/// Until told to stop, or the leader has ended.
fn watch(nodes: &mut Vec<Node>, stop: &Receiver<()>) -> Result<()> {
    while stop.recv_timeout(LOOK).is_err() {
        let mut over = None;
        for (at, node) in nodes.iter_mut().enumerate() {
            if let Some(status) = node.child.try_wait()? {
                tracing::warn!("node {} has ended: {status}", node.id);
                over = Some(at);
            }
        }
        match over {
            Some(0) => bail!("without a leader there is no cluster: no fail-over here"),
            Some(at) => drop(nodes.swap_remove(at)),
            None => {}
        }
    }
    Ok(())
}

/// One process of the cluster. Killed when dropped before its end.
struct Node {
    id: i32,
    child: Child,
}

impl Node {
    fn start(id: i32, cluster: &str, args: &[OsString]) -> Result<Node> {
        let program = std::env::current_exe().context("cannot tell what program this is")?;
        let mut command = Command::new(program);
        command.args(args).args(["--node", &id.to_string(), "--cluster", cluster]);
        let child = command.stdout(if id == 1 { Stdio::piped() } else { Stdio::null() }).spawn();
        Ok(Node { id, child: child.with_context(|| format!("cannot start node {id}"))? })
    }

    /// Asks it to end, and sees that it does.
    fn end(&mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Unix::CONT); // it may have been stopped
            let _ = kill_process(pid, Unix::TERM);
        }
        let looks = END_MAX.as_millis() / LOOK.as_millis();
        for _ in 0..looks {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("node {}: {status}", self.id),
                None => thread::park_timeout(LOOK),
            }
        }
        bail!("node {} did not end within {END_MAX:?}", self.id)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
