//! Looking: sums of what was counted and timed, snapshots, publishing.

#[cfg(feature = "metrics")]
mod metrics;
pub(crate) mod snapshot;
