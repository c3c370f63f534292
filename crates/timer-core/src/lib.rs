//! A hierarchical timing wheel: starting and stopping a timer is O(1), an idle timer wakes no
//! thread, and nothing ever fires early.
//!
//! Servers start a timer for almost every request, and stop almost every one before it fires.
//!
//! ```
//! use std::time::Duration;
//! use timer_core::SystemTimer;
//!
//! let timer = SystemTimer::new()?;
//! let timeout = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
//! // ... the answer came:
//! assert!(timer.cancel(timeout));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contents
//!
//! | I want | Use |
//! |---|---|
//! | to run something later, cancel it or move it | [`SystemTimer`] and [`Timer::schedule`] |
//! | to run something again and again | [`Timer::schedule_at_fixed_rate`], [`Timer::schedule_with_fixed_delay`] |
//! | to wait in async code | [`Timer::sleep`], [`timeout`], [`Timer::interval`] |
//! | to poll values out once their time has come | [`DelayQueue`] |
//! | many tasks of one type, without a box each | [`Timer::with_handler`] |
//! | tests that do not sleep | [`ManualTimer`]; a [`Timer`] in types of mine |
//! | one timer for the process | [`Timer::shared`] |
//! | the timer of this tokio runtime, without a thread | `Timer::tokio` (feature `tokio`) |
//! | the data structure, in my own event loop | [`TimingWheel`] |
//!
//! # Guarantees
//!
//! - **Never early.** Deadlines count from the call and round up to a tick. On a machine that keeps
//!   up a task fires within one tick of its deadline, plus the thread's wake-up.
//! - **Any time is legal.** Every `u64` of ticks has its place; longer durations saturate.
//! - **At once.** A cancelled task has left the wheel and the memory before `cancel` returns.
//! - **Idle is free.** The reaper sleeps until the next bucket that holds anything is due.
//! - **Bounded.** However many tasks fall due, a lock is held for a few hundred of them at a time
//!   (on a [`ManualTimer`] for a whole tick).
//! - **Panics are contained** and counted ([`TaskTimer::panicked`], [`TimerStats::panics`]).
//! - **No lock is held while your code runs**, except in [`TaskTimer::with`] and for a clock of
//!   yours.
//!
//! # How deadlines find their bucket
//!
//! With `n` slots a level, level `k` has buckets of `n^k` ticks. A deadline goes to the lowest
//! level on which it lies less than one round ahead. With Kafka's 20 slots and ticks of 1 ms:
//!
//! | level | a bucket | one round |
//! |---|---|---|
//! | 0 | 1 ms | 20 ms |
//! | 1 | 20 ms | 400 ms |
//! | 2 | 400 ms | 8 s |
//! | 3 | 8 s | 160 s |
//!
//! So at time 0 a deadline of 450 ms waits in level 2's bucket for `[400, 800)`; at 400 it is
//! handed down to level 1, `[440, 460)`; at 440 to level 0; and fires at 450:
//!
//! ```text
//! level 2   |0       |400     |800     |1200 ...     450 waits here from 0 to 400,
//!                     ▼
//! level 1             |400|420|440|460| ...          here from 400 to 440,
//!                             ▼
//! level 0                     |440|441|...|450|      here from 440 to 450, and fires.
//! ```
//!
//! ```text
//! schedule ─▶ shard, by thread ─▶ bucket, by deadline ─▶ handed down ─▶ due ─▶ job ─▶ task runs
//!             (one lock)          cancel: out at once    reaper: 256 a lock hold      worker
//! ```
//!
//! By default a level has 64 slots, so hours take four levels. In a timer each level has twice as
//! many slots, and a coarse bucket is handed down from a quarter of its span before it expires; due
//! tasks go first.
//!
//! Source: G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*, SOSP 1987.
//!
//! # In async code
//!
//! A [`Sleep`], a [`timeout`] and an [`Interval`]'s tick are futures for any runtime. They leave
//! the wheel as soon as they are dropped.
//!
//! ```
//! use std::time::Duration;
//! use timer_core::{SystemTimer, TimerError, timeout};
//!
//! # pollster::block_on(async {
//! let timer = SystemTimer::new()?;
//! timer.sleep(Duration::from_millis(5)).await?;
//!
//! let answer = std::future::pending::<u32>();
//! let late = timeout(timer.sleep(Duration::from_millis(5)), answer).await;
//! assert_eq!(late, Err(TimerError::Elapsed));
//!
//! let mut beat = timer.interval(Duration::from_millis(1))?;
//! for _ in 0..3 {
//!     beat.tick().await?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a [`ManualTimer`], advance the clock once the sleeps are [registered](Timer::sleepers).
//!
//! # Good to know
//!
//! - 100 µs is the shortest tick. Tasks of one tick fire in no promised order, except on a
//!   [`ManualTimer`].
//! - Expired tasks run on one worker unless you ask for more, and must not block for long. A task
//!   may schedule and cancel others and itself.
//! - An idle timer is two sleeping threads.
//! - On Linux [`SystemClock`] stands still while the machine is suspended, but not while the
//!   process is stopped: see [`SystemTimerBuilder::grace`] and [`DelayQueue::grace`].
//! - Memory comes in pages of 64 tasks, the first of which begins small and grows. A page is kept
//!   as long as one of its tasks stays.
//!
//! # Beside others
//!
//! - *tokio's timer*: inside a runtime, for a few thousand sleeps, use it: a sleep here costs two
//!   more thread wake-ups. Use this crate when many threads start and stop timers at high rates,
//!   when callbacks expire, when tests advance the clock, or without a runtime.
//! - *tokio-util's `DelayQueue`*: [`DelayQueue`] is the same for any runtime, and for a clock that
//!   tests advance; [`TimingWheel`] is the same without a clock.
//! - *A heap or a tree of deadlines* starts and stops a timer in O(log n), and keeps order within a
//!   tick. With few timers nothing is simpler.
//!
//! # Features
//!
//! - `metrics` (on by default): `Timer::publish` hands [`Timer::stats`] to the `metrics` facade.
//! - `parking_lot` (on by default): its locks instead of std's.
//! - `serde`: [`TimerStats`] can be serialised.
//! - `tokio`: `Timer::tokio` and `SystemTimerBuilder::tokio` make a timer without a thread, on a
//!   runtime and its clock; a runtime's `Handle` is an [`Executor`].

