//! On one thread: a purgatory without a lock, for a thread-per-core runtime or an event loop of
//! your own.
//!
//! [`LocalPurgatory`] keeps what a [`Purgatory`] keeps, with the same words and the same promises,
//! for the thread that made it. Three things differ:
//!
//! | | [`Purgatory`] | [`LocalPurgatory`] |
//! |---|---|---|
//! | operations and conditions | `Send` | any, with an `Rc` in them too |
//! | time | a timer's thread | you call [`advance`] |
//! | callbacks of what expired | on the timer's executor | in [`advance`] |
//!
//! Take it when requests live and die on the thread that parks them: compio, glommio, monoio, a
//! shard of a sharded server. Where another thread has to complete them, send that thread's message
//! to this one and raise the event here, or take a [`Purgatory`].
//!
//! # The loop
//!
//! Three rules, and each call of the loop keeps them:
//!
//! 1. Sleep until [`next_deadline`] at most. A moment that has passed means: do not sleep.
//! 2. After the sleep call [`advance`] with the time. It expires what is due.
//! 3. Handle what came. Timeouts count from the last [`advance`], so requests are never given less
//!    time than they ask for only if it was called after the sleep, not before.
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
//! With real I/O in it: `cargo run --release --example local`.
//!
//! # Under an executor
//!
//! A task of the runtime turns it: it sleeps on the runtime's own timer until the next deadline, or
//! until an operation with an earlier one is parked. [`wait`] gives futures that are not `Send`,
//! for `spawn_local` and its like:
//!
//! ```
//! use std::{cell::Cell, rc::Rc, time::Duration};
//! use purgatory::{LocalBoxed, LocalPurgatory};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! tokio::task::LocalSet::new().block_on(&runtime, async {
//!     let waits: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
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
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Calls from inside
//!
//! A check or callback may call anything; see [`LocalPurgatory`]. Events that it raises come after
//! it, from the outermost call, so the one rule is simpler here: between an operation's check and
//! its watch there is no event to be missed. A chain that does not end is cut into calls of 1024
//! pieces, so the loop gets its turn; [`next_deadline`] says now until the chain is done.
//!
//! [`advance`]: crate::LocalPurgatory::advance
//! [`next_deadline`]: crate::LocalPurgatory::next_deadline
//! [`wait`]: crate::LocalPurgatory::wait
//! [`LocalPurgatory`]: crate::LocalPurgatory
//! [`Purgatory`]: crate::Purgatory
