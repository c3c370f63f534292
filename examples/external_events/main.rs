//! A long-poll gateway, alone or one of many on a NATS server: serves until Ctrl-C or SIGTERM, then
//! answers whoever waits and prints what it did.
//!
//! `cargo run --release -p external_events-example --example external_events -- --help`

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Parser;
use external_events_example::{
    args::Args,
    bus::Bus,
    nats::Nats,
    orders::Orders,
    routes::{Gateway, routes},
    scrape,
    server::{Limits, serve},
};
use purgatory::Purgatory;
use tokio::{net::TcpListener, sync::watch, time::timeout};

/// What a shell reports for a program that Ctrl-C ended.
const ABORTED: i32 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    run(Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(args: Args) -> Result<ExitCode> {
    let stopped = stop_on_signals()?;
    let waits = Purgatory::builder("orders").max_parked(args.max_parked).build()?;
    let orders = Orders::new(waits, args.max_orders);
    let bus = match &args.nats {
        Some(url) => Bus::Nats(Arc::new(Nats::start(url, &orders, args.max_orders).await?)),
        None => Bus::InProcess(orders.clone()),
    };
    let metrics = scrape::serve(args.metrics_addr, &orders)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    eprintln!("metrics: http://{}/metrics", metrics.address());
    eprintln!("live page: http://{}/", metrics.address());
    // Scripts wait for this line.
    writeln!(io::stdout(), "external_events: listening on http://{}", listener.local_addr()?)?;

    let gateway =
        Gateway { orders: orders.clone(), bus, wait_max: args.max_wait, body_max: args.max_head };
    let stop = signal(stopped.clone());
    let limits = Limits { connections: args.max_connections, head: args.max_head };
    let serving = tokio::spawn(serve(listener, routes(gateway), limits, stop));
    signal(stopped).await;
    orders.waits().shutdown(); // whoever waits is answered with 503
    let all_answered = timeout(args.shutdown_within, serving).await.is_ok();
    if !all_answered {
        eprintln!("error: connections were still open after {:?}", args.shutdown_within);
    }
    let stats = orders.waits().stats();
    writeln!(
        io::stdout(),
        "external_events: {} waited: {} completed, {} expired, {} cancelled; {} refused",
        stats.parked_total,
        stats.completed,
        stats.expired,
        stats.cancelled,
        stats.refused.full + stats.refused.closed
    )?;
    Ok(if all_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ready once there was one.
async fn signal(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await; // an error: nobody is left to send it
}

/// The first Ctrl-C or SIGTERM is told; the second does not wait for anything.
fn stop_on_signals() -> Result<watch::Receiver<bool>> {
    let (stop, stopped) = watch::channel(false);
    let handler = move || {
        if stop.send_replace(true) {
            std::process::exit(ABORTED);
        }
    };
    ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    Ok(stopped)
}
