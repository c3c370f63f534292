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
//! On Linux the clock stands still during suspend, but not while the process is stopped.
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
//! | the process is stopped, or starved | that long | – |
//!
//! [`times`](crate::Purgatory::times) has a histogram of the lateness, and an operation asks for
//! its own in [`expiring`](crate::DelayedOperation::expiring).
//!
//! # A pause of the process
//!
//! A process that was stopped (SIGSTOP, a debugger, a frozen container) finds many deadlines
//! passed, while the heartbeats that came meanwhile lie unread in its sockets. The reaper then
//! races the threads that read them. With a [grace](crate::timer_core::SystemTimerBuilder::grace),
//! due operations wait for one more bound after such a pause, and events that arrive in it still
//! complete or reschedule them. Nothing is early. It is off by default.
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{DelayedOperation, Outcome, Purgatory, timer_core::SystemTimer};
//!
//! struct Session;
//! impl DelayedOperation for Session {
//!     fn try_complete(&mut self) -> bool { false }
//!     fn expiring(&mut self, late: &dyn Fn() -> Duration) {
//!         if late() > Duration::from_secs(1) {
//!             eprintln!("{:?} late: was the process stopped?", late());
//!         }
//!     }
//!     fn on_complete(self, _: Outcome) {}
//! }
//!
//! let timer = SystemTimer::builder().grace(Duration::from_secs(1)).build()?;
//! let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
//! sessions.try_complete_else_watch(Session, &[7], Duration::from_secs(10))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Within one tick the order is not promised, except by a `ManualTimer`. The same timer runs
//! [delayed and periodic tasks, sleeps and timeouts](crate::timer_core#contents).
