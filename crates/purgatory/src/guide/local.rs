//! A purgatory for one thread: [`LocalPurgatory`], without locks, threads or a clock.
//!
//! Use it when requests begin and end on one thread: a thread-per-core runtime, or an event loop of
//! your own. Operations need not be `Send`. Another thread completes them by a message to this one.
//!
//! # The loop
//!
//! 1. Sleep, or poll for I/O, until [`next_deadline`] at most.
//! 2. Call [`advance`] with the time. It ends what has expired; callbacks run in it.
//! 3. Handle what came in. Timeouts count from the last [`advance`]: call it after the sleep, or
//!    they are too short.
//!
//! ```
//! use std::{cell::Cell, rc::Rc, time::Duration};
//! use purgatory::{LocalPurgatory, Outcome, when};
//! use purgatory::timer_core::{Clock, SystemClock};
//!
//! let (clock, waits) = (SystemClock::new(), LocalPurgatory::new());
//! let ended = Rc::new(Cell::new(0));
//! waits.advance(clock.now_ns());
//! for timeout_ms in [2, 5] {
//!     let ended = ended.clone();
//!     let waits_in_vain = when(|| false, move |outcome| {
//!         assert_eq!(outcome, Outcome::Expired);
//!         ended.set(ended.get() + 1);
//!     });
//!     waits.try_complete_else_watch(waits_in_vain, &["key"], Duration::from_millis(timeout_ms))?;
//! }
//! while let Some(due_ns) = waits.next_deadline() {
//!     let sleep_ns = due_ns.saturating_sub(clock.now_ns());
//!     std::thread::sleep(Duration::from_nanos(sleep_ns)); // in a program: poll for I/O so long
//!     waits.advance(clock.now_ns());
//! }
//! assert_eq!(ended.get(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With real I/O: `cargo run --release --example local`. One call runs at most 1024 queued
//! callbacks and events; [`next_deadline`] says now until the rest is done.
//!
//! # Under an executor
//!
//! A task turns it: each millisecond, or at [`next_deadline`] if your code wakes it when it parks.
//! [`wait`] gives futures for `spawn_local`:
//!
//! ```
//! use std::{cell::Cell, rc::Rc, time::Duration};
//! use purgatory::{LocalBoxed, LocalPurgatory, WaitError};
//! use purgatory::timer_core::{Clock, SystemClock};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! tokio::task::LocalSet::new().block_on(&runtime, async {
//!     let waits: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
//!     let (turned, clock) = (waits.clone(), SystemClock::new());
//!     turned.advance(clock.now_ns());
//!     tokio::task::spawn_local(async move {
//!         loop {
//!             tokio::time::sleep(Duration::from_millis(1)).await;
//!             turned.advance(clock.now_ns());
//!         }
//!     });
//!     let late = waits.wait(&["other"], Duration::from_millis(5), || None::<()>);
//!     let log_end = Rc::new(Cell::new(0));
//!     let seen = log_end.clone();
//!     let grown = waits.wait(&["log"], Duration::from_secs(1), move || {
//!         Some(seen.get()).filter(|&end| end >= 3)
//!     });
//!     tokio::task::spawn_local(async move {
//!         log_end.set(3);
//!         waits.check_and_complete(&"log");
//!     });
//!     assert_eq!(grown.await, Ok(3));
//!     assert_eq!(late.await, Err(WaitError::Expired));
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Next: [tests that do not sleep](super::testing).
//!
//! [`advance`]: crate::LocalPurgatory::advance
//! [`next_deadline`]: crate::LocalPurgatory::next_deadline
//! [`wait`]: crate::LocalPurgatory::wait
//! [`LocalPurgatory`]: crate::LocalPurgatory
