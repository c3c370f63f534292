//! A hierarchical timing wheel: starting and stopping a timer is O(1), time jumps from one due
//! bucket to the next, and nothing ever fires early.
//!
//! Servers start a timer for almost every request and stop almost every one of them again: the
//! answer came, the timeout did not. A timing wheel makes exactly that cheap. Tasks are kept in
//! buckets by when they are due; a coarse bucket's tasks are handed down to finer ones when its
//! time comes, and most are gone by then.
//!
//! # What is here
//!
//! | You want | Take |
//! |---|---|
//! | run something later, cancel or move it if need be | [`SystemTimer`] and [`Timer::schedule`] |
//! | run something again and again | [`Timer::schedule_at_fixed_rate`], [`Timer::schedule_with_fixed_delay`] |
//! | one kind of task, without a box each, within reach while pending | [`Timer::with_handler`] |
//! | one task a key: sessions, heartbeats | [`KeyedTimer`] |
//! | a timeout that ends with its scope | [`CancelOnDrop`] |
//! | to wait in async code, on any runtime | [`Timer::sleep`], [`Timer::timeout`], [`Timer::interval`] |
//! | the same in a test, with time in your hands | [`ManualTimer`] |
//! | the data structure, in your own event loop | [`TimingWheel`] |
//! | wheels of your own tasks, for many threads, on a shared reaper | the module [`driver`] |
//!
//! ```
//! use std::time::Duration;
//! use timer_core::{SystemTimer, Timer};
//!
//! let timer = SystemTimer::new()?;
//! let timeout = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
//! // ... the answer came:
//! assert!(timer.cancel(timeout));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - **Never early.** Deadlines count from the call and round up to a tick; when the machine keeps
//!   up a task fires within one tick of its deadline, plus the thread's wake-up.
//! - **Any time is legal.** Every `u64` of ticks has its place; longer durations saturate.
//! - **At once.** A cancelled task is out of the wheel and out of memory before `cancel` returns.
//! - **Idle is free.** The reaper sleeps until the next bucket that holds anything is due.
//! - **Bounded.** However many fall due, a lock is held for a few hundred of them at a time.
//! - **Panics stay inside.** A task that panics is contained and counted.
//! - **No lock is held while your code runs**, but for [`TaskTimer::with`] and the keys and clock
//!   of a [`KeyedTimer`], which say so.
//!
//! # How deadlines find their bucket
//!
//! With `n` slots a level, level `k` has buckets of `n^k` ticks. A deadline goes to the lowest
//! level on which it lies less than one turn ahead. With Kafka's 20 slots and ticks of 1 ms:
//!
//! | level | a bucket | one turn |
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
//! Most timers are cancelled on the level they were first put on, and are never handed down. By
//! default a level has 64 slots, one machine word of occupancy, and hours take four levels.
//!
//! Source: G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*, SOSP 1987.
//!
//! # In async code
//!
//! [`Sleep`], [`TimeoutFuture`] and [`Interval`] are futures on any timer, for any runtime or none:
//! what they leave on the wheel is a waker. They register when they are first polled and not ready,
//! are off the wheel as soon as they are dropped, and do not need to be pinned (a timeout, if what
//! it limits does not).
//!
//! ```
//! use std::time::Duration;
//! use timer_core::{MissedTicks, SystemTimer, TimeoutError, Timer};
//!
//! # pollster::block_on(async {
//! let timer = SystemTimer::new()?;
//! timer.sleep(Duration::from_millis(5)).await?;
//!
//! let answer = std::future::pending::<u32>();
//! let late = timer.timeout(Duration::from_millis(5), answer).await;
//! assert_eq!(late, Err(TimeoutError::Elapsed));
//!
//! let mut beat = timer.interval(Duration::from_millis(1))?.missed_ticks(MissedTicks::Skip);
//! for _ in 0..3 {
//!     beat.tick().await?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a test they sleep on a [`ManualTimer`], and you turn its clock once those whose turn it is
//! are [registered](Sleeps::len).
//!
//! # Recipes
//!
//! *Timeout.* [`Timer::schedule`] when the request goes out, [`Timer::cancel`] when the answer
//! comes; or a [`CancelOnDrop`] in the scope that waits.
//!
//! *Heartbeat, session.* A [`KeyedTimer`] by member: each heartbeat schedules the member's task
//! again, which replaces it; the handler is what happens when none came. With a handle at hand,
//! [`Timer::reschedule`] does the same without a map.
//!
//! *Retry with backoff.* The task schedules itself, with twice the delay:
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use timer_core::{Clock, ManualTimer, Timer};
//!
//! fn attempt(timer: &ManualTimer, delay: Duration, tried: mpsc::Sender<u64>) {
//!     let again = timer.clone();
//!     let task = move || {
//!         tried.send(again.clock().now_ns() / 1_000_000).unwrap();
//!         attempt(&again, delay * 2, tried); // it failed
//!     };
//!     timer.schedule(delay, task).unwrap();
//! }
//!
//! let timer = ManualTimer::new();
//! let (send, tried) = mpsc::channel();
//! attempt(&timer, Duration::from_millis(100), send);
//! timer.advance(Duration::from_secs(1));
//! assert_eq!(tried.try_iter().collect::<Vec<_>>(), [100, 300, 700]);
//! # timer.shutdown();
//! ```
//!
//! *Periodic.* [`Timer::schedule_at_fixed_rate`] keeps a beat and lets missed starts fall out;
//! [`Timer::schedule_with_fixed_delay`] leaves a pause between runs.
//!
//! *Your own event loop.* Drive a [`TimingWheel`]: sleep until `next_due`, call `advance`. Nothing
//! in it reads a clock, takes a lock or starts a thread.
//!
//! *Tests.* A [`ManualTimer`] is the real wheel under a clock that you turn; what falls due runs in
//! order, on your thread.
//!
//! # Beside others
//!
//! - *tokio's timer* wakes tasks of its runtime; inside one, for a few thousand sleeps, take it. It
//!   keeps one wheel under one lock, of 64 slots a level like this one, and rounds to milliseconds.
//!   Take this crate when timers are started and stopped from many threads at high rates, when what
//!   expires is a callback or a message, when time must be injected, or without a runtime. A sleep
//!   here wakes by way of the reaper and a worker: two threads' wake-ups, where tokio's wakes on
//!   the spot.
//! - *tokio-util's `DelayQueue`* is a wheel owned by one task and polled by it. `TimingWheel` is
//!   that without the runtime.
//! - *A heap or tree of deadlines* costs O(log n) to start and stop and keeps perfect order within
//!   a tick. With few timers nothing is simpler.
//!
//! # Trade-offs
//!
//! - A timer fires at the first tick at or after its deadline: up to one tick late, by design.
//!   Halve the tick to halve that; 100 µs is the least.
//! - Tasks of one tick fire in no promised order, but on a [`ManualTimer`].
//! - Memory comes in pages of 64 tasks: one task that stays holds its page.
//! - What expires runs on one worker unless you ask for more: tasks must not block for long, or
//!   bring an executor.
//!
//! # Features
//!
//! - `keyed` (on by default): [`KeyedTimer`].
//! - `metrics` (on by default): `SystemTimer::publish` hands [`SystemTimer::stats`] to the
//!   `metrics` facade.
//! - `serde`: [`TimerStats`] can be serialised.
//! - `boot-clock`: `BootClock`, a clock that counts the time the machine is suspended.
//! - `stream`: [`Interval`] is a `futures_core::Stream`.
//! - `hyper`: `HyperTimer`, a timer as hyper's own.
//! - `tokio`: `SystemTimerBuilder::tokio`, a timer without a thread, on a runtime and its clock;
//!   `TokioExecutor`.
//!
//! # Questions
//!
//! *Does an idle timer cost anything?* Two sleeping threads. The reaper wakes when a bucket that
//! holds something is due; a cancelled timer's bucket wakes it at most once.
//!
//! *What if the machine is suspended?* [`SystemClock`] stands still meanwhile on Linux, so timeouts
//! count running time. With the feature `boot-clock`, `BootClock` counts on.
//!
//! *Can a task cancel or schedule others, or itself?* Yes: nothing is locked while it runs.
//!
//! *What happens when a task panics?* It is contained, counted ([`Timer::panicked`]) and reported
//! ([`SystemTimerBuilder::on_panic`]); the others run.
//!
//! *How far ahead?* Any `u64` of ticks. Levels are made as deadlines need them.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod driver;
mod observe;
mod sync;
mod timers;
mod wheel;

