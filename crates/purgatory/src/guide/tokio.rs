//! Under tokio: tasks, callbacks and the runtime's clock.
//!
//! Futures of this crate work on any runtime. The feature `tokio` adds callbacks inside the
//! runtime, and a timer on its clock.
//!
//! # A paused clock
//!
//! [`SystemTimerBuilder::tokio`][timer] makes the timer a task of the runtime, on its clock; one
//! with its own thread reads the machine's. In a test, write `#[tokio::test(start_paused =
//! true)]`, with tokio's feature `test-util`:
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{BoxedOperation, Purgatory, WaitError, timer_core::SystemTimer};
//! use tokio::{runtime::Handle, time::Instant};
//!
//! # #[cfg(feature = "tokio")]
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let timer = SystemTimer::builder().tokio(Handle::current()).build()?;
//!     let polls: Purgatory<u64, BoxedOperation> =
//!         Purgatory::builder("polls").timer(&timer).build()?;
//!     let began = Instant::now();
//!     let never = polls.wait(&[7], Duration::from_secs(3600), || None::<()>);
//!     assert_eq!(never.await, Err(WaitError::Expired)); // at once
//!     assert_eq!(began.elapsed().as_secs(), 3600);
//!     Ok(())
//! }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # What to know
//!
//! | You want | Do |
//! |---|---|
//! | `tokio::spawn` in a callback, which panics on a timer's worker | its `Handle` as [executor][executor], with `callbacks_on_executor`, or in the operation |
//! | to await in a check | [an asynchronous condition](super::operations#an-asynchronous-condition) |
//! | a wait in `select!` | pass it by value to have it cancelled when another branch wins; by `&mut` it waits on |
//! | to block: `wait_blocking`, `shutdown` | `spawn_blocking`; a task whose thread the timer or the executor needs is [refused](crate::WaitError::InsideCallback), in another debug builds warn |
//!
//! - **A paused clock stands still while a `spawn_blocking` task runs**: in a test await the wait.
//! - **Signalling does not yield.** The task that signals a key runs all its checks and callbacks.
//! - **A timer on a runtime** expires nothing while that is not driven. When the runtime is
//!   dropped, the timer and its purgatories are shut down.
//!
#![cfg_attr(
    feature = "tokio",
    doc = "[executor]: crate::timer_core::Executor#impl-Executor-for-Handle"
)]
#![cfg_attr(
    feature = "tokio",
    doc = "[timer]: crate::timer_core::SystemTimerBuilder::tokio"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "[executor]: crate#features\n[timer]: crate#features"
)]
