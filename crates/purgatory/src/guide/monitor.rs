//! A state and the waits for it: [`Monitor`].
//!
//! Use it when conditions are about a state in this process and one lock is enough. Closures change
//! the state. The monitor raises the events after it has released its lock.
//!
//! ```
//! use std::{collections::HashMap, time::Duration};
//! use purgatory::{Monitor, WaitError};
//!
//! #[derive(Default)]
//! struct Group { members: HashMap<&'static str, u32>, generation: u32 }
//!
//! let group = Monitor::new("group", Group::default())?;
//! let joined = |name| move |group: &mut Group| {
//!     group.members.contains_key(name).then_some(group.generation)
//! };
//! let bob = group.wait(&["members"], Duration::from_secs(30), joined("bob"));
//! let eve = group.wait(&["members"], Duration::from_millis(5), joined("eve"));
//! let members = group.update(|group| {
//!     group.members.insert("bob", 7);
//!     group.generation += 1;
//!     group.members.len()
//! });
//! assert_eq!((members, bob.wait_blocking(), eve.wait_blocking()), (1, Ok(1), Err(WaitError::Expired)));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! # Which keys a change raises
//!
//! | Change | Raises |
//! |---|---|
//! | [`update`](crate::Monitor::update) | every key that has waiters: right, but slow when many wait |
//! | [`update_key`](crate::Monitor::update_key) | the key that you name |
//! | [`update_keys`](crate::Monitor::update_keys) | the keys that the closure returns |
//! | [`update_one`](crate::Monitor::update_one) | the key that you name, until one wait has its value: one more job |
//!
//! Start with `update`. Name keys when a measurement asks for it: a forgotten key is a [missed
//! event](super::operating#missed-events).
//!
//! # Pitfalls
//!
//! - **A condition that takes something**, such as a job from a queue, changes the state. When others
//!   wait for what it leaves behind, raise their key once the value is there. Make the value a guard
//!   that [gives itself back](super::recipes#a-queue): a future may be dropped with it.
//! - **A slow closure** blocks all other threads that use the monitor. For long reads keep the
//!   state in an `Arc` ([`read`](crate::Monitor::read)).
//! - **A call of the monitor inside its own closure** panics.
//! - **Two monitors**, one used inside a closure of the other, are nested locks: always take them
//!   in the same order.
//!
//! Next: [requests and their replies](super::replies).
//!
//! [`Monitor`]: crate::Monitor
