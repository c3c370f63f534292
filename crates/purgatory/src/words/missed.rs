//! Missed events: [`MissedEvent`].

use std::time::Duration;

use super::operation::OperationId;

/// A condition that came true without an event: found by the last check of an operation whose time
/// was up. See [`Builder::check_at_expiry`](crate::Builder::check_at_expiry).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissedEvent<K> {
    /// The operation, which is over.
    pub id: OperationId,
    /// The keys it still waited for, one for each watch: an event of one of them is missing.
    pub keys: Vec<K>,
    /// How long it was parked, to the microsecond: its whole time, whenever its condition came
    /// true.
    pub waited: Duration,
}
