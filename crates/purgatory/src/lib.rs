//! Delayed operations: park a request that cannot be answered yet, complete it from whichever
//! thread makes it answerable, or let its time run out. What Apache Kafka calls *purgatory*.
//!
//! A produce with acks=all waits until every in-sync replica has the record, a fetch waits for
//! bytes, a write for a quorum. Such a request is *parked* under one or more *watch keys*. Whoever
//! changes something that requests may wait for raises the *event* of its key, and the requests
//! parked under it are checked again. What nobody completes in time *expires*.
//!
//! ```
//! use std::{
//!     sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}, mpsc},
//!     time::Duration,
//! };
//! use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory};
//!
//! /// A produce with acks=all: over when the high watermark has passed its record.
//! struct DelayedProduce {
//!     high_watermark: Arc<AtomicU64>,
//!     required_offset: u64,
//!     reply: mpsc::Sender<Outcome>,
//! }
//!
//! impl DelayedOperation for DelayedProduce {
//!     fn try_complete(&mut self) -> bool {
//!         self.high_watermark.load(SeqCst) >= self.required_offset
//!     }
//!     fn on_complete(self, outcome: Outcome) {
//!         self.reply.send(outcome).unwrap();
//!     }
//! }
//!
//! let produces = Purgatory::new("produce")?;
//! let high_watermark = Arc::new(AtomicU64::new(0));
//! let (reply, replies) = mpsc::channel();
//! let seen = high_watermark.clone();
//! let produce = DelayedProduce { high_watermark: seen, required_offset: 1, reply };
//!
//! let parked = produces.try_complete_else_watch(produce, &["orders-0"], Duration::from_secs(30))?;
//! assert!(matches!(parked, ParkResult::Parked(_)));
//!
//! high_watermark.store(1, SeqCst); // the condition first ...
//! assert_eq!(produces.check_and_complete(&"orders-0"), 1); // ... then its event
//! assert_eq!(replies.recv()?, Outcome::Completed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is here
//!
//! | You want | Take |
//! |---|---|
//! | one kind of request, a callback when it is over | [`Purgatory`] and [`DelayedOperation`] |
//! | no struct, two closures | [`when`] |
//! | several kinds in one purgatory | [`BoxedOperation`] |
//! | a future, or a thread that waits, for a value | [`Purgatory::wait`], [`Purgatory::wait_blocking`] |
//! | state, changes and waits in one, with no rule to keep | [`Monitor`] |
//! | to match replies with requests | [`Replies`] |
//! | to wait for a number that only rises | [`Watches::up_to`] and [`Purgatory::complete_up_to`]; [`ThresholdPurgatory`] keeps it, [`Watermarks`] one for each key |
//! | to wait for k of n | [`Watermarks::wait_for_k`] |
//! | to complete one of many that wait for the same thing | [`Purgatory::check_and_complete_one`], [`Monitor::update_one`] |
//! | to raise an event while you hold a lock that checks need | [`Purgatory::defer`] |
//! | to end one from outside, or give it more time | [`Purgatory::cancel`], [`Purgatory::complete`], [`Purgatory::reschedule`] |
//! | to end all of a key, or all | [`Purgatory::complete_for_key`], [`Purgatory::cancel_for_key`], [`Purgatory::cancel_all`] |
//! | a bound on how many may wait | [`Builder::max_parked`] |
//! | to find events that somebody forgot to raise | [`Builder::check_at_expiry`] |
//! | slow callbacks on other threads | [`Builder::callbacks_on_executor`] |
//! | one timer for several purgatories, or a hand-turned one | [`Builder::timer`] |
//! | no lock, on a thread whose loop you turn | [`LocalPurgatory`] |
//! | to see what waits, for what and since when | [`Purgatory::snapshot`], [`Purgatory::stats`] |
//!
//! # What is promised
//!
//! - **One outcome.** Every accepted operation ends exactly once, whatever races, through panics
//!   and shutdown too.
//! - **No missed event.** See [the one rule](Purgatory#the-one-rule).
//! - **Never early.** Nothing expires before its time, in nanoseconds.
//! - **Nobody waits.** No thread waits for another's check or callback, and neither runs under a
//!   lock of the purgatory's. (The closures of a [`Monitor`] run under its own.)
//! - **Nothing stays.** What has ended is out of every watch list and out of the wheel at once (of
//!   what expired under more than 17 keys, out of the lists as its callback runs). No purge, no
//!   estimate; counts are exact when nothing moves.
//! - **Panics stay inside.** A check or callback that panics is contained and counted.
//!
//! # The guide
//!
//! The [`guide`] tells the rest, in ten chapters:
//! [what happens to an operation](guide::lifecycle), [how to wait](guide::waiting),
//! [what to wait for](guide::watches), [a state and its waits](guide::monitor),
//! [request and reply](guide::replies), [values that only rise](guide::watermarks),
//! [on one thread](guide::local), [recipes](guide::recipes), [the same by hand](guide::by_hand) and
//! [questions](guide::questions). For tests of your own operations, share a
//! [`ManualTimer`](timer_core::ManualTimer): the real wheel under a clock that you turn.
//!
//! # Features
//!
//! - `keyed` (on by default): [`Watermarks`], and timer-core's `KeyedTimer`.
//! - `metrics` (on by default): `Purgatory::publish` hands counts and times to the `metrics`
//!   facade.
//! - `serde`: [`Snapshot`] and what is in it can be serialised.
//! - `tokio`: `TokioExecutor`, so that callbacks run inside a tokio runtime.
//! - `tracing`: events for operations that are not parked (debug), checks and callbacks that panic
//!   (error), callbacks that keep the executor for 100 ms and missed events (warn), and shutdown
//!   (info).

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[macro_use]
#[doc(hidden)]
pub mod failpoints;

mod face;
pub mod guide;
mod local;
mod observe;
mod paths;
mod room;
#[doc(hidden)]
pub mod sync;
mod words;

#[cfg(feature = "keyed")]
pub use face::watermarks::{QuorumError, TooManyKeys, Watermarks};
pub use face::{
    boxed::{BoxedOperation, LocalBoxed, When, when},
    builder::Builder,
    monitor::Monitor,
    purgatory::Purgatory,
    replies::{AlreadyExpected, Expected, Replies, Reply},
    shutdown::ShutdownLeft,
    threshold::ThresholdPurgatory,
    wait::{WaitError, WaitFuture},
};
pub use local::{
    purgatory::{LocalBuilder, LocalPurgatory},
    wait::LocalWait,
};
pub use observe::snapshot::{KeyWaiters, Parked, Snapshot};
pub use room::times::Times;
pub use timer_core;
#[cfg(feature = "tokio")]
pub use timer_core::TokioExecutor;
pub use words::{
    missed::MissedEvent,
    operation::{
        CancelReason, DelayedOperation, EndResult, OperationId, Outcome, ParkResult, Refused,
        RefusedReason, Timeout,
    },
    stats::{Refusals, Stats},
    watches::{WatchKey, Watches},
};

/// The programs in the README, as they are.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
