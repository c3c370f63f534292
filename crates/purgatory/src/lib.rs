//! A keyed condition variable with timeouts, for tasks and threads. Any thread can complete a
//! request that is parked here; a timer expires it otherwise.
//!
//! A produce with acks=all waits until every in-sync replica has the record, a fetch waits for
//! bytes, a write for a quorum. Such a request is *parked* under one or more *watch keys*. A thread
//! that changes the state *signals* the key, and the requests under that key are checked again. A
//! request that is not completed in time *expires*. Apache Kafka calls this a *purgatory*.
//!
#![doc = include_str!("../doc/event.svg")]
//!
//! ```
//! use std::{thread, time::Duration};
//! use purgatory::{WaitError, Watermarks};
//!
//! // The high watermark of each partition.
//! let high_watermarks = Watermarks::new("produce")?;
//!
//! // A produce with acks=all waits until it passes the record.
//! let long = Duration::from_secs(30);
//! let short = Duration::from_millis(20);
//! let produce = high_watermarks.wait_for(&"orders-0", 42, long);
//! let stalled = high_watermarks.wait_for(&"orders-1", 7, short);
//!
//! // The followers have the record.
//! let followers = high_watermarks.clone();
//! thread::spawn(move || followers.advance(&"orders-0", 42));
//!
//! // In a task: `produce.await`.
//! assert_eq!(produce.wait_blocking(), Ok(42));
//! assert_eq!(stalled.wait_blocking(), Err(WaitError::Expired));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! A request of your own, with a check and a callback, is a [`DelayedOperation`]. The [`guide`]
//! begins with [a first program](guide::start) and the [terms](guide::start#terms).
//!
//! # Which type
//!
//! | You have | Take |
//! |---|---|
//! | replicas that report how far they are | [`ReplicaSets`]: wait until all, or a majority, have it |
//! | values that only advance, one for each key | [`Watermarks`] |
//! | requests, and replies in any order | [`Replies`]; over several connections [`ReplyScope`] |
//! | shared state that requests wait on | [`Monitor`], a condition variable for tasks and threads |
//! | a number of permits, for requests in turn | [`Permits`], a semaphore |
//! | a lock or lease for each name, first come, first served | [`Permits`] with keys ([leases](guide::recipes::leases)) |
//! | a condition of your own | [`Purgatory::wait`], for tasks and threads |
//! | a request with a callback of its own | [`DelayedOperation`], or [`when`] with two closures |
//!
//! # When not to use it
//!
//! | You need | Use |
//! |---|---|
//! | a pool or a limit, for tasks | tokio's `Semaphore` |
//! | values loaded once and kept | a cache: `moka` |
//! | limits and timeouts around a service | `tower` |
//! | a wake-up for a condition in code of your own | `event-listener`, a condition variable |
//! | values that fall due, for one owner | a `DelayQueue`: tokio-util's, or `timer-core`'s |
//! | the latest value, for all tasks | tokio's `watch` |
//! | one event, for all tasks | tokio's `Notify` |
//! | one answer that always comes, for one task | a oneshot; a [safe map of them](guide::hand_written) |
//! | waits that outlive the process | a database, a durable queue |
//!
//! # How do I
//!
//! - **Begin:** [a first program](guide::start), [programs to paste](guide::recipes), [from
//!   hand-written code](guide::hand_written).
//! - **Block a thread:** [`WaitFuture::wait_blocking`]. **Run on tokio:** a `Handle` as
//!   [executor][executor], a [timer on its clock][timer]: [tokio](guide::tokio).
//! - **Mix kinds of request** in one purgatory: [`BoxedOperation`]. **Wait for several keys:**
//!   [`Watches`].
//! - **Wake one waiter**, like `notify_one`: [`Purgatory::check_and_complete_one`],
//!   [`Monitor::update_one`].
//! - **Say in an event what has changed:** [`Purgatory::check_and_complete_with`].
//! - **End operations:** [`cancel`](Purgatory::cancel), [`complete`](Purgatory::complete); all of a
//!   key: [`cancel_for_key`](Purgatory::cancel_for_key),
//!   [`complete_for_key`](Purgatory::complete_for_key); all: [`cancel_all`](Purgatory::cancel_all),
//!   [`complete_all`](Purgatory::complete_all). **Set a new deadline:**
//!   [`reschedule`](Purgatory::reschedule).
//! - **Look at, change or take out** parked operations: [`with`](Purgatory::with),
//!   [`take`](Purgatory::take), by a name of yours [`with_for_key`](Purgatory::with_for_key),
//!   [`take_for_key`](Purgatory::take_for_key); all: [`for_each`](Purgatory::for_each).
//! - **Keep slow callbacks off the signalling thread:** [`Builder::callbacks_on_executor`].
//! - **Share a timer, bound what waits:** [`Builder::timer`], [`Builder::max_parked`]:
//!   [scale](guide::scale).
//! - **Wait on one thread**, with values that are not `Send`: [local](guide::local).
//! - **Test without sleeping:** [`ManualTimer`](timer_core::ManualTimer):
//!   [testing](guide::testing).
//! - **See what waits:** [`Purgatory::snapshot`], [`Purgatory::stats`], [`Watches::labelled`]; in
//!   another form, its [`Waits`].
//! - **Find missed events:** [`Builder::check_at_expiry`] (on for waits),
//!   [`Builder::recheck_every`]: [operating](guide::operating).
//!
//! # Promises
//!
//! - **One outcome.** Every accepted operation ends exactly once, through races, panics and
//!   shutdown.
//! - **No lost event**, not even between check and registration:
//!   [the one rule](Purgatory#the-one-rule).
//! - **Never early.** No operation expires before its deadline, in nanoseconds.
//! - **No thread blocks** while another runs a check or callback, and neither runs under a lock of
//!   the purgatory ([with these exceptions](guide::your_code)).
//! - **Nothing stays.** An ended operation is out of every watch list and out of the wheel at once.
//!   (If it expired under more than 17 keys, it leaves the lists when its callback runs.)
//! - **Panics are contained** and counted: those of checks, callbacks and wakers. (A `Drop`, or a
//!   key's `Eq`, `Hash` or `Clone`, may reach the caller or abort, as in std's collections.)
//!
//! # Features
//!
//! - `parking_lot` (on by default): its locks instead of std's.
//! - `metrics` (on by default): [`Purgatory::publish`][publish] publishes counts and times to the
//!   `metrics` facade.
//! - `serde`: a [`Snapshot`] can be serialised.
//! - `tokio`: a runtime's `Handle` is an [executor][executor], for callbacks inside it; and [a
//!   timer][timer] on its clock.
//! - `tracing`: events for operations that are not parked (debug), checks and callbacks that panic
//!   (error), callbacks that keep the executor for 100 ms, missed events and, in debug builds, checks
//!   that take more than a second (warn), and shutdown (info).
//!
#![cfg_attr(feature = "metrics", doc = "[publish]: Purgatory::publish")]
#![cfg_attr(not(feature = "metrics"), doc = "[publish]: guide::operating#metrics")]
#![cfg_attr(
    feature = "tokio",
    doc = "[executor]: timer_core::Executor#impl-Executor-for-Handle"
)]
#![cfg_attr(feature = "tokio", doc = "[timer]: timer_core::Timer::tokio")]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[executor]: guide::tokio\n[timer]: guide::tokio"
)]
// docs.rs shows which feature an item is behind.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[macro_use]
#[doc(hidden)]
pub mod sync;

