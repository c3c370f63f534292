//! `cargo run --release --example broker`: serves until Ctrl-C or SIGTERM, then prints its counts.

use std::sync::mpsc::{self, Receiver};
use std::{io, io::Write, net::SocketAddr, process::ExitCode};

use anyhow::Context;
use broker_example::{Args, Broker, Role, run_cluster, run_follower, stop_with_cluster};
use clap::Parser;
use example_support::{say, write_on_usr1};
use tracing::Level;

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let level = if args.verbose {
        Level::DEBUG
    } else {
        Level::INFO
    };
    // If standard error is closed, nothing is logged, and no thread panics.
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .with_max_level(level);
    log.with_target(false).init();

    // Ctrl-C, SIGTERM and, in a cluster, the end of the cluster's process stop this process.
    let (stop, stopped) = mpsc::channel();
    stop_with_cluster(&args, stop.clone());
    let ask_to_stop = move || {
        // If the receiver is gone, the broker is already stopping.
        let _ = stop.send(());
    };
    ctrlc::set_handler(ask_to_stop).context("cannot handle signals")?;

    match args.role() {
        Role::AllInOne(listen) | Role::Leader(listen) => run_leader(&args, listen, &stopped),
        Role::Follower { id, leader } => {
            show_no_snapshots()?;
            run_follower(id, leader, &args, &stopped)?;
            Ok(ExitCode::SUCCESS)
        }
        Role::Cluster => {
            show_no_snapshots()?;
            run_cluster(&args, stopped)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints at each SIGUSR1 where the snapshots are; unhandled, the signal would end this process.
fn show_no_snapshots() -> anyhow::Result<()> {
    write_on_usr1(|| "requests wait in node 1, the leader: send it SIGUSR1\n".to_owned())
}

fn run_leader(args: &Args, listen: SocketAddr, stopped: &Receiver<()>) -> anyhow::Result<ExitCode> {
    let broker = Broker::start(args, listen)?;
    let metrics = broker.serve_metrics()?;
    let address = metrics.address();
    say(format_args!(
        "metrics: http://{address}/metrics\nlive page: http://{address}/"
    ));
    broker.write_snapshots_on_usr1()?;
    // Scripts wait for this line.
    let mut out = io::stdout();
    writeln!(out, "broker: listening on {}", broker.address())?;
    out.flush()?;

    stopped.recv().context("the signal handler is gone")?;
    let summary = broker.shutdown();
    for line in summary.to_string().lines() {
        writeln!(out, "broker: {line}")?;
    }
    if summary.acked_before_replicated == 0 {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
