//! Time: how deadlines are counted, and why an expiry is late.
//!
//! A timeout counts from the call that parks. Its deadline rounds up to the timer's next tick, 1 ms
//! by default.
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{BoxedOperation, Purgatory, WaitError, timer_core::ManualTimer};
//!
//! let timer = ManualTimer::new(); // time passes when we advance it
//! let polls: Purgatory<&str, BoxedOperation> =
//!     Purgatory::builder("polls").timer(&timer).build()?;
//! let poll = polls.wait(&["orders"], Duration::from_micros(1500), || None::<()>);
//! timer.advance(Duration::from_millis(1));
//! assert_eq!(polls.len(), 1);
//! timer.advance(Duration::from_millis(1)); // 1.5 ms round up to 2
//! assert_eq!(poll.wait_blocking(), Err(WaitError::Expired));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! # Timeouts
//!
//! | Timeout | Meaning |
//! |---|---|
//! | a `Duration` | from now |
//! | zero | one check, then it expires |
//! | [`Timeout::At`](crate::Timeout::At) | a moment of the timer's clock |
//! | [`Timeout::Never`](crate::Timeout::Never) | until an event or a cancel |
//! | [`reschedule`](crate::Purgatory::reschedule) | a new timeout while parked: a heartbeat |
//!
//! On Linux the clock stands still during suspend.
//!
//! # Why an expiry is late
//!
//! | Cause | How late | What helps |
//! |---|---|---|
//! | rounding up | one tick | a [shorter tick](crate::timer_core::TickLength), at least 100 µs |
//! | reaper and worker wake up | two wake-ups | – |
//! | other callbacks on the executor | their time | short callbacks, more workers |
//! | the operation is under check | until it returns | short checks |
//! | many expire in one tick | the callbacks before theirs | spread timeouts |
//! | a timer on [tokio](super::tokio) | 1 ms, and other tasks | a timer with its own thread |
//!
//! Within one tick the order is not promised, except by a `ManualTimer`. The same timer runs
//! [delayed and periodic tasks, sleeps and timeouts](crate::timer_core#what-is-here).
