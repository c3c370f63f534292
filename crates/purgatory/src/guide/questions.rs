//! Questions and limits.
//!
//! **My operation is not completed, though its condition is true.** Its key was signalled [too
//! early](super::operations#the-one-rule), by the [wrong call](super::watches#pitfalls), or [not at
//! all](super::operating#missed-events).
//!
//! **What if the last handle is dropped?** Parked operations are cancelled; the drop waits for no
//! thread. An operation that holds a handle keeps its purgatory open: with `Timeout::Never`, call
//! `shutdown`.
//!
//! **In which order do operations end?** An event checks in the order of parking; an advance goes
//! by threshold first. Two events at once may overtake each other.
//!
//! # Limits
//!
//! | Number of | At most | Beyond |
//! |---|---|---|
//! | operations whose first key is in one shard | 2^26 | [`Full`](crate::RefusedReason::Full) |
//! | secondary watches in one shard | 2^30 | [`Full`](crate::RefusedReason::Full) |
//! | watermarks of an operation, without `checked()` | 16 383 | [`TooManyWatermarks`](crate::RefusedReason::TooManyWatermarks) |
//! | a timeout | `u64::MAX` ticks | it saturates |