#[cfg(all(feature = "boot-clock", any(target_os = "linux", target_os = "android")))]
pub use driver::boot_clock::BootClock;
pub use driver::clock::{Clock, ManualClock, SystemClock};
pub use driver::executor::{Executor, JOB_TASKS, Job, Workers};
pub use driver::handle::{MAX_SHARDS, TimerHandle};
pub use driver::panics::Panicked;
pub use driver::spi::TimerClosed;
#[cfg(feature = "tokio")]
pub use driver::tokio::TokioExecutor;
pub use observe::histogram::TimeHistogram;
pub use observe::stats::TimerStats;
pub use timers::errors::{BuildError, ScheduleError, ScheduleErrorReason};
pub use timers::guard::CancelOnDrop;
#[cfg(feature = "hyper")]
pub use timers::hyper::HyperTimer;
pub use timers::interval::{Interval, MissedTicks};
#[cfg(feature = "keyed")]
pub use timers::keyed::KeyedTimer;
pub use timers::manual::ManualTimer;
pub use timers::periodic::{Periodic, PeriodicError};
pub use timers::sleep::{Sleep, Sleeps};
pub use timers::system::{SystemTimer, SystemTimerBuilder, TimerLeft};
pub use timers::task::{SharedTask, TimerTask};
pub use timers::task_timer::TaskTimer;
pub use timers::timeout::{TimeoutError, TimeoutFuture};
pub use timers::timer::Timer;
pub use wheel::arena::{MAX_TASKS, TaskId};
pub use wheel::geometry::{SizeError, WheelSize};
pub use wheel::occupancy::LevelStats;
pub use wheel::tick::{TickError, TickLength};
pub use wheel::timing_wheel::{Advanced, DueTask, Full, Scheduled, TimingWheel};

/// The programs in the README, as they are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
