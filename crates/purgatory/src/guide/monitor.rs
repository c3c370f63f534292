//! Shared state that requests wait on: [`Monitor`].
//!
//! Use it when conditions are about a state in this process and one lock is enough. Leave it for
//! [watermarks](super::watermarks) or [operations of your own](super::operations) when many wait
//! under one key: with n waits, each change runs n checks, under the monitor's lock.
//!
//! ```
//! use std::{collections::HashMap, time::Duration};
//! use purgatory::{Monitor, WaitError};
//!
//! #[derive(Default)]
//! struct Group { members: HashMap<&'static str, u32>, generation: u32 }
//!
//! let group = Monitor::new("group", Group::default())?;
//! let joined = |name| {
//!     move |group: &mut Group| group.members.get(name).map(|_| group.generation)
//! };
//! let bob = group.wait(&["members"], Duration::from_secs(30), joined("bob"));
//! let eve = group.wait(&["members"], Duration::from_millis(5), joined("eve"));
//! let members = group.update(|group| {
//!     group.members.insert("bob", 7);
//!     group.generation += 1;
//!     group.members.len()
//! });
//! assert_eq!(members, 1);
//! assert_eq!(bob.wait_blocking(), Ok(1));
//! assert_eq!(eve.wait_blocking(), Err(WaitError::Expired));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! [`update`](crate::Monitor::update) signals every key that has waiters. Where that is too slow,
//! name the keys: [`update_key`](crate::Monitor::update_key),
//! [`update_keys`](crate::Monitor::update_keys), or [`update_one`](crate::Monitor::update_one) when
//! one wait can go on. A forgotten key is a [missed event](super::operating#missed-events).
//!
//! # Pitfalls
//!
//! - **A condition that takes something**, such as a job, changes the state. When others wait
//!   for the changed state, signal their key. A future may be dropped with its value: make that a
//!   guard, [returned on drop](super::recipes#a-queue).
//! - **A slow closure** blocks all other threads that use the monitor. For long reads keep the
//!   state in an `Arc` ([`read`](crate::Monitor::read)).
//! - **A call of the monitor inside its own closure** panics. Two monitors, one inside a closure of
//!   the other, are nested locks.
//!
//! [`Monitor`]: crate::Monitor
