//! One parked operation: its payload, the requests left to a thread that holds the payload, and the
//! watches and times that it was parked with. A state machine, and pure: the shard's lock is held
//! around each call, and no user code runs in here.
//!
//! An entry is *parked*, with its payload in it, or *held*: a thread took the payload out, to check
//! it or because it still watches its keys ([`Payload`]; the engine's head draws the whole life of
//! an operation). These are the only two states of an operation that has not ended. An entry queued
//! for its last check counts as held: its payload travels with the queued job.
//!
//! - **Holder removes**: while an entry is held, only its holder ends or removes it. Every other
//!   thread leaves its holder a *request*: to check again (an event or a sweep came by), or to end
//!   (expiry or cancel; the first one wins).
//! - **Requests are read**: the holder acts on them in the same lock hold in which it checks the
//!   payload in. A check that came true beats a pending end; a pending end beats a pending check.
//! - **One outcome**: it is decided when the payload is taken for good: once.

use std::mem;

use timer_core::TimerHandle;

use super::links::{Link, SecondaryId};
use crate::{
    operation::{CancelReason, Outcome, Verdict},
    watches::UnaskedChecks,
};

/// A waiter that a walk found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    /// An operation whose first key is in this shard, by the index of its entry.
    Here(u32),
    /// An operation whose first key is in another shard.
    Foreign(TimerHandle),
}

/// Why a payload was checked out, which says how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An event of one of its keys.
    Event,
    /// A sweep, or the last check: no event came by. If this check comes true, one was missed.
    NoEvent,
}

/// A payload out of its entry, and the result of its check.
#[derive(Debug)]
pub(crate) struct CheckedOut<O> {
    pub(crate) handle: TimerHandle,
    pub(crate) payload: O,
    pub(crate) cause: Cause,
    pub(crate) verdict: Verdict,
}

impl<O> CheckedOut<O> {
    /// Makes a payload that is still to be checked.
    #[inline(always)]
    pub(crate) fn new(handle: TimerHandle, payload: O, cause: Cause) -> Self {
        CheckedOut {
            handle,
            payload,
            cause,
            verdict: Verdict::Unsatisfied, // until it is checked
        }
    }
}

/// The payload of an entry.
///
/// Requests to a holder lie beside it, not in `Out`: a box has one spare value only, so a second
/// variant with data would add 8 bytes to every entry.
#[derive(Debug)]
pub(crate) enum Payload<O> {
    /// The operation waits.
    Here(O),
    /// A thread holds the payload: the thread that parks or checks it, or the job of its last
    /// check.
    Out,
}

/// A parked operation, as it lies on its shard's wheel.
#[derive(Debug)]
pub(crate) struct Entry<O> {
    pub(super) payload: Payload<O>,
    /// The watch of its last key, if it has several: each names the one that was set before.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// The watch of its first key.
    pub(super) link: Link,
    pub(super) cold: Option<Box<ColdState>>,
    /// The nanosecond of the timer's clock at which it was parked.
    parked_ns: u64,
    unasked: UnaskedChecks,
    /// A request to its holder: an event, or a sweep, came by while it was held.
    check_asked: bool,
    /// A snapshot has seen the check that is under way.
    seen: bool,
}

/// The parts that few entries need.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// The pending end. Only a held entry has one.
    end: Option<Outcome>,
    /// The tick at which its time was up while it was held; `u64::MAX` if it was not.
    due: u64,
    label: Option<&'static str>,
}

impl ColdState {
    fn new(label: Option<&'static str>) -> Box<Self> {
        Box::new(ColdState {
            end: None,
            due: u64::MAX,
            label,
        })
    }
}

/// The times and properties that an operation is parked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkOptions {
    pub(crate) now_tick: u64,
    /// `None` for never.
    pub(crate) deadline_tick: Option<u64>,
    /// The time by the timer's clock.
    pub(crate) parked_ns: u64,
    pub(crate) label: Option<&'static str>,
    pub(crate) unasked: UnaskedChecks,
}

/// The entry's decision on a payload that is checked in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision<O> {
    /// It waits on; the entry has the payload.
    Parked,
    /// Check it again. The caller still holds the entry.
    CheckAgain(O),
    /// It is over.
    Ended(O, Outcome),
}

/// An entry whose time is up.
#[derive(Debug)]
pub(super) enum Visited<O> {
    /// It is checked once more. The job of that check holds it.
    LastCheck(O),
    /// It is over, and still to be taken.
    Expired,
    /// Its holder was left a request to end it.
    LeftToHolder,
}

/// A snapshot's view of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It waits.
    Parked,
    /// It is under check, and no snapshot saw this check before.
    NewCheck,
    /// It is under the check that the last snapshot saw.
    SameCheck,
}

