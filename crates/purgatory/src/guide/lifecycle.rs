//! The states of an operation, from the call that parks it to its callback.
//!
//! A waiting operation is *parked*, or it is *held*: one thread has checked it out and runs its
//! check, with nothing locked. Only that thread can end it; other threads leave a *pending
//! request*, for a recheck or an end.
//!
//! ```text
//!         try_complete_else_watch
//!                   │
//!                   ▼
//!              first check ──(a) true ──────────────────────────► Completed
//!                   │      ──(b) false, and no time to wait ────► Expired
//!                   │      ──(c) panicked ──────────────────────► Cancelled
//!                   │      ──(d) false, and it may not wait ────► Refused: handed back
//!                   │
//!                   │(e) false: onto the wheel, and a watch on each key
//!                   ▼
//!   ┌───────────► HELD ──(f) its check came true ───────────────► Completed
//!   │               │  ──(g) false, a recheck is pending ───────► checked again
//!   │               │  ──(h) false, an end is pending ──────────► that end
//!   │(j) an event   │  ──(i) its check panicked ────────────────► Cancelled
//!   │    checks it  │
//!   │    out        │(k) false, nothing is pending: checked in
//!   │               ▼
//!   └─────────── PARKED ──(l) its time runs out ────────────────► Expired
//!                       ──(m) cancel, cancel_for_key, shutdown ─► Cancelled
//!                       ──(n) complete, its last watermark ─────► Completed
//! ```
//!
//! - **(a)**, **(b)** The first check runs in the call that parks. Without time to wait it is the
//!   only one.
//! - **(c)**, **(i)** The reason is [`Panicked`](crate::CancelReason::Panicked), unless an end is
//!   pending.
//! - **(d)** The purgatory is shut down or full, or the operation has too many watermarks or no
//!   keys. It comes back in [`Refused`](crate::Refused); its callback is not called.
//! - **(e)** An event between check and registration is not lost: keys count their events.
//! - **(f)** A check that comes true wins over every pending request.
//! - **(g)** The same thread checks again, as often as events came by.
//! - **(h)** The time ran out, or a thread cancelled or completed it. The first request counts.
//! - **(j)** An event, a watermark that is met but does not complete it, or a
//!   [recheck](crate::Builder::recheck_every).
//! - **(l)** If it has a [last check](crate::Builder::check_at_expiry), the executor first holds it
//!   for that, with Expired pending.
//! - **(m)**, **(n)** The calling thread ends it, without a check.
//!
//! # The end
//!
//! The outcome is decided under the lock. Then the watches leave the lists, its place under
//! [`max_parked`](crate::Builder::max_parked) is free, and its callback runs once, with nothing
//! locked:
//!
//! | Outcome | The callback runs on |
//! |---|---|
//! | Completed | the thread whose check came true, that met the last watermark or called `complete`, or the holder |
//! | Cancelled | the thread that cancelled, or the holder; the executor after `shutdown` |
//! | Expired | the executor |
//! | any, with [`callbacks_on_executor`](crate::Builder::callbacks_on_executor) | the executor |
//!
//! The executor is the purgatory's [own](crate::Builder::executor), or else the timer's. Under a
//! [`ManualTimer`](super::testing) it is the calling thread.
//!
//! An event in a callback returns 0. The operations that it ends are called back when the outermost
//! call on its thread returns, so a long chain of completions needs no stack. After 1024 steps the
//! executor goes on.
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use purgatory::{CancelReason, Outcome, Purgatory, Timeout, when};
//! use purgatory::timer_core::ManualTimer;
//!
//! let timer = ManualTimer::new(); // the real wheel, with a clock that we advance
//! let waits = Purgatory::builder("waits").timer(&timer).max_parked(3).build()?;
//! let (reports, ends) = mpsc::channel();
//! let operation = |name| {
//!     let reports = reports.clone();
//!     when(|| false, move |outcome| reports.send((name, outcome)).unwrap())
//! };
//! let second = Duration::from_secs(1);
//!
//! let parked = waits.try_complete_else_watch(operation("a"), &["k"], second)?;
//! let a = parked.id().expect("its check is never true");
//! waits.try_complete_else_watch(operation("b"), &["k"], second)?; // (e), (k)
//! waits.try_complete_else_watch(operation("c"), &["k", "l"], Timeout::Never)?;
//! assert!(waits.try_complete_else_watch(operation("d"), &["k"], second).is_err()); // (d): full
//! waits.try_complete_else_watch(operation("e"), &["k"], Duration::ZERO)?; // (b)
//!
//! assert_eq!(waits.check_and_complete(&"k"), 0); // (j), (k) for each
//! waits.complete(a); // (n)
//! timer.advance(second); // (l)
//! assert_eq!(waits.cancel_for_key(&"l", "no longer wanted"), 1); // (m)
//! assert!(waits.is_empty() && waits.keys() == 0);
//!
//! let unwanted = Outcome::Cancelled(CancelReason::Requested("no longer wanted".into()));
//! let expected = [
//!     ("e", Outcome::Expired),
//!     ("a", Outcome::Completed),
//!     ("b", Outcome::Expired),
//!     ("c", unwanted),
//! ];
//! assert_eq!(ends.try_iter().collect::<Vec<_>>(), expected);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
