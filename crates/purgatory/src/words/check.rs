//! What an operation's check found.

use super::operation::{CancelReason, Outcome, Timeout};

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Satisfied,
    Unsatisfied,
    Panicked,
}

impl Timeout {
    /// How an operation ends that need not be parked: its first check was enough, or there is no
    /// time.
    #[inline]
    pub(crate) fn at_once(self, first: Verdict, now_ns: u64) -> Option<Outcome> {
        match (first, self) {
            (Verdict::Satisfied, _) => Some(Outcome::Completed),
            (Verdict::Panicked, _) => Some(Outcome::Cancelled(CancelReason::Panicked)),
            (_, Timeout::After(delay)) if delay.is_zero() => Some(Outcome::Expired),
            (_, Timeout::At(deadline_ns)) if deadline_ns <= now_ns => Some(Outcome::Expired),
            _ => None,
        }
    }
}
