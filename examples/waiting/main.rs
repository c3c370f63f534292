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
use timer_core::SystemTimer;

const TIMEOUT: Duration = Duration::from_secs(60); // longer than anything here takes

/// The offset that a log has come to, and the waits for more.
#[derive(Clone)]
struct Log {
    end: Arc<AtomicU64>,
    waits: Purgatory<&'static str, BoxedOperation>,
}

impl Log {
    /// Moves the log's end to `offset`; returns the number of operations that this completed.
    fn grow(&self, offset: u64) -> usize {
        self.end.store(offset, SeqCst); // the condition first ...
        self.waits.check_and_complete(&"log") // ... then its event
    }

    /// Makes a condition: the log's end, once it is at least `offset`.
    fn reaches(&self, offset: u64) -> impl FnMut() -> Option<u64> + Send + 'static {
        let end = self.end.clone();
        move || Some(end.load(SeqCst)).filter(|&end| end >= offset)
    }
}

/// Tells a client the outcome, and which thread told it.
struct DelayedProduce(Arc<AtomicU64>, mpsc::Sender<(Outcome, ThreadId)>);

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.0.load(SeqCst) >= 1
    }

    fn on_complete(self, outcome: Outcome) {
        let _ = self.1.send((outcome, thread::current().id())); // the client may have gone
    }
}

fn callback(log: &Log, on_this_thread: bool) -> Result<&'static str> {
    let (client, answer) = mpsc::channel();
    let produce = BoxedOperation::new(DelayedProduce(log.end.clone(), client));
    let parked = log
        .waits
        .try_complete_else_watch(produce, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1);
    let (outcome, told_by) = answer.recv()?;
    ensure!(outcome == Outcome::Completed && on_this_thread == (told_by == thread::current().id()));
    Ok(if on_this_thread {
        "told by the thread that raised the event"
    } else {
        "told by a worker"
    })
}

fn closures(log: &Log) -> Result<&'static str> {
    let ((told, outcome), mut reached) = (mpsc::channel(), log.reaches(1));
    let operation = when(
        move || reached().is_some(),
        move |outcome| _ = told.send(outcome),
    );
    let parked = log
        .waits
        .try_complete_else_watch(operation, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1 && outcome.recv()? == Outcome::Completed);
    Ok("told, without a struct")
}

async fn future_awaited(log: &Log) -> Result<&'static str> {
    let (end, grows) = (
        log.waits.wait(&["log"], TIMEOUT, log.reaches(1)),
        log.clone(),
    );
    tokio::spawn(async move { grows.grow(1) });
    ensure!(end.await == Ok(1));
    Ok("yielded the log's end")
}

fn future_dropped(log: &Log) -> Result<&'static str> {
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(1));
    ensure!(log.waits.len() == 1, "parked by the call, before any poll");
    drop(end);
    ensure!((log.waits.len(), log.waits.keys(), log.grow(1)) == (0, 0, 0));
    Ok("cancelled, and out of every list")
}

async fn select(log: &Log) -> Result<&'static str> {
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(1));
    let hung_up = future::ready(()); // the client has
    tokio::select! { end = end => bail!("the log grew: {end:?}"), () = hung_up => {} }
    ensure!(log.waits.is_empty());
    Ok("cancelled, as the client hung up first")
}

fn blocked(log: &Log) -> Result<&'static str> {
    let ((told, looked), mut reached) = (mpsc::channel(), log.reaches(1));
    let condition = move || told.send(()).ok().and_then(|()| reached());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| log.waits.wait(&["log"], TIMEOUT, condition).wait_blocking());
        looked.recv()?; // once, in vain
        log.grow(1);
        ensure!(waiter.join().ok() == Some(Ok(1)));
        Ok("has the log's end")
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    Command::new("waiting")
        .about("The ways to wait; exits with 1 if one goes wrong")
        .get_matches();
    let timer = SystemTimer::new()?;
    let builder = || Purgatory::builder("log").timer(&timer);
    let log = || {
        builder().build().map(|waits| Log {
            end: Arc::default(),
            waits,
        })
    };
    let elsewhere = Log {
        end: Arc::default(),
        waits: builder().callbacks_on_executor().build()?,
    };
    let show = |way, told: Result<_>| anyhow::Ok(writeln!(io::stdout(), "{way:28}{}", told?)?);
    show("callback", callback(&log()?, true))?;
    show("callback on the executor", callback(&elsewhere, false))?;
    show("closures", closures(&log()?))?;
    show("future, awaited", future_awaited(&log()?).await)?;
    show("future, dropped", future_dropped(&log()?))?;
    show("tokio::select!", select(&log()?).await)?;
    show("thread", blocked(&log()?))
}
