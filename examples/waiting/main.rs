//! The ways to wait for a log to grow. Each function waits, lets the log grow, and checks the
//! outcome; `main` prints a line for each. The first wrong outcome ends the program.
//!
//! `cargo run --release --example waiting`

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::{future, io, io::Write, time::Duration};

use anyhow::{Result, bail, ensure};
use clap::Command;
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, when};
use timer_core::{BuildError, SystemTimer};

const TIMEOUT: Duration = Duration::from_secs(60); // longer than anything here takes

/// The end of a log, and the waits for it to grow.
#[derive(Clone)]
struct Log {
    end: Arc<AtomicU64>,
    waits: Purgatory<&'static str>,
}

impl Log {
    /// Makes an empty log. Callbacks run on the thread that completes the operation.
    fn new(timer: &SystemTimer) -> Result<Log, BuildError> {
        let waits = Purgatory::builder("log").timer(timer).build()?;
        Ok(Log {
            end: Arc::default(),
            waits,
        })
    }

    /// Makes an empty log whose callbacks run on a worker of the timer.
    fn with_callbacks_on_executor(timer: &SystemTimer) -> Result<Log, BuildError> {
        let builder = Purgatory::builder("log").timer(timer);
        let waits = builder.callbacks_on_executor().build()?;
        Ok(Log {
            end: Arc::default(),
            waits,
        })
    }

    /// Moves the log's end to `offset`; returns the number of operations that this completed.
    fn grow(&self, offset: u64) -> usize {
        self.end.store(offset, SeqCst); // the condition first ...
        self.waits.check_and_complete(&"log") // ... then its event
    }

    /// Makes a condition that yields the log's end once it is at least `offset`.
    fn reaches(&self, offset: u64) -> impl FnMut() -> Option<u64> + Send + 'static {
        let end = self.end.clone();
        move || Some(end.load(SeqCst)).filter(|&end| end >= offset)
    }
}

/// A produce that sends its client the outcome, and the thread that its callback ran on.
struct DelayedProduce {
    log_end: Arc<AtomicU64>,
    client: mpsc::Sender<(Outcome, ThreadId)>,
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.log_end.load(SeqCst) >= 1
    }

    fn on_complete(self, outcome: Outcome) {
        // The client may have gone; then nothing is left to do for it.
        let _ = self.client.send((outcome, thread::current().id()));
    }
}

/// Parks a produce under the key of the log, and lets the log grow. Returns the thread that called
/// back.
fn park_and_grow(log: &Log) -> Result<ThreadId> {
    let (client, answer) = mpsc::channel();
    // Box it, since this purgatory holds operations of several types.
    let produce = BoxedOperation::new(DelayedProduce {
        log_end: log.end.clone(),
        client,
    });
    let parked = log
        .waits
        .try_complete_else_watch(produce, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1);
    let (outcome, thread) = answer.recv()?;
    ensure!(outcome == Outcome::Completed);
    Ok(thread)
}

fn callback(log: &Log) -> Result<&'static str> {
    ensure!(park_and_grow(log)? == thread::current().id());
    Ok("called on the thread that signalled the key")
}

fn callback_on_executor(log: &Log) -> Result<&'static str> {
    ensure!(park_and_grow(log)? != thread::current().id());
    Ok("called on a worker")
}

fn closures(log: &Log) -> Result<&'static str> {
    let (sender, outcome) = mpsc::channel();
    let mut reached = log.reaches(1);
    let condition = move || reached().is_some();
    let callback = move |outcome| {
        // The receiver lives until the end of this function.
        let _ = sender.send(outcome);
    };
    // Two closures, a condition and a callback, make an operation.
    let operation = when(condition, callback);
    let parked = log
        .waits
        .try_complete_else_watch(operation, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1);
    ensure!(outcome.recv()? == Outcome::Completed);
    Ok("called, without a struct")
}

async fn future_awaited(log: &Log) -> Result<&'static str> {
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(1));
    let grows = log.clone();
    // The runtime has one thread: the log grows while the future waits.
    tokio::spawn(async move { grows.grow(1) });
    ensure!(end.await == Ok(1));
    Ok("yielded the log's end")
}

fn future_dropped(log: &Log) -> Result<&'static str> {
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(1));
    ensure!(log.waits.len() == 1, "parked by the call, before any poll");
    // A client that leaves has only to drop its future.
    drop(end);
    ensure!(log.waits.is_empty() && log.waits.keys() == 0);
    ensure!(log.grow(1) == 0);
    Ok("cancelled, and out of every list")
}

async fn select(log: &Log) -> Result<&'static str> {
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(1));
    let hung_up = future::ready(()); // the client has hung up
    tokio::select! {
        end = end => bail!("the log grew: {end:?}"),
        () = hung_up => {}
    }
    ensure!(log.waits.is_empty());
    Ok("cancelled, as the client hung up first")
}

fn blocked(log: &Log) -> Result<&'static str> {
    // Each check of the condition sends a message, so that the log grows after the first check.
    let (sender, looked) = mpsc::channel();
    let mut reached = log.reaches(1);
    let condition = move || {
        sender.send(()).ok()?;
        reached()
    };
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let end = log.waits.wait(&["log"], TIMEOUT, condition);
            end.wait_blocking()
        });
        looked.recv()?; // the first check, in vain
        log.grow(1);
        ensure!(waiter.join().ok() == Some(Ok(1)));
        Ok("has the log's end")
    })
}

/// Prints the outcome of a way to wait.
fn show(way: &str, outcome: Result<&str>) -> Result<()> {
    writeln!(io::stdout(), "{way:28}{}", outcome?)?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    Command::new("waiting")
        .about("The ways to wait; exits with 1 if an outcome is wrong, with 2 for any argument")
        .get_matches();
    let timer = SystemTimer::new()?;
    let log = || Log::new(&timer);
    show("callback", callback(&log()?))?;
    // Each way to wait has a log of its own, so that it sees no events of another.
    let on_executor = Log::with_callbacks_on_executor(&timer)?;
    show(
        "callback on the executor",
        callback_on_executor(&on_executor),
    )?;
    show("closures", closures(&log()?))?;
    show("future, awaited", future_awaited(&log()?).await)?;
    show("future, dropped", future_dropped(&log()?))?;
    show("tokio::select!", select(&log()?).await)?;
    show("thread", blocked(&log()?))
}
