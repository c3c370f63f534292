//! `cargo run --release --example broker`: serves until Ctrl-C or SIGTERM, then prints what it did.

use std::{io, io::Write, process::ExitCode, sync::mpsc};

use anyhow::Context;
use broker_example::{Args, Broker, run_cluster, run_follower, stop_with_cluster};
use clap::Parser;
use tracing::Level;

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let level = if args.verbose {
        Level::DEBUG
    } else {
        Level::INFO
    };
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level);
    log.with_target(false).init();

    let (stop, stopped) = mpsc::channel();
    // Once the receiver is gone the broker is stopping already.
    stop_with_cluster(&args, stop.clone());
    ctrlc::set_handler(move || stop.send(()).unwrap_or(())).context("cannot handle signals")?;
    if args.run.is_some() && args.node.is_none() {
        return run_cluster(&args, stopped).map(|()| ExitCode::SUCCESS);
    }
    if let (Some(node @ 2..), Some(leader)) = (args.node, args.cluster) {
        return run_follower(node, leader, &args, &stopped).map(|()| ExitCode::SUCCESS);
    }
    let broker = Broker::start(&args)?;
    let metrics = broker.serve_metrics()?;
    eprintln!(
        "metrics: http://{0}/metrics\nlive page: http://{0}/",
        metrics.address()
    );
    broker.write_snapshots_on_usr1()?;
    // Scripts wait for this line.
    writeln!(io::stdout(), "broker: listening on {}", broker.address())?;
    io::stdout().flush()?;

    stopped.recv().context("the signal handler is gone")?;
    let summary = broker.shutdown();
    for line in summary.to_string().lines() {
        writeln!(io::stdout(), "broker: {line}")?;
    }
    Ok(if summary.acked_before_replicated == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
