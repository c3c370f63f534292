//! The broker as a whole: its threads, from the start to a bounded shutdown, and the summary of
//! what it did.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::{fmt, io, sync::Arc, time::Duration};

use anyhow::Context;
use parking_lot::Mutex;
use purgatory::Stats;
use purgatory_live::{Live, Server};
use timer_core::SystemTimer;

use crate::connection::{self, Connections};
use crate::{args::Args, batch::CODECS, partition::LAG_PERIODS, replica_manager::ReplicaManager};

/// The longest time that a shutdown waits for the connections.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);
/// The pause after a failed accept (no file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running broker.
pub struct Broker {
    pub(crate) clients: Endpoint,
    pub(crate) followers: Endpoint,
    pub(crate) manager: Arc<ReplicaManager>,
    timer: SystemTimer,
    threads: Vec<JoinHandle<()>>,
}

/// An address at which the broker listens, and its connections.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<Connections>,
}

impl Endpoint {
    /// Binds an address, with places for `connections_max` connections.
    fn open(listen: SocketAddr, connections_max: usize) -> anyhow::Result<(Endpoint, TcpListener)> {
        let listener =
            TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let endpoint = Endpoint {
            address: listener.local_addr()?,
            connections: Connections::new(connections_max),
        };
        Ok((endpoint, listener))
    }
}

impl Broker {
    /// Binds this address and starts the followers; clients are served when this returns.
    pub fn start(args: &Args, listen: SocketAddr) -> anyhow::Result<Broker> {
        let (clients, to_clients) = Endpoint::open(listen, args.max_connections)?;
        // The followers in this process have places of their own, which clients cannot take.
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let (followers, to_followers) = Endpoint::open(loopback, args.followers_here().len())?;
        let address = clients.address;
        if !address.ip().is_loopback() {
            tracing::warn!("{address} is not a loopback address, and there is no authentication");
        }
        let timer = SystemTimer::builder().name("broker").build()?;
        let mut broker = Broker {
            clients,
            followers,
            manager: Arc::new(ReplicaManager::new(args, &timer)?),
            timer,
            threads: Vec::new(),
        };
        let started = broker.start_threads(to_clients, to_followers);
        if started.is_err() {
            // End the threads that have already started.
            broker.manager.stop.raise();
        }
        started.context("no thread for the broker")?;
        Ok(broker)
    }

    /// Starts the followers, the check for lagging ones, and the accept threads.
    fn start_threads(
        &mut self,
        to_clients: TcpListener,
        to_followers: TcpListener,
    ) -> io::Result<()> {
        let leader = self.followers.address;
        for index in 0..self.manager.followers.len() {
            let manager = Arc::clone(&self.manager);
            self.spawn(&format!("follower-{index}"), move || {
                let interval = manager.args.follower_interval;
                manager.followers[index].follow(leader, &manager.stop, interval);
            })?;
        }
        let manager = Arc::clone(&self.manager);
        self.spawn("in-sync", move || look_for_lagging(&manager))?;
        let connections = Arc::clone(&self.followers.connections);
        self.accept("accept-followers", to_followers, connections)?;
        let connections = Arc::clone(&self.clients.connections);
        self.accept("accept", to_clients, connections)
    }

