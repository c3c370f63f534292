//! What a snapshot tells.

use std::time::Duration;

use super::{
    operation::OperationId,
    stats::{Stats, Times},
};

/// What a purgatory holds, and what became of what it held. Made by
/// [`Purgatory::snapshot`](crate::Purgatory::snapshot). With the feature `serde` it can be
/// serialised; durations then are seconds.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The purgatory's name.
    pub name: String,
    /// Counts: what is parked, and why operations ended.
    pub stats: Stats,
    /// How many keys have waiters.
    pub key_count: usize,
    /// The keys with the most waiters, most first, each with how many watches it has, counted as by
    /// [`Purgatory::waiters`](crate::Purgatory::waiters).
    pub busiest: Vec<(K, usize)>,
    /// What has been parked for longest, longest first.
    pub oldest: Vec<Parked<K>>,
    /// What is under check, by how long that is known to go on, longest first. A check that never
    /// returns shows up here, and its operation cannot expire.
    pub under_check: Vec<Parked<K>>,
    /// How long operations waited. Counted from the first snapshot, or
    /// [`times`](crate::Purgatory::times), on.
    pub times: Times,
}

/// A parked operation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Parked<K> {
    /// Its name, to cancel or complete it by.
    pub id: OperationId,
    /// The keys it still waits for, one for each watch. A watermark that was met and counted is
    /// none.
    pub keys: Vec<K>,
    /// How long it has been parked, to the microsecond.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds"))]
    pub age: Duration,
    /// How long until it expires, to the timer's tick; zero when it is due, `None` when it never
    /// does.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub expires_in: Option<Duration>,
    /// When it is under check: for how long at least, which is since the first snapshot that found
    /// it in this check.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_seconds_or_none"))]
    pub under_check: Option<Duration>,
}

#[cfg(feature = "serde")]
fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(feature = "serde")]
fn as_seconds_or_none<S: serde::Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&duration.map(|duration| duration.as_secs_f64()), to)
}
