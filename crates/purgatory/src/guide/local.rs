//! One thread: operations that are not `Send`, on a timer that the thread's loop advances.
//!
//! Three things fit an ordinary purgatory to requests that begin and end on one thread:
//!
//! - **The loop advances a [`ManualTimer`]** by the time that has passed. No thread is started, and
//!   expired operations are called back in that call.
//! - **`shards(1)`**: shards keep threads apart, and here there is only one.
//! - **`send_wrapper::SendWrapper`** around values that are not `Send`. It panics when another
//!   thread uses or drops it, so signal keys on this thread only. Another thread sends a message.
//!
//! ```
#![doc = include_str!("recipes/one_thread.rs")]
//!
//! // Its use, with the clock of your loop instead of these numbers:
//! let log = Log::new(ManualTimer::new())?;
//! let answers: Rc<Cell<Vec<String>>> = Rc::default();
//! log.advance_to(Duration::from_millis(20));
//! for (offset, timeout_ms) in [(1, 5000), (9, 300)] {
//!     let answers = answers.clone();
//!     log.fetch(offset, Duration::from_millis(timeout_ms), move |outcome| {
//!         let mut all = answers.take();
//!         all.push(format!("{offset} {outcome}"));
//!         answers.set(all);
//!     })?;
//! }
//! assert_eq!(log.append(), 1);
//! log.advance_to(Duration::from_millis(320)); // 300 ms later
//! assert_eq!(answers.take(), ["1 completed", "9 expired"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Timeouts count from the last advance: advance after each sleep, before handling input. The loop
//! sleeps until I/O, at most for [`ManualTimer::next_due_in`]. With real I/O: `cargo run --release
//! --example local`.
//!
//! # A thread per core
//!
//! Each core has a purgatory that no other core uses. A key belongs to one core; other threads send
//! that core messages. Its loop sleeps in `inbox.recv_timeout`, or in its I/O.
//!
//! ```
#![doc = include_str!("recipes/cores.rs")]
//!
//! // Its use, on the core's thread:
//! let (outbox, core) = Core::new()?;
//! let (client, answers) = channel();
//! let request = purgatory::when(|| true, move |outcome| client.send(outcome).unwrap());
//! outbox.send((7, Message::Request(Duration::from_secs(30), request)))?; // on any thread
//! core.run_once(Duration::ZERO);
//! assert_eq!(answers.recv()?, purgatory::Outcome::Completed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Under an executor
//!
//! A task advances the timer. Futures of [`wait`](crate::Purgatory::wait) work in `spawn_local`;
//! wrap the values that a condition holds. A timer [on tokio](super::tokio) advances by itself.
//!
//! [`ManualTimer`]: crate::timer_core::ManualTimer
//! [`ManualTimer::next_due_in`]: crate::timer_core::ManualTimer::next_due_in
