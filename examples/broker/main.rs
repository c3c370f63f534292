//! `cargo run --release --example broker`: serves until Ctrl-C or SIGTERM, then prints what it did.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::mpsc,
};

use anyhow::Context;
use broker_example::{Args, Broker, Followers, run_follower};
use clap::Parser;
use tracing::Level;

fn main() -> ExitCode {
    serve().unwrap_or_else(|error| {
        eprintln!("broker: {error:#}");
        ExitCode::FAILURE
    })
}

fn serve() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let level = if args.verbose { Level::DEBUG } else { Level::INFO };
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level)
        .with_target(false)
        .init();

    let (stop, stopped) = mpsc::channel();
    // Once the receiver is gone the broker is stopping already.
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })
    .context("cannot handle signals")?;
    if let (Some(node @ 2..), Some(leader)) = (args.node, args.cluster) {
        return run_follower(node, leader, &args, &stopped).map(|()| ExitCode::SUCCESS);
    }
    let broker = Broker::start(&args)?;
    let followers = Followers::start(&args, broker.address())?;
    let metrics = broker.serve_metrics()?;
    eprintln!("metrics: http://{0}/metrics\nlive page: http://{0}/", metrics.address());
    // Scripts wait for this line.
    writeln!(io::stdout(), "broker: listening on {}", broker.address())?;
    io::stdout().flush()?;

    stopped.recv().context("the signal handler is gone")?;
    drop(followers); // before the leader, which they would look for
    let summary = broker.shutdown();
    for line in summary.to_string().lines() {
        writeln!(io::stdout(), "broker: {line}")?;
    }
    Ok(if summary.acked_before_replicated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
