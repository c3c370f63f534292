//! Tests that do not sleep: a clock that you advance.
//!
//! A [`ManualTimer`](crate::timer_core::ManualTimer) is the real wheel. Callbacks of operations
//! that expire run on the thread that advances it, in order.
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use purgatory::{Outcome, Purgatory, timer_core::ManualTimer, when};
//!
//! let timer = ManualTimer::new();
//! let polls = Purgatory::builder("polls").timer(&timer).build()?;
//! let (reports, seen) = mpsc::channel();
//! let poll = when(|| false, move |outcome| reports.send(outcome).unwrap());
//! polls.try_complete_else_watch(poll, &["orders"], Duration::from_secs(30))?;
//! timer.advance(Duration::from_millis(29_999));
//! assert!(seen.try_recv().is_err());
//! timer.advance(Duration::from_millis(1));
//! assert_eq!(seen.try_recv(), Ok(Outcome::Expired));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | To test | Do |
//! |---|---|
//! | a blocking wait | advance the timer from another thread |
//! | that no event is forgotten | for operations of your own, [check at expiry](crate::Builder::check_at_expiry); assert that [`missed_events`](crate::Stats::missed_events) is 0 |
//! | that nothing panicked | assert that [`panics`](crate::Stats::panics) is 0: checks and callbacks contain theirs, so an assertion there fails no test |
//! | with `start_paused` | put the timer [on the runtime](super::tokio#a-paused-clock) |
//! | a cluster with random delays | see `cargo run --release --example virtual_time` |
