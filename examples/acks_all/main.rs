//! acks=all: a leader, two followers, and producers whose every record waits in the purgatory for
//! the high watermark.
//!
//! `cargo run --release --example acks_all -- --help`

use std::io::{self, Write};
use std::process::ExitCode;

use acks_all_example::args::Args;
use acks_all_example::progress::Progress;
use acks_all_example::run::{Stage, run};
use acks_all_example::scrape;
use acks_all_example::text::Text;
use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use example_support::Stop;

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
    let interrupted = Stop::on_signals()?;
    let stage = Stage::new(args)?;
    let server = scrape::serve(args.metrics_addr, &stage)?;
    eprintln!("metrics: http://{0}/metrics\nlive page: http://{0}/", server.address());
    let mut progress = Progress::new(args.seconds);
    let report = run(args, stage, text, &interrupted, &mut |snapshot| progress.show(snapshot));

    io::stdout().write_all(report.to_string().as_bytes()).context("cannot write the table")?;
    for problem in &report.problems {
        eprintln!("wrong: {problem}");
    }
    interrupted.pause(args.linger);
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
