//! Provokes the alerts of docs/prometheus: misuses purgatories and timers in every way at once, and
//! serves their metrics.
//!
//! `cargo run --release --example misbehave`, then open what it serves; Ctrl-C ends it.

use std::{fmt::Display, net::SocketAddr, sync::Arc, thread, time::Duration};

use anyhow::Result;
use clap::Parser;
use example_support::{Stop, say};
use purgatory::{Outcome, Purgatory, ReplicaSets, Rule, Timeout, when};
use purgatory_live::{Live, Server};
use timer_core::{SystemTimer, Timer, Workers};

type Waits = Purgatory<&'static str>;

/// The time between two rounds of misbehaviour.
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS_A_SECOND: u64 = 10;
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long a callback blocks.
const BLOCKS: Duration = Duration::from_secs(1);
/// The most callbacks that are made to wait.
const WAITING_MAX: u64 = 1000;
/// How long a task on the reaper's own thread takes.
const ON_THE_REAPER: Duration = Duration::from_millis(400);
/// How much of each round another task takes.
const MOST_OF_A_ROUND: Duration = Duration::from_millis(95);
/// The longest wait for callbacks at the end.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
The exit code is 0 after Ctrl-C, 1 when it cannot run, 2 when an argument is wrong.";

/// Misuses a timer and its purgatories in every way that an alert looks for, and serves their
/// metrics.
#[derive(Parser)]
#[command(name = "misbehave", version, after_help = EXIT_CODES)]
struct Args {
    /// Where Prometheus metrics are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    metrics_addr: SocketAddr,
}

/// Parks an operation that nothing completes. Returns false when it was refused.
fn park(
    waits: &Waits,
    timeout: impl Into<Timeout>,
    callback: impl FnOnce(Outcome) + Send + 'static,
) -> bool {
    let operation = when(|| false, callback);
    let parked = waits.try_complete_else_watch(operation, &["key"], timeout);
    parked.is_ok()
}

/// Parks an operation whose first check is false. Later checks call `check`.
fn park_unchecked(waits: &Waits, mut check: impl FnMut() -> bool + Send + 'static) {
    let mut checked_before = false;
    let condition = move || {
        // The first check is part of parking.
        let later = checked_before;
        checked_before = true;
        later && check()
    };
    let operation = when(condition, drop);
    // The operation is refused only after shutdown, when nothing is left to provoke.
    let _ = waits.try_complete_else_watch(operation, &["key"], TIMEOUT);
}

/// Starts a check that returns only long after its operation's timeout: PurgatoryCheckStuck,
/// PurgatoryStuck.
fn get_stuck(stop: &Arc<Stop>) -> Result<Waits> {
    let waits = Waits::new("stuck")?;
    // The check returns at Ctrl-C, so that the program can end.
    let until = stop.clone();
    park_unchecked(&waits, move || {
        until.wait();
        true
    });
    // The check runs, and hangs, on a thread of its own.
    let signalled = waits.clone();
    let thread = thread::Builder::new().name("stuck".to_owned());
    thread.spawn(move || signalled.check_and_complete(&"key"))?;
    Ok(waits)
}

/// Schedules a task that takes nearly all of a reaper's time: TimerSaturated.
fn keep_a_reaper_busy(stop: &Arc<Stop>) -> Result<SystemTimer> {
    let timer = SystemTimer::builder().name("busy").inline().build()?;
    let stop = stop.clone();
    // The task runs on the reaper itself: an inline timer has no worker.
    let task = move || {
        stop.pause(MOST_OF_A_ROUND);
    };
    timer.schedule_at_fixed_rate(Duration::ZERO, ROUND, task)?;
    Ok(timer)
}

/// Loses the follower of a group that needs two members: PurgatoryBelowFloor.
fn lose_a_follower() -> Result<ReplicaSets<&'static str, &'static str>> {
    let sets = ReplicaSets::new("too few")?;
    let members = [("leader", 0), ("follower", 0)];
    sets.set(&"group", 1, members, 0, Rule::all().floor(2))?;
    sets.in_epoch(&"group", 1).leave(&"follower")?;
    Ok(sets)
}

/// Parks operations until one is refused: PurgatoryRefuses.
fn overfill(full: &Waits) {
    while park(full, TIMEOUT, drop) {}
}

/// Makes a check panic: PurgatoryPanics.
fn panic_in_a_check(panics: &Waits) {
    park_unchecked(panics, || {
        panic!("a check of this example panics, as it should")
    });
    panics.check_and_complete(&"key");
}

/// Makes a condition true without an event: PurgatoryMissesEvents.
fn forget_the_event(forgets: &Waits) {
    park_unchecked(forgets, || true);
}

/// Takes an operation out and never answers it. A taken operation belongs to the caller: no alert
/// can tell, the dashboard only counts it.
fn forget_what_was_taken(forgets: &Waits) {
    let operation = when(|| false, drop);
    let parked = forgets.try_complete_else_watch(operation, &["key"], TIMEOUT);
    // The call is refused only after shutdown.
    if let Ok(Some(id)) = parked {
        drop(forgets.take(id));
    }
}