#![cfg_attr(docsrs, feature(doc_cfg))] // docs.rs shows which feature an item is behind
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[doc(hidden)] // for crate purgatory: not covered by semantic versioning
pub mod driver;
mod observe;
mod panics;
mod sync;
mod timers;
mod wheel;

pub use driver::clock::{Clock, Moment, SystemClock};
pub use driver::executor::{Executor, JOB_TASKS, Job, Workers};
pub use driver::handle::TimerHandle;
pub use driver::shards::MAX_SHARDS;
pub use driver::tick::TickLength;
pub use observe::{TimeHistogram, TimerStats};
pub use timers::delay_queue::{DelayQueue, Expired};
pub use timers::interval::Interval;
pub use timers::manual::ManualTimer;
pub use timers::periodic::Periodic;
pub use timers::sleep::{Sleep, timeout};
pub use timers::system::{SystemTimer, SystemTimerBuilder};
pub use timers::task_timer::TaskTimer;
pub use timers::timer::{Timer, TimerLeft};
pub use timers::{BuildError, ScheduleError, TimerError, TimerTask};
pub use wheel::geometry::{OutOfBounds, WheelSize};
pub use wheel::node::{MAX_TASKS, TaskId};
pub use wheel::timing_wheel::{Advanced, DueTask, Scheduled, TimingWheel};

/// The programs in the README, as they are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
