//! Park a request until a condition holds. Any thread can complete it; a timer expires it
//! otherwise.
//!
//! A produce with acks=all waits until every in-sync replica has the record, a fetch waits for
//! bytes, a write for a quorum. Such a request is *parked* under one or more *watch keys*. A thread
//! that changes the state *signals* the key, and the requests under that key are checked again. A
//! request that is not completed in time *expires*. Apache Kafka calls this a *purgatory*.
//!
#![doc = include_str!("../doc/event.svg")]
//!
#![cfg_attr(feature = "keyed", doc = "```")]
#![cfg_attr(not(feature = "keyed"), doc = "```ignore")]
//! use std::{thread, time::Duration};
//! use purgatory::{WaitError, Watermarks};
//!
//! let high_watermarks = Watermarks::new("produce")?; // one for each partition
//!
//! // A produce with acks=all: until the high watermark has passed its record.
//! let long = Duration::from_secs(30);
//! let short = Duration::from_millis(20);
//! let produce = high_watermarks.wait_for(&"orders-0", 42, long);
//! let stalled = high_watermarks.wait_for(&"orders-1", 7, short);
//!
//! let followers = high_watermarks.clone();
//! thread::spawn(move || followers.advance(&"orders-0", 42)); // they have the record
//!
//! assert_eq!(produce.wait_blocking(), Ok(42)); // or in a task: produce.await
//! assert_eq!(stalled.wait_blocking(), Err(WaitError::Expired));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! A request of your own, with a check and a callback, is a [`DelayedOperation`]. The [`guide`]
//! begins with [a first program](guide::start) and the [terms](guide::start#terms).
//!
//! # What is here
//!
//! | I want | Use | Chapter |
//! |---|---|---|
//! | to wait for values that only rise, or for k of n | [`Watermarks`] | [watermarks](guide::watermarks) |
//! | to match replies with requests | [`Replies`]; over several connections [`ReplyScope`] | [replies](guide::replies) |
//! | shared state that requests wait on | [`Monitor`], unless many wait under one key: each change checks them all | [monitor](guide::monitor) |
//! | a request of my own, with a callback | [`DelayedOperation`], or [`when`] with two closures | [operations](guide::operations) |
//! | several kinds of request in one purgatory | [`BoxedOperation`] | [operations](guide::operations) |
//! | to wait for a value, in a task or a thread | [`Purgatory::wait`], [`WaitFuture::wait_blocking`] | [operations](guide::operations) |
//! | to wait for keys, watermarks or both | [`Watches`] | [watches](guide::watches) |
//! | to wake one waiter (like `notify_one`) | [`Purgatory::check_and_complete_one`], [`Monitor::update_one`] | [watches](guide::watches) |
//! | to say in an event what has changed | [`Purgatory::check_and_complete_with`] | [operations](guide::operations) |
//! | to end one, or several | [`Purgatory::cancel`], [`complete`](Purgatory::complete) | [lifecycle](guide::lifecycle) |
//! | to end all of a key, or all | [`Purgatory::cancel_for_key`], [`Purgatory::complete_for_key`], [`Purgatory::cancel_all`], [`Purgatory::complete_all`] | [lifecycle](guide::lifecycle) |
//! | to look at, change or take out what is parked | [`Purgatory::with`], [`take`](Purgatory::take), [`for_each`](Purgatory::for_each) | [operations](guide::operations) |
//! | slow callbacks on other threads | [`Builder::callbacks_on_executor`] | [lifecycle](guide::lifecycle) |
//! | to give one more time | [`Purgatory::reschedule`] | [time](guide::time) |
//! | one thread, operations that are not `Send` | a timer that the event loop advances | [local](guide::local) |
//! | tests that do not sleep | [`ManualTimer`](timer_core::ManualTimer) | [testing](guide::testing) |
//! | callbacks or a timer on a runtime | a `Handle` as [executor][executor], [`SystemTimerBuilder::tokio`][timer] | [tokio](guide::tokio) |
//! | one timer for several purgatories | [`Builder::timer`] | [scale](guide::scale) |
//! | a bound on what waits | [`Builder::max_parked`], [`Builder::max_weight`] | [scale](guide::scale) |
//! | to see which operations wait, and since when | [`Purgatory::snapshot`], [`Purgatory::stats`], [`Watches::labelled`] | [operating](guide::operating) |
//! | to find and recheck lost wakeups | [`Builder::check_at_expiry`] (by default for waits), [`Builder::recheck_every`] | [operating](guide::operating) |
//! | a program to start from | | [recipes](guide::recipes) |
//! | to compare with hand-written code | | [hand-written](guide::hand_written) |
//!
//! # What is promised
//!
//! - **One outcome.** Every accepted operation ends exactly once, whatever races, through panics
//!   and shutdown too.
//! - **No lost wakeup.** See [the one rule](Purgatory#the-one-rule).
//! - **Never early.** No operation expires before its deadline, in nanoseconds.
//! - **No thread blocks** while another runs a check or callback, and neither runs under a lock of
//!   the purgatory. (The closures of a [`Monitor`] run under the monitor's own lock.)
//! - **Nothing stays.** An ended operation is out of every watch list and out of the wheel at once.
//!   (If it expired under more than 17 keys, it leaves the lists when its callback runs.) Counters
//!   are exact while no other thread is active.
//! - **Panics are contained.** A check, callback or waker that panics is counted and ends nothing
//!   else. (A `Drop` that panics, or a key's `Eq`, `Hash` or `Clone`, may reach the caller or
//!   abort, as in std's collections.)
//!
//! # Features
//!
//! - `keyed` (on by default): `dashmap`, for maps beside the shards. [`Watermarks`] is
//!   there without it.
//! - `parking_lot` (on by default): its locks instead of std's.
//! - `metrics` (on by default): [`Purgatory::publish`][publish] publishes counts and times to the
//!   `metrics` facade.
//! - `serde`: a [`Snapshot`] can be serialised.
//! - `tokio`: a runtime's `Handle` is an [executor][executor], for callbacks inside it; and [a
//!   timer][timer] on its clock.
//! - `tracing`: events for operations that are not parked (debug), checks and callbacks that panic
//!   (error), callbacks that run for 100 ms or longer, lost wakeups and, in debug builds, checks
//!   that take more than a second (warn), and shutdown (info).
//!
#![cfg_attr(feature = "metrics", doc = "[publish]: Purgatory::publish")]
#![cfg_attr(not(feature = "metrics"), doc = "[publish]: guide::operating#metrics")]
#![cfg_attr(
    feature = "tokio",
    doc = "[executor]: timer_core::Executor#impl-Executor-for-Handle"
)]
#![cfg_attr(
    feature = "tokio",
    doc = "[timer]: timer_core::SystemTimerBuilder::tokio"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[executor]: guide::tokio\n[timer]: guide::tokio"
)]
// docs.rs shows which feature an item is behind.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The manual is of all features: without one, links to its items lead nowhere.
#![cfg_attr(not(feature = "keyed"), allow(rustdoc::broken_intra_doc_links))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[macro_use]
#[doc(hidden)]
pub mod sync;

mod boxed;
mod builder;
mod ends;
mod engine;
mod error;
mod events;
pub mod guide;
mod monitor;
mod operation;
mod origin;
mod purgatory;
mod reach;
mod reason;
mod replies;
mod reply_scope;
mod shard;
mod stats;
mod wait;
mod watches;
mod watermarks;

pub use boxed::{BoxedOperation, when};
pub use builder::Builder;
pub use error::{Refused, RefusedReason, WaitError};
pub use monitor::Monitor;
pub use operation::{
    CancelReason, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, ReachResult,
    TakenForKey, Timeout,
};
pub use purgatory::{Purgatory, ShutdownLeft};
pub use reason::Reason;
pub use replies::{Expected, Replies};
pub use reply_scope::{ReplyScope, RequestId, Undelivered};
pub use stats::{Parked, Snapshot, Stats, Times};
pub use timer_core;
pub use wait::{IntoAnswer, WaitFuture};
pub use watches::{WatchKey, Watches};
pub use watermarks::{WatermarkWait, Watermarks};

/// Tests the programs in the README; one needs `Watermarks`.
#[cfg(all(doctest, feature = "keyed"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
