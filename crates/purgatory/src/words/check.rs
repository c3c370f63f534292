//! Running an operation's check, and what it found.

use timer_core::{Panicked, driver::contain};

use super::operation::{CancelReason, DelayedOperation, Outcome, Timeout};

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Satisfied,
    Unsatisfied,
    Panicked,
}

/// Runs an operation's check. A panic in it is contained, and reported.
#[inline]
pub(crate) fn check<O: DelayedOperation>(
    operation: &mut O,
    report: impl FnOnce(&Panicked),
) -> Verdict {
    let mut satisfied = false;
    if let Err(panicked) = contain(|| satisfied = operation.try_complete()) {
        report(&panicked);
        Verdict::Panicked
    } else if satisfied {
        Verdict::Satisfied
    } else {
        Verdict::Unsatisfied
    }
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
