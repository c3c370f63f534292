//! acks=all: a leader, two followers, and producers whose every record waits in the purgatory for
//! the high watermark.
//!
//! `cargo run --release --example acks_all -- --help`

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use acks_all_example::args::{Args, MetricsAddr};
use acks_all_example::progress::Progress;
use acks_all_example::run::{Stage, run};
use acks_all_example::scrape;
use acks_all_example::stop::Stop;
use acks_all_example::text::Text;
use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use purgatory_live::Server;

/// What a shell reports for a program that Ctrl-C ended.
const ABORTED: i32 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(message) = args.check() {
        Args::command().error(ErrorKind::ValueValidation, message).exit();
    }
    match start(&args) {
        Ok(right) => right,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<ExitCode> {
    let text = Text::load(args.input.as_deref())?;
    let interrupted = stop_on_signals()?;
    let stage = Stage::new(args)?;
    let _server = match args.metrics_addr {
        MetricsAddr::Off => None,
        MetricsAddr::At(address) => Some(serve(address, &stage)?),
    };
    let mut progress = Progress::new(args.seconds);
    let report = run(args, stage, text, &interrupted, &mut |snapshot| progress.show(snapshot));

    io::stdout().write_all(report.to_string().as_bytes()).context("cannot write the table")?;
    for problem in &report.problems {
        eprintln!("wrong: {problem}");
    }
    interrupted.pause(args.linger);
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Serves until what it returns is dropped.
fn serve(address: SocketAddr, stage: &Stage) -> Result<Server> {
    let server = scrape::serve(address, stage)?;
    eprintln!("metrics: http://{}/metrics", server.address());
    eprintln!("live page: http://{}/", server.address());
    Ok(server)
}

/// The first Ctrl-C or SIGTERM raises the flag; the second does not wait for anything.
fn stop_on_signals() -> Result<Arc<Stop>> {
    let interrupted = Arc::new(Stop::new());
    let raise = Arc::clone(&interrupted);
    let handler = move || {
        if !raise.raise() {
            std::process::exit(ABORTED);
        }
    };
    ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    Ok(interrupted)
}