impl<O> Entry<O> {
    /// Makes an entry. If it is held, the thread that parks it has the payload.
    #[inline(always)] // a call costs 20 instructions
    pub(super) fn new(payload: Payload<O>, options: &ParkOptions, link: Link) -> Self {
        // Most operations have no label. They get a box when an end is requested, if at all.
        let cold = options.label.map(|label| ColdState::new(Some(label)));
        Entry {
            payload,
            last_secondary: None,
            link,
            cold,
            parked_ns: options.parked_ns,
            unasked: options.unasked,
            check_asked: false,
            seen: false,
        }
    }

    /// Returns the payload, unless the entry is held.
    pub(crate) fn payload(&self) -> Option<&O> {
        match &self.payload {
            Payload::Here(payload) => Some(payload),
            Payload::Out => None,
        }
    }

    /// Returns the payload to be changed, unless the entry is held.
    pub(crate) fn payload_mut(&mut self) -> Option<&mut O> {
        match &mut self.payload {
            Payload::Here(payload) => Some(payload),
            Payload::Out => None,
        }
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.cold.as_ref()?.label
    }

    /// Returns the tick at which its time was up while it was held; `u64::MAX` if it was not.
    pub(crate) fn due(&self) -> u64 {
        self.cold.as_ref().map_or(u64::MAX, |cold| cold.due)
    }

