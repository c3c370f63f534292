//! The broker as a whole: its threads, from the start to a bounded shutdown, and the summary of
//! what it did.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::{fmt, io, sync::Arc, time::Duration};

use anyhow::Context;
use parking_lot::Mutex;
use purgatory::Stats;
use purgatory_live::{Live, Server};
use timer_core::{SystemTimer, Timer};

use crate::connection::{self, Connections};
use crate::{args::Args, batch::CODECS, partition::LAG_PERIODS, replica_manager::ReplicaManager};

/// How long a shutdown waits for the connections.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);
/// After a failed accept (no file descriptors, say) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running broker.
pub struct Broker {
    address: SocketAddr,
    pub(crate) manager: Arc<ReplicaManager>,
    connections: Arc<Connections>,
    timer: SystemTimer,
    threads: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Binds the address and starts the followers; clients are served when this returns.
    pub fn start(args: &Args) -> anyhow::Result<Broker> {
        let listen = args.cluster.unwrap_or(args.listen);
        let listener =
            TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!("{address} is not a loopback address, and there is no authentication");
        }
        let timer = SystemTimer::builder().name("broker").build()?;
        let manager = Arc::new(ReplicaManager::new(args, &timer)?);
        let connections = Connections::new(args);
        let mut broker = Broker {
            address,
            manager,
            connections,
            timer,
            threads: Vec::new(),
        };
        for index in 0..broker.manager.followers.len() {
            let (manager, leader) = (Arc::clone(&broker.manager), broker.address);
            broker.spawn(&format!("follower-{index}"), move || {
                let interval = manager.args.follower_interval;
                manager.followers[index].follow(leader, &manager.stop, interval);
            })?;
        }
        let manager = Arc::clone(&broker.manager);
        broker.spawn("in-sync", move || {
            let lag_time_max = Duration::from_millis(manager.args.replica_lag_time_max_ms);
            while !manager.stop.is_raised() {
                manager.stop.pause(lag_time_max / LAG_PERIODS);
                manager.shrink_in_sync();
            }
        })?;
        let (manager, connections) = (Arc::clone(&broker.manager), Arc::clone(&broker.connections));
        broker.spawn("accept", move || {
            while !manager.stop.is_raised() {
                if let Err(error) = accept(&listener, &manager, &connections) {
                    tracing::warn!("cannot accept a connection: {error}");
                    manager.stop.pause(ACCEPT_PAUSE);
                }
            }
        })?;
        Ok(broker)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads
            .push(thread::Builder::new().name(name.to_owned()).spawn(body)?);
        Ok(())
    }

    /// The address in use, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves metrics and the live page, until what it returns is dropped.
    pub fn serve_metrics(&self) -> anyhow::Result<Server> {
        let (manager, timer) = (Arc::clone(&self.manager), self.timer.clone());
        let live = Live::new()
            .purgatory(&manager.produces)
            .purgatory(&manager.fetches);
        let live = live.purgatory(&manager.delete_records).timer(&timer);
        example_support::serve(self.manager.args.metrics_addr, &live, move || {
            manager.publish();
            timer.publish();
        })
    }

    /// Writes what waits to standard error at each SIGUSR1.
    pub fn write_snapshots_on_usr1(&self) -> anyhow::Result<()> {
        let manager = Arc::clone(&self.manager);
        example_support::write_on_usr1(move || manager.snapshots())
    }

    /// Accepts no more, answers what is parked, closes the connections: in two seconds and some.
    pub fn shutdown(self) -> Summary {
        self.manager.stop.raise();
        // Accepting cannot be told to stop, only given a connection.
        let woken = TcpStream::connect_timeout(&self.address, SHUTDOWN_MAX);
        self.manager.shutdown();
        self.connections.shut(SHUTDOWN_MAX);
        if let Err(error) = woken {
            tracing::warn!("the accept thread is left behind, it cannot be woken: {error}");
        } else if self
            .threads
            .into_iter()
            .any(|thread| thread.join().is_err())
        {
            tracing::error!("a thread of the broker panicked");
        }
        drop(self.timer.shutdown(Duration::MAX)); // nothing of ours is scheduled on it directly
        let counters = self.manager.counters.lock().clone();
        Summary {
            parked: self.manager.stats(),
            ..counters
        }
    }
}

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
    let thread = thread::Builder::new().name("connection".to_owned());
    let thread = thread.stack_size(connection::STACK_BYTES);
    thread
        .spawn(move || connection::serve(&connection, &manager))
        .map(drop)
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
    /// How what was parked ended, by the purgatory it was in.
    pub parked: [(&'static str, Stats); 3],
    /// Acknowledged partitions whose records an in-sync follower did not have: 0, or it is a bug.
    pub acked_before_replicated: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = CODECS
            .iter()
            .zip(self.batches)
            .map(|(name, count)| format!("{name} {count}"));
        let batches = batches.collect::<Vec<_>>().join(", ");
        writeln!(f, "appended: {} records; batches: {batches}", self.records)?;
        for (name, stats) in &self.parked {
            let Stats {
                completed,
                expired,
                cancelled,
                ended_at_once,
                ..
            } = stats;
            writeln!(
                f,
                "parked {name}: {completed} completed, {expired} expired, {cancelled} cancelled; \
                 {ended_at_once} ended at once"
            )?;
        }
        writeln!(f, "rejected connections: {}", self.rejected)?;
        write!(
            f,
            "acked before replicated: {}",
            self.acked_before_replicated
        )
    }
}
