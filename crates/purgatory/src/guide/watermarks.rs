//! A value for each key that only rises: [`Watermarks`](crate::Watermarks), and k of n of them.
//!
//! # When
//!
//! With [watermark watches](super::watches#watermarks-that-are-the-condition) you keep the values,
//! raise each before its event, and write a check that says the same as the watches. Where the
//! values are only there to be waited for, let `Watermarks` keep them: how far each replica has
//! come, the applied index of each shard. For one value in the whole program, a
//! [`ThresholdPurgatory`](super::waiting#one-number-that-only-rises) is the same.
//!
//! # A quorum
//!
//! [`wait_for_k`](crate::Watermarks::wait_for_k) waits until any `k` of the keys have reached
//! theirs: a write that two of three replicas have, whichever they are. What has come before
//! counts.
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{Watermarks, WaitError};
//!
//! let fetched = Watermarks::new("replicas")?;
//! let write = |offset: u64| {
//!     let replicas = ["a", "b", "c"].map(|replica| (replica, offset));
//!     fetched.wait_for_k(2, &replicas, Duration::from_millis(20))
//! };
//! fetched.raise(&"a", 8)?; // it has come this far
//! let (seventh, eighth, ninth) = (write(7)?, write(8)?, write(9)?);
//! fetched.raise(&"c", 8)?;
//! fetched.raise(&"c", 6)?; // an answer that is late changes nothing
//! assert_eq!(seventh.block(), Ok(vec![("a", 8), ("c", 8)]));
//! assert_eq!(eighth.block(), Ok(vec![("a", 8), ("c", 8)]));
//! assert_eq!(ninth.block(), Err(WaitError::Expired)); // only two are up, and neither has it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What can go wrong
//!
//! - **Keys that come and go** stay until [`remove`](crate::Watermarks::remove), which also cancels
//!   what waits for them: a topic that is deleted, a replica that leaves. Where keys come from
//!   outside, bound them [`with_keys_max`](crate::Watermarks::with_keys_max).
//! - **A wait for k that one removal ends.** It counted on that key. Ask again, of the others.
//! - **A value that falls**, as a log that is truncated, is none that only rises. Remove it and
//!   raise it anew; who waited is told.
//! - **A condition that is more than the value** wants [watches](super::watches) and a check.
//!
//! Next: [recipes](super::recipes).
