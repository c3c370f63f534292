//! The ways to wait for a log to grow. Each function waits, lets the log grow, checks what came of
//! it, and tells it in a line; the first that is wrong ends the program.
//!
//! `cargo run --release --example waiting`

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::{future, io, io::Write, time::Duration};

use anyhow::{Result, bail, ensure};
use clap::Command;
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, Watermarks, when};
use timer_core::SystemTimer;

const TIMEOUT: Duration = Duration::from_secs(60); // longer than anything here takes

/// How far a log has come, and who waits for more.
#[derive(Clone)]
struct Log {
    end: Arc<AtomicU64>,
    waits: Purgatory<&'static str, BoxedOperation>,
}

impl Log {
    /// Its end has come to `offset`; returns how many that completed.
    fn grow(&self, offset: u64) -> usize {
        self.end.store(offset, SeqCst); // the condition first ...
        self.waits.check_and_complete(&"log") // ... then its event
    }

    /// A condition: the log's end, once it is at least `offset`.
    fn reaches(&self, offset: u64) -> impl FnMut() -> Option<u64> + Send + 'static {
        let end = self.end.clone();
        move || Some(end.load(SeqCst)).filter(|&end| end >= offset)
    }
}

/// Tells a client when the log has its record, and which thread that was.
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
    let parked = log.waits.try_complete_else_watch(produce, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1);
    let (outcome, told_by) = answer.recv()?;
    ensure!(outcome == Outcome::Completed && on_this_thread == (told_by == thread::current().id()));
    Ok(if on_this_thread { "told by the thread that raised the event" } else { "told by a worker" })
}

fn closures(log: &Log) -> Result<&'static str> {
    let ((told, outcome), mut reached) = (mpsc::channel(), log.reaches(1));
    let operation = when(move || reached().is_some(), move |outcome| _ = told.send(outcome));
    let parked = log.waits.try_complete_else_watch(operation, &["log"], TIMEOUT);
    ensure!(parked.is_ok() && log.grow(1) == 1 && outcome.recv()? == Outcome::Completed);
    Ok("told, without a struct")
}

async fn future_awaited(log: &Log) -> Result<&'static str> {
    let (end, grows) = (log.waits.wait(&["log"], TIMEOUT, log.reaches(1)), log.clone());
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

/// A value that says when it is given back, as a lease would.
struct Lease(mpsc::Sender<&'static str>);

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.send("given back"); // nobody may be listening
    }
}

fn future_of_a_guard(log: &Log) -> Result<&'static str> {
    let ((lender, given_back), mut reached) = (mpsc::channel(), log.reaches(1));
    let lease = move || reached().map(|_| Lease(lender.clone()));
    let lease = log.waits.wait(&["log"], TIMEOUT, lease);
    ensure!(log.grow(1) == 1 && given_back.try_recv().is_err(), "the future has the lease");
    drop(lease);
    ensure!(given_back.try_recv() == Ok("given back"));
    Ok("dropped unawaited, and the lease was given back")
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

fn threshold() -> Result<&'static str> {
    let applied = Watermarks::new("applied-index")?;
    let [three, five] = [3, 5].map(|index| applied.wait_for(&(), index, TIMEOUT));
    ensure!(applied.raise(&(), 4)? == 1 && applied.raise(&(), 9)? == 1);
    ensure!((three.wait_blocking(), five.wait_blocking()) == (Ok(4), Ok(9)));
    Ok("each has the value that reached it")
}

/// A task awaits the answer, stores it, and raises the event: a check could not await.
async fn asynchronous_condition(log: &Log) -> Result<&'static str> {
    let ((ask, answer), grows) = (tokio::sync::oneshot::channel(), log.clone());
    tokio::spawn(async move { answer.await.map(|offset| grows.grow(offset)) });
    let end = log.waits.wait(&["log"], TIMEOUT, log.reaches(7));
    ensure!(ask.send(7).is_ok() && end.await == Ok(7));
    Ok("a task awaited it, the event told")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    Command::new("waiting").about("The ways to wait; exits with 1 if one goes wrong").get_matches();
    let timer = SystemTimer::new()?;
    let builder = || Purgatory::builder("log").timer(&timer);
    let log = || builder().build().map(|waits| Log { end: Arc::default(), waits });
    let elsewhere = Log { end: Arc::default(), waits: builder().callbacks_on_executor().build()? };
    let show = |way, told: Result<_>| anyhow::Ok(writeln!(io::stdout(), "{way:28}{}", told?)?);
    show("callback", callback(&log()?, true))?;
    show("callback on the executor", callback(&elsewhere, false))?;
    show("closures", closures(&log()?))?;
    show("future, awaited", future_awaited(&log()?).await)?;
    show("future, dropped", future_dropped(&log()?))?;
    show("future of a guard", future_of_a_guard(&log()?))?;
    show("tokio::select!", select(&log()?).await)?;
    show("thread", blocked(&log()?))?;
    show("threshold", threshold())?;
    show("asynchronous condition", asynchronous_condition(&log()?).await)
}