    /// Starts accepting connections.
    fn accept(
        &mut self,
        name: &str,
        listener: TcpListener,
        connections: Arc<Connections>,
    ) -> io::Result<()> {
        let manager = Arc::clone(&self.manager);
        self.spawn(name, move || accept_all(&listener, &manager, &connections))
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(body)?);
        Ok(())
    }

    /// Returns the address in use, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.clients.address
    }

    /// Serves metrics and the live page, until the returned server is dropped.
    pub fn serve_metrics(&self) -> anyhow::Result<Server> {
        let manager = Arc::clone(&self.manager);
        let timer = self.timer.clone();
        let live = Live::new()
            .purgatory(&manager.produces)
            .purgatory(&manager.fetches)
            .purgatory(&manager.delete_records)
            .timer(&timer);
        let address = manager.args.metrics_addr;
        let publish = move || timer.publish(); // with the purgatories on it
        example_support::serve(address, &live, publish)
    }

    /// Writes a snapshot of each purgatory to standard error at each SIGUSR1.
    pub fn write_snapshots_on_usr1(&self) -> anyhow::Result<()> {
        let manager = Arc::clone(&self.manager);
        example_support::write_on_usr1(move || manager.snapshots())
    }

    /// Accepts no more connections, answers the parked requests and closes the connections, in a
    /// little more than two seconds.
    pub fn shutdown(self) -> Summary {
        self.manager.stop.raise();
        // Only a connection wakes a thread that accepts.
        let wake =
            |endpoint: &Endpoint| TcpStream::connect_timeout(&endpoint.address, SHUTDOWN_MAX);
        let woken = wake(&self.followers).and_then(|_| wake(&self.clients));

        // Answer the parked requests first, then close the connections that carry the answers.
        self.manager.shutdown();
        self.clients.connections.shut(SHUTDOWN_MAX);
        self.followers.connections.shut(SHUTDOWN_MAX);

        match woken {
            Ok(_) => join(self.threads),
            Err(error) => {
                tracing::warn!("the accept threads are left behind, they cannot be woken: {error}");
            }
        }
        // Nothing is scheduled on the timer directly, so it hands no task back.
        drop(self.timer.shutdown(Duration::MAX));
        let mut summary = self.manager.counters.lock().clone();
        summary.parked = self.manager.stats();
        summary
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the broker panicked");
        }
    }
}

/// Begins lag periods, until the broker stops.
fn look_for_lagging(manager: &ReplicaManager) {
    let lag_time_max = Duration::from_millis(manager.args.replica_lag_time_max_ms);
    while !manager.stop.is_raised() {
        manager.stop.pause(lag_time_max / LAG_PERIODS);
        manager.shrink_in_sync();
    }
}

/// Accepts connections, until the broker stops.
fn accept_all(
    listener: &TcpListener,
    manager: &Arc<ReplicaManager>,
    connections: &Arc<Connections>,
) {
    while !manager.stop.is_raised() {
        if let Err(error) = accept(listener, manager, connections) {
            tracing::warn!("cannot accept a connection: {error}");
            manager.stop.pause(ACCEPT_PAUSE);
        }
    }
}

/// Accepts one connection, and gives it a thread.
fn accept(
    listener: &TcpListener,
    manager: &Arc<ReplicaManager>,
    connections: &Arc<Connections>,
) -> io::Result<()> {
    let (stream, peer) = listener.accept()?;
    let Some(connection) = connections.register(stream, peer) else {
        tracing::debug!("{peer}: connection refused: too many are open");
        return Ok(());
    };
    let manager = Arc::clone(manager);
    // The thread's stack is small: there may be thousands of connections.
    let thread = thread::Builder::new()
        .name("connection".to_owned())
        .stack_size(connection::STACK_BYTES);
    thread.spawn(move || connection::serve(&connection, &manager))?;
    Ok(())
}

pub(crate) type Counters = Mutex<Summary>;

/// Counts from a broker's start to its shutdown.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Records appended to the leader's logs.
    pub records: u64,
    /// Record batches appended, by codec: none, gzip, snappy, lz4, zstd.
    pub batches: [u64; CODECS.len()],
    /// Connections closed because of a malformed, oversized or unserved request.
    pub rejected: u64,
    /// The ends of parked operations, by purgatory.
    pub parked: [(&'static str, Stats); 3],
    /// Acknowledged partitions whose records an in-sync follower did not have: 0, or there is a
    /// bug.
    pub acked_before_replicated: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One count for each codec.
        let mut batches = Vec::new();
        for (codec, count) in CODECS.iter().zip(self.batches) {
            batches.push(format!("{codec} {count}"));
        }
        let batches = batches.join(", ");
        writeln!(f, "appended: {} records; batches: {batches}", self.records)?;
        // The counts add up: each parked operation has ended in one of these ways.
        for (name, stats) in &self.parked {
            writeln!(
                f,
                "parked {name}: {} completed, {} expired, {} cancelled; {} ended at once",
                stats.completed, stats.expired, stats.cancelled, stats.ended_at_once
            )?;
        }
        writeln!(f, "rejected connections: {}", self.rejected)?;
        let early = self.acked_before_replicated;
        write!(f, "acked before replicated: {early}")
    }
}
