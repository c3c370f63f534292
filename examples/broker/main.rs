//! `cargo run --release --example broker`: serves until Ctrl-C or SIGTERM, then prints what it did.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::mpsc,
};

use anyhow::Context;
use broker_example::{Args, Broker, run_cluster, run_follower};
use clap::{CommandFactory, FromArgMatches};
use tracing::Level;

fn main() -> ExitCode {
    serve().unwrap_or_else(|error| {
        eprintln!("broker: {error:#}");
        ExitCode::FAILURE
    })
}

/// What `broker cluster` is, beside the options.
const CLUSTER: &str = "\
broker cluster [OPTIONS]: a leader and two followers as processes of their own, which fetch from it over the wire;
they are stopped together. The options are the leader's.";

fn serve() -> anyhow::Result<ExitCode> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let cluster = words.get(1).is_some_and(|word| word == "cluster");
    if cluster {
        words.remove(1);
    }
    let matches = Args::command().after_help(CLUSTER).get_matches_from(&words);
    let args = Args::from_arg_matches(&matches)?;
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
    match (args.node, args.cluster) {
        _ if cluster => {
            return run_cluster(args.listen, &words[1..], &stopped).map(|()| ExitCode::SUCCESS);
        }
        (Some(node @ 2..), Some(leader)) => {
            return run_follower(node, leader, &args, &stopped).map(|()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    let broker = Broker::start(&args)?;
    let metrics = broker.serve_metrics()?;
    if let Some(metrics) = &metrics {
        eprintln!("metrics: http://{}/metrics", metrics.address());
        eprintln!("live page: http://{}/", metrics.address());
    }
    // Scripts wait for this line.
    writeln!(io::stdout(), "broker: listening on {}", broker.address())?;
    io::stdout().flush()?;

    stopped.recv().context("the signal handler is gone")?;
    let summary = broker.shutdown();
    for line in summary.to_string().lines() {
        writeln!(io::stdout(), "broker: {line}")?;
    }
    Ok(if summary.acked_before_replicated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