    /// Returns for how long it has been parked, in nanoseconds.
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.parked_ns) // the clock may have been read before it parked
    }

    /// Stores the secondary watches. `event_passed` says that one of the keys saw an event since
    /// the parker checked. Only the parker, which holds the entry, calls this.
    #[inline]
    pub(super) fn watched(&mut self, last_secondary: Option<SecondaryId>, event_passed: bool) {
        self.last_secondary = last_secondary;
        // A version that moved counts as an event that found the entry held.
        self.check_asked |= event_passed;
    }

    /// Leaves the holder of a held entry a request to check again.
    pub(crate) fn request_check(&mut self) {
        if !failpoint!(EventLeavesNoRequest) {
            self.check_asked = true;
        }
    }

    /// Takes the payload out, and leaves the entry held.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<O> {
        match mem::replace(&mut self.payload, Payload::Out) {
            Payload::Here(payload) => Some(payload),
            Payload::Out => None,
        }
    }

    /// Checks the payload out for an event. If the entry is held, its holder is left a request to
    /// check again.
    #[inline]
    pub(crate) fn check_out(&mut self) -> Option<O> {
        let payload = self.take();
        if payload.is_none() {
            self.request_check(); // Holder removes
        }
        payload
    }

    /// Checks the payload out for a sweep, as for an event, if it was parked by then. Not that of an
    /// operation without a condition, nor if the end is decided: the last check then says itself what
    /// was missed.
    pub(super) fn check_out_for_sweep(&mut self, parked_by_ns: u64) -> Option<O> {
        let is_young = self.parked_ns > parked_by_ns;
        if is_young || self.unasked == UnaskedChecks::Never || self.is_ending() {
            return None;
        }
        self.check_out()
    }

    /// Decides what follows as its time is up, at the tick `deadline`. With `last_check` every
    /// operation has a last check.
    pub(super) fn visit(&mut self, deadline: u64, last_check: bool) -> Visited<O> {
        let is_checked = match self.unasked {
            UnaskedChecks::AsBuilt => last_check,
            UnaskedChecks::Last => true,
            UnaskedChecks::Never => false,
        };
        if !is_checked && !self.is_held() {
            return Visited::Expired;
        }
        // Whoever holds it ends it (Holder removes). With a last check that is the job of this check.
        let payload = self.take();
        if payload.is_some() || !failpoint!(ExpiryLeavesNoRequest) {
            self.request_expiry(deadline);
        }
        match payload {
            Some(payload) => Visited::LastCheck(payload),
            None => Visited::LeftToHolder,
        }
    }

    /// True when an event came by, or is about to, since its holder took the payload out.
    pub(crate) fn event_is_pending(&self) -> bool {
        self.check_asked
    }

    /// Takes the payload out for good, for an end from outside. If the entry is held, its holder is
    /// left a request to end it.
    #[inline]
    pub(super) fn claim(&mut self, outcome: &Outcome) -> Option<O> {
        let payload = self.take();
        // Holder removes: only a request.
        if payload.is_none() && !failpoint!(ExpiryLeavesNoRequest) {
            self.request_end(outcome);
        }
        payload
    }

    /// Leaves its holder a request to end it. The first one wins.
    #[cold]
    fn request_end(&mut self, outcome: &Outcome) -> &mut ColdState {
        let cold = self.cold.get_or_insert_with(|| ColdState::new(None));
        if cold.end.is_none() {
            // An outcome has a reason of the user's, which may be a `String`: cloned here only.
            cold.end = Some(outcome.clone());
        }
        cold
    }

    /// Leaves its holder a request to end it as expired, and notes when its time was up: the wheel
    /// knows that no more.
    #[cold]
    fn request_expiry(&mut self, deadline: u64) {
        self.request_end(&Outcome::Expired).due = deadline;
    }

    /// Checks the payload in with the result of its check, and acts on the requests. Only the
    /// holder calls this.
    #[inline]
    pub(super) fn check_in(&mut self, payload: O, verdict: Verdict) -> Decision<O> {
        // 1. A check that came true beats every request.
        if verdict == Verdict::Satisfied {
            return Decision::Ended(payload, Outcome::Completed);
        }
        // 2. A pending end beats a panic and a pending check.
        let pending = self.cold.as_mut().and_then(|cold| cold.end.take());
        if pending.is_some() || verdict == Verdict::Panicked {
            let end = pending.unwrap_or(Outcome::Cancelled(CancelReason::Panicked));
            return Decision::Ended(payload, end);
        }
        // 3. A pending check: the caller goes on holding.
        self.seen = false;
        if mem::take(&mut self.check_asked) {
            return Decision::CheckAgain(payload);
        }
        // 4. Nothing is asked for: it waits on.
        self.payload = Payload::Here(payload);
        Decision::Parked
    }

    /// True when an end is pending.
    pub(super) fn is_ending(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| cold.end.is_some())
    }

    /// Looks at it for a snapshot, and marks a check that is under way as seen.
    pub(crate) fn look(&mut self) -> Look {
        if !self.is_held() {
            return Look::Parked;
        }
        // The check that is under way wipes the mark as it ends, so the mark means this check.
        let seen = mem::replace(&mut self.seen, true);
        if seen {
            Look::SameCheck
        } else {
            Look::NewCheck
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.payload, Payload::Out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(payload: Payload<u8>) -> Entry<u8> {
        let options = ParkOptions {
            now_tick: 0,
            deadline_tick: Some(10),
            parked_ns: 0,
            label: None,
            unasked: UnaskedChecks::AsBuilt,
        };
        Entry::new(payload, &options, Link::NOWHERE)
    }

    #[test]
    fn satisfied_check_beats_every_request() {
        let mut entry = entry(Payload::Out);
        assert_eq!(entry.claim(&Outcome::Expired), None);
        assert_eq!(
            entry.check_in(7, Verdict::Satisfied),
            Decision::Ended(7, Outcome::Completed)
        );
    }

    #[test]
    fn a_sweep_leaves_the_request_of_an_event() {
        let mut entry = entry(Payload::Here(7));
        entry.parked_ns = 5;
        assert_eq!(entry.check_out_for_sweep(4), None);
        assert_eq!(entry.check_out_for_sweep(5), Some(7));
        assert_eq!(entry.check_out_for_sweep(5), None);
        assert!(entry.event_is_pending());
        let again = entry.check_in(7, Verdict::Unsatisfied);
        assert_eq!(again, Decision::CheckAgain(7));
        assert_eq!(entry.check_in(7, Verdict::Unsatisfied), Decision::Parked);
    }

    #[test]
    fn a_sweep_asks_nothing_of_what_has_no_condition_or_is_ending() {
        let mut without = entry(Payload::Here(7));
        without.unasked = UnaskedChecks::Never;
        assert_eq!(without.check_out_for_sweep(0), None);
        assert!(!without.is_held());

        let mut ending = entry(Payload::Here(7));
        assert!(matches!(ending.visit(10, true), Visited::LastCheck(7)));
        assert_eq!(ending.check_out_for_sweep(0), None);
        assert!(!ending.event_is_pending(), "its last check may find a miss");
    }

    #[test]
    fn entry_queued_for_last_check_is_held() {
        let mut entry = entry(Payload::Here(7));
        assert!(matches!(entry.visit(10, true), Visited::LastCheck(7)));
        assert!(entry.is_held() && entry.is_ending());
        let cancelled = Outcome::Cancelled(CancelReason::Shutdown);
        assert_eq!(entry.claim(&cancelled), None);
        assert_eq!(
            entry.check_in(7, Verdict::Unsatisfied),
            Decision::Ended(7, Outcome::Expired)
        );
    }

    #[test]
    fn entry_may_ask_for_a_last_check_itself() {
        let mut entry = entry(Payload::Here(7));
        entry.unasked = UnaskedChecks::Last;
        assert!(matches!(entry.visit(10, false), Visited::LastCheck(7)));
        assert_eq!(entry.due(), 10);
        assert!(entry.is_held() && entry.is_ending());
    }

    #[test]
    fn a_check_that_was_seen_is_another_than_the_next_one() {
        let mut entry = entry(Payload::Out);
        entry.watched(None, true);
        assert_eq!(entry.look(), Look::NewCheck);
        assert_eq!(entry.look(), Look::SameCheck);
        assert_eq!(
            entry.check_in(7, Verdict::Unsatisfied),
            Decision::CheckAgain(7)
        );
        assert_eq!(entry.look(), Look::NewCheck);
    }

    #[test]
    fn entry_is_no_larger_than_its_parts() {
        assert_eq!(size_of::<Payload<Box<u64>>>(), 8);
        assert_eq!(size_of::<Entry<Box<u64>>>(), 8 + 8 + 12 + 8 + 8 + 4);
    }
}
