//! What happens to an operation, from the call that parks it to its callback.
//!
//! An operation is in one of two states while it waits. It is *parked*: the purgatory holds it, and
//! nobody looks at it. Or it is *held*: a thread has taken it out and is checking it. Taking it out
//! is the only claim there is, so there is never a second checker, and no lock.
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
//!   │               │  ──(g) false, and an event was noted ─────► checked again
//!   │               │  ──(h) false, and an end was noted ───────► the end that was noted
//!   │(j) an event   │  ──(i) its check panicked ────────────────► Cancelled
//!   │    takes it   │
//!   │    out        │(k) false, and nothing was noted: put back
//!   │               ▼
//!   └─────────── PARKED ──(l) its time runs out ────────────────► Expired
//!                       ──(m) cancel, cancel_for_key, shutdown ─► Cancelled
//!                       ──(n) complete, its last watermark ─────► Completed
//! ```
//!
//! # Coming in
//!
//! - **(a)** The condition holds already. The operation ends in this call, and nothing was parked.
//! - **(b)** The timeout is zero, or a moment that has passed. One check is all it gets.
//! - **(c)** The check panicked: it ends as [`Panicked`](crate::CancelReason::Panicked). The caller
//!   does not see the panic, but it is counted and told to the timer's hook.
//! - **(d)** The purgatory is shut down or full, or the operation has more watermarks than can be
//!   counted. It comes back in [`Refused`](crate::Refused) with its callback uncalled. (Without any
//!   key it comes back before its first check.)
//! - **(e)** The operation is put on the timing wheel, and a watch that names it on the list of
//!   each of its keys. Meanwhile its place is held by the thread that parks it, so an event that
//!   comes by leaves a note; one that came by between check and watch is noticed by a count that it
//!   raised.
//!
//! # Held
//!
//! - **(f)** A check that came true decides. It beats whatever was noted meanwhile.
//! - **(g)** An event came by while the check ran, so it may have missed what the event is about.
//!   The same thread checks again. After eight times in a row it goes back to its place, and the
//!   executor is to look at it; until then it can end as any other can.
//! - **(h)** Its time ran out, or somebody cancelled or completed it, while the check ran. The
//!   thread that holds it ends it that way, as soon as its check is over; of two ends the first
//!   noted wins.
//! - **(i)** It ends as [`Panicked`](crate::CancelReason::Panicked), unless an end was noted
//!   before. The others on the key are checked all the same.
//! - **(k)** It goes back to its place and waits on. Notes are read in the same lock hold, so none
//!   is left in between.
//!
//! # Parked
//!
//! - **(j)** An event on one of its keys takes it out to check it, up to 16 operations at a time.
//!   So does a rise of a watermark that is not its last.
//! - **(l)** The reaper takes it off the wheel. Its callback runs on the executor.
//! - **(m)** The thread that cancels ends it. The reason is told to the callback.
//! - **(n)** Nobody asks the check. [`complete`](crate::Purgatory::complete) names one operation,
//!   and a watermark in the [count form](super::watches#watermarks-that-are-the-condition) was the
//!   condition.
//!
//! # The end
//!
//! Every end goes the same way. The outcome is decided in the lock hold in which the operation
//! leaves the wheel; then, with nothing locked, its watches leave the lists of all its keys, its
//! place under [`max_parked`](crate::Builder::max_parked) is free again, and
//! [`on_complete`](crate::DelayedOperation::on_complete) is called, once:
//!
//! | Outcome | `on_complete` runs on |
//! |---|---|
//! | Completed | the thread whose check came true, that raised the watermark or called `complete` |
//! | Cancelled | the thread that cancelled, or that held it when the cancel was noted |
//! | Expired | the executor |
//! | any, with [`callbacks_on_executor`](crate::Builder::callbacks_on_executor) | the executor |
//!
//! The *executor* is the purgatory's own ([`Builder::executor`](crate::Builder::executor)) or else
//! the timer's: one worker thread, unless the timer was built otherwise. A
//! [`ManualTimer`](crate::timer_core::ManualTimer) has no thread of its own, and runs it on the one
//! that advances the timer or ends the operation.
//!
//! A callback may do anything: park, raise events, cancel, drop the last handle. What it ends is
//! told when the outermost call on its thread returns, and an event raised inside it happens then,
//! too. So a chain of a million completions needs no stack.
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use purgatory::{CancelReason, Outcome, ParkResult, Purgatory, Timeout, when};
//! use purgatory::timer_core::ManualTimer;
//!
//! let timer = ManualTimer::new(); // the real wheel, under a clock that we turn
//! let waits = Purgatory::builder("waits").timer(&timer).max_parked(3).build()?;
//! let (told, ends) = mpsc::channel();
//! let operation = |name| {
//!     let told = told.clone();
//!     when(|| false, move |outcome| told.send((name, outcome)).unwrap())
//! };
//! let second = Duration::from_secs(1);
//!
//! let parked = waits.try_complete_else_watch(operation("a"), &["k"], second)?;
//! let ParkResult::Parked(a) = parked else { unreachable!("its check is never true") };
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
//! let (completed, expired) = (Outcome::Completed, Outcome::Expired);
//! let expected = [("e", expired.clone()), ("a", completed), ("b", expired), ("c", unwanted)];
//! assert_eq!(ends.try_iter().collect::<Vec<_>>(), expected);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Next: [how to wait](super::waiting).
