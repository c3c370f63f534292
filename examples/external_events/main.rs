//! A long-poll gateway, alone or one of many on a NATS server. It serves until Ctrl-C or SIGTERM,
//! then answers the requests that wait and prints their counts.
//!
//! `cargo run --release -p external_events-example --example external_events -- --help`

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use example_support::Stop;
use external_events_example::{args::Args, nats::Nats, orders::Orders, routes};
use metrics::{Unit, counter, describe_counter};
use purgatory::Purgatory;
use purgatory_live::{Live, Server};
use tokio::{net::TcpListener, sync::oneshot, task::spawn_blocking, time::timeout};

const VERSION: &str = "external_events_version_total";

#[tokio::main]
async fn main() -> ExitCode {
    run(Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(args: Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let waits = Purgatory::builder("orders")
        .max_parked(args.max_parked)
        .build()?;
    let orders = Orders::new(waits, args.max_orders);
    let nats = match &args.nats {
        Some(url) => Some(Nats::start(url, &orders, args.max_orders).await?),
        None => None,
    };
    let metrics = serve_metrics(&args, &orders)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    eprintln!("metrics: http://{}/metrics", metrics.address());
    eprintln!("live page: http://{}/", metrics.address());
    // Scripts wait for this line.
    writeln!(
        io::stdout(),
        "external_events: listening on http://{}",
        listener.local_addr()?
    )?;

    let gateway = routes::Gateway {
        orders: orders.clone(),
        nats,
        wait_max: args.max_wait,
    };
    let (end, ended) = oneshot::channel::<()>();
    let serving = axum::serve(listener, routes::routes(gateway));
    let serving = serving.with_graceful_shutdown(async { drop(ended.await) });
    let serving = tokio::spawn(serving.into_future());
    spawn_blocking(move || stop.wait()).await?;
    drop(end);
    // The executor answers waits with 503.
    orders.waits().shutdown(std::time::Duration::ZERO);
    let all_answered = timeout(args.shutdown_within, serving).await.is_ok();
    if !all_answered {
        eprintln!(
            "error: connections were still open after {:?}",
            args.shutdown_within
        );
    }
    let stats = orders.waits().stats();
    writeln!(
        io::stdout(),
        "external_events: {} waited: {} completed, {} expired, {} cancelled; {} refused",
        stats.parked_total,
        stats.completed,
        stats.expired,
        stats.cancelled,
        stats.refused_full + stats.refused_closed
    )?;
    Ok(if all_answered {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Serves the purgatory's metrics and one of this example, and the live page. They have a port of
/// their own, so that clients do not see what others wait for.
fn serve_metrics(args: &Args, orders: &Orders) -> Result<Server> {
    let live = Live::new().purgatory_with(orders.waits(), Display::fmt);
    let orders = orders.clone();
    let server = example_support::serve(args.metrics_addr, &live, move || {
        orders.waits().publish();
        counter!(VERSION).absolute(orders.position());
    })?;
    describe_counter!(
        VERSION,
        Unit::Count,
        "The last change this gateway has seen, of any order"
    );
    Ok(server)
}
