//! Getting started: a first program, and the terms.
//!
//! ```toml
//! [dependencies]
//! purgatory = { path = "../purgatory/crates/purgatory" } # where you cloned it
//! tokio = { version = "1", features = ["macros", "rt"] }
//! ```
//!
//! ```
//! use std::{sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, WaitError};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let orders: Purgatory<u64, BoxedOperation> = Purgatory::new("orders")?;
//!     let paid = Arc::new(Mutex::new(Vec::new()));
//!
//!     let seen = paid.clone();
//!     let is_paid = move || seen.lock().unwrap().contains(&7).then_some("paid");
//!     let waiting = orders.wait(&[7], Duration::from_secs(30), is_paid); // parked from here on
//!
//!     paid.lock().unwrap().push(7); // on any thread: the condition first ...
//!     orders.check_and_complete(&7); // ... then its event
//!     assert_eq!(waiting.await, Ok("paid"));
//!
//!     let never = orders.wait(&[8], Duration::from_millis(20), || None::<()>);
//!     assert_eq!(never.await, Err(WaitError::Expired));
//!     Ok(())
//! }
//! ```
//!
//! First the condition, then its event: that is [the one rule](super::operations#the-one-rule).
//! [`Watermarks`](super::watermarks), [`Replies`](super::replies) and [`Monitor`](super::monitor)
//! keep it for you.
//!
//! # Terms
//!
//! | Term | Meaning |
//! |---|---|
//! | *operation* | a request: a check, and a callback for its end |
//! | *park* | to check an operation and, if it has to wait, to take it in |
//! | *watch key* | the thing that an operation waits for: an order, a partition |
//! | *watch* | an operation's entry under one of its keys |
//! | *event* | conditions under this key may be true now; a thread *signals* the key |
//! | [*watermark*](super::watermarks) | a value that only grows; a thread *advances* it |
//! | [*held*](super::lifecycle) | under check: one thread has checked the operation out |
//! | *pending request* | an end or a recheck that other threads ask of the holder |
//! | *outcome* | Completed, Expired or Cancelled; each operation has exactly one |
//! | [*last check*](super::operating#missed-events) | at expiry, finds a *missed event*: a condition that came true without one; on by default for waits with a condition |
//! | *timer*, *tick* | a timing wheel and the thread that advances it, the *reaper*; its unit |
//! | *executor* | runs callbacks of expired operations; by default one worker thread of the timer |
//! | *shard* | a lock and the keys that hash to it |