mod boxed;
mod builder;
mod engine;
mod error;
pub mod guide;
mod in_epoch;
mod monitor;
mod operation;
mod origin;
mod permits;
mod purgatory;
mod reason;
mod replica_sets;
mod replies;
#[cfg(feature = "metrics")]
mod samples;
mod settings;
mod shard;
mod stats;
mod table;
mod wait;
mod waits;
mod watches;
mod watermarks;

pub use boxed::{BoxedOperation, when};
pub use builder::Builder;
pub use error::{Refused, WaitError};
pub use in_epoch::InEpoch;
pub use monitor::Monitor;
pub use operation::{CancelReason, DelayedOperation, OperationId, Outcome, ReachResult, Timeout};
pub use permits::{Lease, Permit, Permits};
pub use purgatory::Purgatory;
pub use reason::Reason;
pub use replica_sets::{ReplicaSets, Rule};
pub use replies::{Replies, ReplyScope, ReplyStream};
pub use stats::{Parked, Snapshot, Stats, Times};
pub use timer_core;
pub use wait::{IntoAnswer, WaitFuture};
pub use waits::Waits;
pub use watches::{IntoWatches, KeyRef, ToKey, WatchKey, Watches};
pub use watermarks::{WatermarkValue, Watermarks};

/// Tests the programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
