//! A long-poll gateway, alone or one of many on a NATS server. It serves until Ctrl-C or SIGTERM,
//! then answers the requests that wait and prints their counts.
//!
//! `cargo run --release -p external_events-example --example external_events -- --help`

use std::fmt::Display;
use std::io::{self, Write};
use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use example_support::{Stop, say};
use external_events_example::{args::Args, nats::Nats, orders::Orders, routes};
use humantime::format_duration;
use metrics::{Unit, counter, describe_counter};
use purgatory::{Purgatory, timer_core::Timer};
use purgatory_live::{Live, Server};
use tokio::{net::TcpListener, sync::oneshot, task::spawn_blocking, time::timeout};

const VERSION: &str = "external_events_version_total";
/// The longest time that serving takes to end by itself once no connection is open.
const END_OF_SERVING: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;

    // The orders are kept here, or in a stream that all gateways share.
    let builder = Purgatory::builder("orders").max_parked(args.max_parked);
    let orders = Orders::new(builder.build()?, args.max_orders);
    let nats = match &args.nats {
        Some(url) => Some(Nats::start(url, &orders, args.max_orders).await?),
        None => None,
    };

    // Metrics have an address of their own: clients must not see what others wait for.
    let metrics = serve_metrics(&args, &orders)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    say(format_args!(
        "metrics: http://{}/metrics",
        metrics.address()
    ));
    say(format_args!("live page: http://{}/", metrics.address()));
    // Scripts wait for this line.
    let address = listener.local_addr()?;
    writeln!(
        io::stdout(),
        "external_events: listening on http://{address}"
    )?;

    let gateway = routes::Gateway {
        orders: orders.clone(),
        nats,
        wait_max: args.max_wait,
    };
    let (end, ended) = oneshot::channel::<()>();
    let end_of_serving = async {
        // An error is the signal: the sender was dropped.
        let _ = ended.await;
    };
    let serving = axum::serve(listener, routes::routes(gateway));
    let serving = serving.with_graceful_shutdown(end_of_serving);
    let serving = tokio::spawn(serving.into_future());
    spawn_blocking(move || stop.wait()).await?;

    // Accept no new connections; then the executor answers the waiting requests with 503.
    drop(end);
    orders.waits().shutdown(Duration::ZERO);
    let limit = args.shutdown_within.max(END_OF_SERVING);
    let all_answered = timeout(limit, serving).await.is_ok();
    if !all_answered {
        let limit = format_duration(limit);
        say(format_args!(
            "error: connections were still open after {limit}"
        ));
    }
    print_counts(&orders)?;
    if all_answered {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// Prints how the requests that waited ended.
fn print_counts(orders: &Orders) -> io::Result<()> {
    let stats = orders.waits().stats();
    writeln!(
        io::stdout(),
        "external_events: {} waited: {} completed, {} expired, {} cancelled; {} refused",
        stats.parked_total,
        stats.completed,
        stats.expired,
        stats.cancelled,
        stats.refused_full + stats.refused_closed
    )
}

/// Serves the purgatory's metrics and one of this example, and the live page.
fn serve_metrics(args: &Args, orders: &Orders) -> Result<Server> {
    let timer = Timer::shared()?;
    let live = Live::new()
        .purgatory_with(orders.waits(), Display::fmt)
        .timer(&timer);
    let orders = orders.clone();
    let publish = move || {
        timer.publish(); // with the purgatories on it
        counter!(VERSION).absolute(orders.position());
    };
    let server = example_support::serve(args.metrics_addr, &live, publish)?;
    describe_counter!(
        VERSION,
        Unit::Count,
        "The last change this gateway has seen, of any order"
    );
    Ok(server)
}