/// Expires operations whose callbacks block, faster than one worker runs them:
/// PurgatoryExecutorBacklog, PurgatoryCallbacksLate.
fn block_the_executor(blocks: &Waits, stop: &Arc<Stop>) {
    // Once enough callbacks wait, add no more: the queue must not grow for ever.
    if blocks.stats().callbacks_waiting >= WAITING_MAX {
        return;
    }
    for _ in 0..50 {
        let stop = stop.clone();
        park(blocks, ROUND, move |_| {
            stop.pause(BLOCKS);
        });
    }
}

/// Schedules a task that takes long and then panics, on the thread that advances the wheels:
/// TimerBehind and TimerPanics, and PurgatoryExpiresLate for the purgatory that shares the timer.
fn hold_up_the_reaper(timer: &SystemTimer, late: &Waits, stop: &Arc<Stop>) {
    let stop = stop.clone();
    let task = move || {
        stop.pause(ON_THE_REAPER);
        panic!("a task of this example panics, as it should");
    };
    // The call is refused only after shutdown.
    let _ = timer.schedule(Duration::ZERO, task);
    // These fall due while the reaper is held up.
    for ms in [0, 50, 100, 150] {
        park(late, Duration::from_millis(ms), drop);
    }
}

/// The timers and forms that are misused.
struct Misused {
    /// Shares the timer `inline`.
    late: Waits,
    full: Waits,
    panics: Waits,
    blocks: Waits,
    forgets: Waits,
    stuck: Waits,
    /// Kept because a form is published only while it has a handle.
    _too_few: ReplicaSets<&'static str, &'static str>,
    inline: SystemTimer,
    busy: SystemTimer,
}

impl Misused {
    fn start(stop: &Arc<Stop>) -> Result<Misused> {
        let inline = SystemTimer::builder().name("inline").inline().build()?;
        // `blocks` has a worker of its own, so the others' callbacks and last checks go on.
        let worker = Workers::start("blocks", 1)?;
        let blocks = Purgatory::builder("blocks").executor(worker);
        let forgets = Purgatory::builder("forgets").check_at_expiry(|_| ());
        Ok(Misused {
            late: Purgatory::builder("late").timer(&inline).build()?,
            full: Purgatory::builder("full").max_parked(10).build()?,
            panics: Waits::new("panics")?,
            blocks: blocks.build()?,
            forgets: forgets.build()?,
            stuck: get_stuck(stop)?,
            _too_few: lose_a_follower()?,
            busy: keep_a_reaper_busy(stop)?,
            inline,
        })
    }

    fn purgatories(&self) -> [Waits; 6] {
        [
            &self.late,
            &self.full,
            &self.panics,
            &self.blocks,
            &self.forgets,
            &self.stuck,
        ]
        .map(Waits::clone)
    }

    fn timers(&self) -> [SystemTimer; 2] {
        [&self.inline, &self.busy].map(SystemTimer::clone)
    }

    /// Serves the metrics and the live page.
    fn serve(&self, address: SocketAddr) -> Result<Server> {
        let purgatories = self.purgatories();
        // The process's timer has the purgatories that were built without a timer.
        let shared = Timer::shared()?;
        let [inline, busy] = self.timers().map(Timer::from);
        let timers = [inline, busy, shared];
        // The page lists purgatories and timers in this order.
        let mut live = Live::new();
        for timer in &timers {
            live = live.timer(timer);
        }
        for purgatory in &purgatories {
            live = live.purgatory_with(purgatory, Display::fmt);
        }
        // Each scrape publishes the timers, and the purgatories on them.
        let publish = move || {
            for timer in &timers {
                timer.publish();
            }
        };
        example_support::serve(address, &live, publish)
    }

    /// Misbehaves until Ctrl-C.
    fn run(&self, stop: &Arc<Stop>) {
        let mut round = 0;
        while !stop.pause(ROUND) {
            // Some misbehave every round, others once a second.
            overfill(&self.full);
            block_the_executor(&self.blocks, stop);
            if round % ROUNDS_A_SECOND == 0 {
                panic_in_a_check(&self.panics);
                forget_the_event(&self.forgets);
                forget_what_was_taken(&self.forgets);
                hold_up_the_reaper(&self.inline, &self.late, stop);
            }
            round += 1;
        }
    }

    fn shut_down(&self) {
        for purgatory in self.purgatories() {
            purgatory.shutdown(SHUTDOWN_MAX);
        }
        for timer in self.timers() {
            timer.shutdown(Duration::MAX);
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let stop = Stop::on_signals()?;
    let misused = Misused::start(&stop)?;
    let server = misused.serve(args.metrics_addr)?;
    let address = server.address();
    say(format_args!(
        "metrics: http://{address}/metrics\nlive page: http://{address}/"
    ));
    misused.run(&stop);
    // Close the page first: it must not show the shutdown.
    drop(server);
    misused.shut_down();
    Ok(())
}
