//! Provokes the alerts of docs/prometheus: purgatories and a timer are misused in every way at
//! once, and publish their metrics.
//!
//! `cargo run --release --example misbehave`, then look at what it serves; Ctrl-C ends it.

use std::{fmt::Display, net::SocketAddr, sync::Arc, thread, time::Duration};

use anyhow::Result;
use clap::Parser;
use example_support::Stop;
use purgatory::{BoxedOperation, Outcome, Purgatory, Timeout, when};
use purgatory_live::Live;
use timer_core::{SystemTimer, Timer};

type Waits = Purgatory<&'static str, BoxedOperation>;

/// Between two rounds of misbehaviour.
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS_A_SECOND: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(1);
/// A callback that blocks does so for this long.
const BLOCKS: Duration = Duration::from_secs(1);
/// More callbacks than this are not made to wait.
const WAITING_MAX: u64 = 1000;
/// A task on the reaper's own thread takes this long.
const ON_THE_REAPER: Duration = Duration::from_millis(400);
/// Another task takes this much of each round.
const MOST_OF_A_ROUND: Duration = Duration::from_millis(95);

/// Misuses a timer and its purgatories in every way that an alert looks for, and serves their
/// metrics.
#[derive(Parser)]
#[command(name = "misbehave", version)]
struct Args {
    /// Where Prometheus metrics are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    metrics_addr: SocketAddr,
}

/// Parks an operation that nothing completes.
fn park(
    waits: &Waits,
    timeout: impl Into<Timeout>,
    told: impl FnOnce(Outcome) + Send + 'static,
) -> bool {
    waits
        .try_complete_else_watch(when(|| false, told), &["key"], timeout)
        .is_ok()
}

/// Parks an operation whose check is false when it is parked, and `second` for the event.
fn park_to_check_again(waits: &Waits, mut second: impl FnMut() -> bool + Send + 'static) -> bool {
    let mut parked = false;
    let check = move || std::mem::replace(&mut parked, true) && second();
    waits
        .try_complete_else_watch(when(check, drop), &["key"], TIMEOUT)
        .is_ok()
}

/// One check that does not return, far beyond its operation's time-out, and no further event on its
/// key: PurgatoryCheckStuck, PurgatoryStuck, PurgatoryKeyStalled.
fn get_stuck(stop: &Arc<Stop>) -> Result<Waits> {
    let waits = Waits::new("stuck")?;
    let (until, event) = (stop.clone(), waits.clone());
    // Until Ctrl-C, so that the program can end.
    park_to_check_again(&waits, move || (until.wait(), true).1);
    thread::Builder::new()
        .name("stuck".to_owned())
        .spawn(move || event.check_and_complete(&"key"))?;
    Ok(waits)
}

/// Tasks that take nearly all of the time of a reaper: TimerSaturated.
fn keep_a_reaper_busy(stop: &Arc<Stop>) -> Result<SystemTimer> {
    let (timer, stop) = (
        SystemTimer::builder().name("busy").inline().build()?,
        stop.clone(),
    );
    let task = move || _ = stop.pause(MOST_OF_A_ROUND);
    timer.schedule_at_fixed_rate(Duration::ZERO, ROUND, task)?;
    Ok(timer)
}

/// More than may be parked: PurgatoryRefuses.
fn overfill(full: &Waits) {
    while park(full, TIMEOUT, drop) {}
}

/// A check that panics: PurgatoryPanics.
fn panic_in_a_check(panics: &Waits) {
    park_to_check_again(panics, || {
        panic!("a check of this example panics, as it should")
    });
    panics.check_and_complete(&"key");
}

/// Conditions that come true without an event: PurgatoryMissesEvents.
fn forget_the_event(forgets: &Waits) {
    park_to_check_again(forgets, || true);
}

/// Callbacks that block, of operations that expire faster than one worker tells:
/// PurgatoryExecutorBacklog, PurgatoryCallbacksLate.
fn block_the_executor(blocks: &Waits, stop: &Arc<Stop>) {
    if blocks.stats().callbacks_waiting < WAITING_MAX {
        for _ in 0..50 {
            let stop = stop.clone();
            park(blocks, ROUND, move |_| _ = stop.pause(BLOCKS));
        }
    }
}

/// A task that takes long and then panics, on the thread that turns the wheels: TimerBehind and
/// TimerPanics, and PurgatoryExpiresLate for the purgatory that shares the timer.
fn hold_up_the_reaper(timer: &SystemTimer, late: &Waits, stop: &Arc<Stop>) {
    let stop = stop.clone();
    let task = move || {
        stop.pause(ON_THE_REAPER);
        panic!("a task of this example panics, as it should");
    };
    let _ = timer.schedule(Duration::ZERO, task); // refused after shutdown only
    for ms in [0, 50, 100, 150] {
        park(late, Duration::from_millis(ms), drop);
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let stop = Stop::on_signals()?;

    let inline = SystemTimer::builder().name("inline").inline().build()?;
    let late = Purgatory::builder("late").timer(&inline).build()?;
    let full = Purgatory::builder("full").max_parked(10).build()?;
    let (panics, blocks) = (Waits::new("panics")?, Waits::new("blocks")?);
    let forgets = Purgatory::builder("forgets")
        .check_at_expiry(|_| ())
        .build()?;
    let stuck = get_stuck(&stop)?;
    let busy = keep_a_reaper_busy(&stop)?;
    let all = [&late, &full, &panics, &blocks, &forgets, &stuck];

    let live = [&inline, &busy]
        .into_iter()
        .fold(Live::new(), |live, timer| live.timer(timer));
    let live = all
        .iter()
        .fold(live, |live, waits| live.purgatory_with(waits, Display::fmt));
    let published = (
        all.map(Waits::clone),
        [&inline, &busy].map(SystemTimer::clone),
    );
    let server = example_support::serve(args.metrics_addr, &live, move || {
        published.0.iter().for_each(|waits| waits.publish());
        published.1.iter().for_each(SystemTimer::publish);
    })?;
    eprintln!(
        "metrics: http://{0}/metrics\nlive page: http://{0}/",
        server.address()
    );
    for round in 0.. {
        if stop.pause(ROUND) {
            break;
        }
        overfill(&full);
        block_the_executor(&blocks, &stop);
        if round % ROUNDS_A_SECOND == 0 {
            panic_in_a_check(&panics);
            forget_the_event(&forgets);
            hold_up_the_reaper(&inline, &late, &stop);
        }
    }
    drop(server);
    all.iter()
        .for_each(|waits| _ = waits.shutdown(Duration::from_secs(5)));
    [&inline, &busy]
        .into_iter()
        .for_each(|timer| _ = timer.shutdown(Duration::MAX));
    Ok(())
}
