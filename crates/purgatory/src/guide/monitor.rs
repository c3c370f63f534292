//! A state and its waits in one: the [`Monitor`], where the one rule keeps itself.
//!
//! # When
//!
//! The [one rule](super::watches#the-one-rule) has two halves, and each is easy to break: an event
//! raised before its condition is true, and an event raised under a lock that a check wants. Where
//! the condition is about a state in this process, a monitor keeps both. It owns the state; a
//! closure changes it, and the events follow when the lock is free.
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
//! assert_eq!((members, bob.block(), eve.block()), (1, Ok(1), Err(WaitError::Expired)));
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! # How much an event checks
//!
//! | The change | Raises |
//! |---|---|
//! | [`update`](crate::Monitor::update) | every key that has waiters: always right, and dear when many wait |
//! | [`update_key`](crate::Monitor::update_key) | the one named |
//! | [`update_one`](crate::Monitor::update_one) | the one named, for the first wait that has what it wants: one more job of many consumers |
//! | [`update_keys`](crate::Monitor::update_keys) | those that the closure returns: it has seen what it changed |
//! | [`wait_taking`](crate::Monitor::wait_taking) | those named, once its condition has taken something |
//! | a closure that panics | what it would have; `update_keys` and `update` every key that has waiters |
//!
//! Start with `update`. Name keys where a measurement asks for it.
//!
//! # What can go wrong
//!
//! - **A condition that takes.** A consumer whose condition pops a job makes room, and a producer
//!   may wait for room. `wait` raises nothing by itself; `wait_taking` does, and puts back what a
//!   dropped future did not take.
//! - **A call of the monitor inside its closure** panics with a message that names it. Return what
//!   is to be done from the closure, and do it outside.
//! - **A slow closure** holds up everybody: the monitor has one lock. Purgatory and conditions of
//!   your own with finer locks scale further.
//! - **A narrow form that names too little** misses waits, as an event that is not raised does.
//! - **Two monitors**, one used inside the closure of the other, are two locks: always in the same
//!   order. The events of the inner one are raised under the lock of the outer.
//!
//! Next: [request and reply](super::replies).
//!
//! [`Monitor`]: crate::Monitor
