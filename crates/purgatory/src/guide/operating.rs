//! Operating: metrics to watch, and where to look when requests hang.
//!
//! A [`snapshot`](crate::Purgatory::snapshot) names the oldest operations with their keys, and
//! those under check:
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{Purgatory, Timeout, timer_core::ManualTimer, when};
//!
//! let timer = ManualTimer::new();
//! let polls = Purgatory::builder("polls").timer(&timer).build()?;
//! let stuck = || {
//!     let oldest = polls.snapshot(1).oldest.pop()?;
//!     if oldest.age <= Duration::from_secs(60) {
//!         return None;
//!     }
//!     Some(format!("{:?} for {:?}", oldest.keys, oldest.age))
//! };
//! polls.try_complete_else_watch(when(|| false, drop), &["orders-0"], Timeout::Never)?;
//! assert_eq!(stuck(), None);
//! timer.advance(Duration::from_secs(61));
//! assert_eq!(stuck().unwrap(), r#"["orders-0"] for 61s"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A snapshot prints as text; the examples print one at SIGUSR1. To tell kinds of waits apart, give
//! their [`Watches`](crate::Watches) a [label](crate::Watches::labelled). `quietest` names the keys
//! with waiters that have been without an event for longest.
//!
//! # Metrics
//!
//! `docs/METRICS.md` has all, with alerts and a dashboard. Watch these first:
//!
//! | You see | Usual cause |
//! |---|---|
//! | `purgatory_parked` grows | events stopped, or `Timeout::Never` without a cancel |
//! | many expire | short timeouts, or keys signalled too early |
//! | an age above every timeout | a check that does not return |
//! | a key is quiet | the thread that signals it is stuck, or signals another key |
//! | lateness | [one of these](super::time#why-an-expiry-is-late) |
//!
//! The package `purgatory-live` serves a live page. It shows keys, so let only operators reach it.
//!
//! # Missed events
//!
//! A missed event (a lost wakeup) is a condition that came true without a signal. It looks like a
//! timeout. The last check, when the timeout fires, finds it:
//!
//! | Waits | Last check |
//! |---|---|
//! | with a condition: [`wait`](crate::Purgatory::wait), [`Monitor`](crate::Monitor), [`Watermarks`](crate::Watermarks) | on; lost wakeups are counted |
//! | for a reply: [`Replies`](crate::Replies) | none: there is no condition |
//! | operations of your own | off, unless the builder has [`check_at_expiry`](crate::Builder::check_at_expiry), which calls a hook ([recipe](super::recipes#a-trigger-that-was-forgotten)) |
//!
//! An event that races the timeout may count as missed, too, so watch the share.
//!
//! [`recheck_every`](crate::Builder::recheck_every) checks an operation again each interval, so a
//! forgotten event costs one interval instead of the whole timeout. Choose an interval above the
//! usual wait, so that few operations are rechecked.
//!
//! # Shutdown
//!
//! Refuse new requests, let the parked ones [drain](super::recipes#draining-before-the-end), then
//! call [`shutdown`](crate::Purgatory::shutdown) with a limit. Shut a shared timer down last: its
//! shutdown waits for the callbacks on its threads.
