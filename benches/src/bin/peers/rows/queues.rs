//! Rows of queues of delayed values, which one owner polls.
//!
//! `queue-insert-remove`: the cost of a value that is removed before it is due, while 100 000 are
//! pending that are due in one to two hours. The owner polls after each 16 values.
//!
//! `queue-poll-idle`: the same with a poll while each value waits, which finds nothing due. So does
//! a server at each request, when it polls its queue beside its socket.
//!
//! `queue-expire`: the cost of polling a value out, of many that fell due within 16 ms. Filling the
//! queue is not measured (`benches/instructions.py` counts it, too).

use std::{hint::black_box, time::Duration};

use anyhow::{Context, ensure};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::{
    row::Run,
    timers::{far, wait},
};
use crate::{
    contender::contenders,
    queues::{DelayedValues, Ours, TokioUtil},
};

/// The timeout of a value that is removed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time within which all values of `queue-expire` fall due, in milliseconds.
const WINDOW_MS: u64 = 16;

/// The work on one queue.
#[derive(Clone, Copy)]
struct Work {
    pending: usize,
    operations: usize,
    /// The owner polls at each operation.
    polls_each: bool,
}

/// Measures nanoseconds per value that is inserted and removed.
fn insert_remove<Q: DelayedValues>(of: Work) -> anyhow::Result<f64> {
    let mut queue = Q::start()?;
    let mut random = Rng::with_seed(1);
    for value in 0..of.pending as u64 {
        queue.insert(value, far(&mut random));
    }

    // The first half warms up.
    let clock = SystemClock::new();
    let mut begin_ns = 0;
    let mut sum = 0;
    for operation in 0..2 * of.operations {
        if operation == of.operations {
            begin_ns = clock.now_ns();
        }
        if operation % 16 == 0 {
            ensure!(queue.poll_once().is_none(), "{}: early", Q::NAME);
        }
        let key = queue.insert(operation as u64, TIMEOUT);
        if of.polls_each {
            ensure!(queue.poll_once().is_none(), "{}: early", Q::NAME);
        }
        sum += queue.remove(black_box(key)).context("a value is gone")?;
    }
    let spent_ns = clock.now_ns() - begin_ns;

    // The sum shows that each key named its value.
    let operations = 2 * of.operations as u64;
    let right = sum == operations * (operations - 1) / 2;
    ensure!(right, "{}: other values were removed", Q::NAME);
    Ok(spent_ns as f64 / of.operations as f64)
}

/// Measures nanoseconds per value that is polled out.
fn expire<Q: DelayedValues>(of: Work) -> anyhow::Result<f64> {
    let mut queue = Q::start()?;
    let mut random = Rng::with_seed(1);
    for value in 0..of.operations as u64 {
        queue.insert(value, Duration::from_millis(random.u64(1..=WINDOW_MS)));
    }
    wait(Duration::from_millis(WINDOW_MS + 2));

    let clock = SystemClock::new();
    let mut fired = 0;
    let mut sum = 0;
    queue.expire_all(|value| {
        fired += 1;
        sum += value;
    });
    let spent_ns = clock.now_ns();

    // Number and sum show that each came out once.
    let values = of.operations as u64;
    let right = fired == values && black_box(sum) == values * (values - 1) / 2;
    ensure!(right, "{}: {fired} came out", Q::NAME);
    Ok(spent_ns as f64 / values as f64)
}

pub(super) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // What the row measures, and beside how many values that stay.
    let (pending, contenders) = match id {
        "queue-expire" => (0, contenders!(expire, DelayedValues: Ours, TokioUtil)),
        _ => (
            run.sizes.hundred_k,
            contenders!(insert_remove, DelayedValues: Ours, TokioUtil),
        ),
    };
    let of = Work {
        pending,
        operations: run.sizes.operations,
        polls_each: id == "queue-poll-idle",
    };
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns", &contenders, of)?;
    }
    Ok(())
}
