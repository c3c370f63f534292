//! What a timer tells of itself: how long things took, what it holds and has done, publishing it.

pub(crate) mod histogram;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod stats;
