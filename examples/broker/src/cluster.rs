//! Followers that are processes of their own: `--node` runs one, `broker cluster` both, beside their
//! leader.

use std::{
    env,
    io::{self, Write},
    net::SocketAddr,
    process::{self, Child, Command, Stdio},
    sync::mpsc::Receiver,
    thread,
};

use anyhow::{Context, Result};

use crate::{args::Args, replica_fetcher::Follower, replica_state::FOLLOWER_IDS, signal::Signal};

/// Runs a follower until told to stop. Its logs are in memory, so nobody waits for what it does then.
///
/// # Errors
/// When there is no thread to be had.
pub fn run_follower(node: i32, leader: SocketAddr, args: &Args, stop: &Receiver<()>) -> Result<()> {
    let (signal, interval) = (Signal::default(), args.follower_interval);
    signal.pause_followers(args.pause_followers);
    let follow = move || Follower::new(node).follow(leader, &signal, interval);
    // Its leader's end is the end of this pipe, however it comes.
    let watch = || io::copy(&mut io::stdin(), &mut io::sink()).map(|_| process::exit(0));
    drop(args.run.map(|_| thread::spawn(watch)));
    thread::Builder::new().name("fetcher".to_owned()).spawn(follow)?;
    stop.recv().context("the signal handler is gone")
}

/// The followers of `broker cluster`. They end with this, those that were stopped, too. One that ends
/// earlier is missed by the leader only: `--node` starts it again.
pub struct Followers(Vec<Child>);

impl Followers {
    /// Starts this program with these arguments again, for each follower; none without `cluster`.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(args: &Args, leader: SocketAddr) -> Result<Followers> {
        let mut followers = Followers(Vec::new());
        let Some(_) = args.run else { return Ok(followers) };
        let cluster = format!("1={leader},2,3");
        writeln!(io::stdout(), "broker: a node is run by: --node N --cluster {cluster}")?;
        writeln!(io::stdout(), "broker: node 1 is process {}", process::id())?;
        for id in FOLLOWER_IDS {
            let mut command = Command::new(env::current_exe()?);
            command.args(["--node", &id.to_string(), "--cluster", &cluster]);
            command.args(env::args_os().skip(1)).stdin(Stdio::piped()).stdout(Stdio::null());
            let child = command.spawn().context("cannot start a node")?;
            writeln!(io::stdout(), "broker: node {id} is process {}", child.id())?;
            followers.0.push(child);
        }
        Ok(followers)
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already is what we want.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
