//! Values that only advance: [`Watermarks`](crate::Watermarks) keeps one for each key.
//!
//! Use it when requests wait for the value itself: a high watermark, a replica's offset, an applied
//! index. One value alone is a `Watermarks<()>`. Here each write waits until two of three replicas
//! have it:
//!
//! ```
//! # #[cfg(feature = "keyed")] {
//! use std::time::Duration;
//! use purgatory::{Watermarks, WaitError};
//!
//! let fetched = Watermarks::new("replicas")?;
//! let write = |offset: u64| {
//!     let replicas = ["a", "b", "c"].map(|replica| (replica, offset));
//!     fetched.wait_for_k(2, &replicas, Duration::from_millis(20))
//! };
//! fetched.advance(&"a", 8)?;
//! let [seventh, eighth, ninth] = [7, 8, 9].map(write);
//! fetched.advance(&"c", 8)?;
//! fetched.advance(&"c", 6)?; // a late answer changes nothing
//! assert_eq!(seventh.wait_blocking(), Ok(vec![("a", 8), ("c", 8)]));
//! assert_eq!(eighth.wait_blocking(), Ok(vec![("a", 8), ("c", 8)]));
//! // Two replicas have advanced, and neither has it.
//! assert_eq!(ninth.wait_blocking(), Err(WaitError::Expired));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Pitfalls
//!
//! - **Keys that come and go.** A value stays until [`remove`](crate::Watermarks::remove), which
//!   cancels its waits, every wait for k that names it included. If keys come from clients,
//!   [limit](crate::Watermarks::with_keys_max) them.
//! - **A value that falls**, as of a truncated log: make the epoch [a part of the
//!   key](super::recipes#a-topic-made-again), as a late `advance` would bring the old value back.
//! - **A condition that is more than the value** needs a check: see [watches](super::watches).
