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
//!   thread leaves its holder a *request*: to check again (an event or a recheck came by), or to
//!   end (expiry or cancel; the first one wins).
//! - **Requests are read**: the holder acts on them in the same lock hold in which it checks the
//!   payload in. A check that came true beats a pending end; a pending end beats a pending check.
//! - **One outcome**: it is decided when the payload is taken for good: once.

use std::mem;

use timer_core::TimerHandle;

use super::{
    flags::Flags,
    links::{Link, SecondaryId},
};
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
    /// A recheck, or the last check: no event came by. If this check comes true, one was missed.
    Recheck,
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
    /// The tick at which its time is up; `u64::MAX` for never. The wheel visits it earlier if it is
    /// to be rechecked before.
    pub(crate) deadline: u64,
    /// The nanosecond of the timer's clock at which it was parked.
    parked_ns: u64,
    unasked: UnaskedChecks,
    pub(super) flags: Flags,
}

/// The parts that few entries need.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// The pending end. Only a held entry has one.
    end: Option<Outcome>,
    label: Option<&'static str>,
}

impl ColdState {
    fn new(label: Option<&'static str>) -> Box<Self> {
        Box::new(ColdState { end: None, label })
    }
}

/// The times and properties that an operation is parked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkOptions {
    pub(crate) now_tick: u64,
    /// `None` for never.
    pub(crate) deadline_tick: Option<u64>,
    /// The tick of the wheel's next visit: the deadline, or earlier for a recheck. `None` for
    /// never.
    pub(crate) visit_tick: Option<u64>,
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
    /// Check it again, for this cause. The caller still holds the entry.
    CheckAgain(O, Cause),
    /// It is over.
    Ended(O, Outcome),
}

/// An entry that the wheel visits.
#[derive(Debug)]
pub(super) enum Visited<O> {
    /// Its time is not up, so it is due for a recheck.
    Early {
        /// The last recheck has not begun, so no second one is queued.
        queued: bool,
    },
    /// Its time is up, and it is checked once more. The job of that check holds it.
    LastCheck(O),
    /// Its time is up, and it has ended.
    Expired(O),
    /// Its time is up, and its holder was left a request to end it.
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
    #[inline]
    pub(super) fn new(payload: Payload<O>, options: &ParkOptions, link: Link) -> Self {
        // Most operations have no label. They get a box when an end is requested, if at all.
        let cold = options.label.map(|label| ColdState::new(Some(label)));
        Entry {
            payload,
            last_secondary: None,
            link,
            cold,
            deadline: options.deadline_tick.unwrap_or(u64::MAX),
            parked_ns: options.parked_ns,
            unasked: options.unasked,
            flags: Flags::default(),
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
        if event_passed {
            self.flags.set(Flags::CHECK);
        }
    }

    /// Leaves the holder of a held entry a request to check again.
    pub(crate) fn request_check(&mut self) {
        if !failpoint!(EventLeavesNoRequest) {
            self.flags.set(Flags::CHECK);
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

    /// Checks the payload out for a queued recheck. If the entry is held, its holder is left a
    /// request to check again.
    pub(super) fn check_out_for_recheck(&mut self) -> Option<O> {
        self.flags.clear(Flags::RECHECK_QUEUED);
        if self.unasked == UnaskedChecks::Never {
            return None;
        }
        let payload = self.take();
        if payload.is_none() && !failpoint!(RecheckLeavesNoRequest) {
            // The condition may have come true behind the check that is under way. It is no pending
            // event: what this recheck finds was missed.
            self.flags.set(Flags::RECHECK);
        }
        payload
    }

    /// Decides what follows from the wheel's visit at tick `now`. With `last_check` every operation
    /// has a last check.
    pub(super) fn visit(&mut self, now: u64, last_check: bool) -> Visited<O> {
        // 1. Early: the wheel visits it for a recheck. One that is queued will do.
        if self.deadline > now {
            let queued = self.flags.has(Flags::RECHECK_QUEUED);
            self.flags.set(Flags::RECHECK_QUEUED);
            return Visited::Early { queued };
        }
        // 2. Its time is up. Whichever thread holds it ends it.
        let Some(payload) = self.claim(&Outcome::Expired) else {
            return Visited::LeftToHolder;
        };
        // 3. With a last check the job is the holder, and this request makes it end the operation.
        let is_checked = match self.unasked {
            UnaskedChecks::AsBuilt => last_check,
            UnaskedChecks::Last => true,
            UnaskedChecks::Never => false,
        };
        if is_checked {
            self.request_end(&Outcome::Expired);
            return Visited::LastCheck(payload);
        }
        Visited::Expired(payload)
    }

    /// True when an event came by, or is about to, since its holder took the payload out.
    pub(crate) fn event_is_pending(&self) -> bool {
        self.flags.has(Flags::CHECK)
    }

    /// Takes the payload out for good, for expiry and cancel. If the entry is held, its holder is
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
    fn request_end(&mut self, outcome: &Outcome) {
        let cold = self.cold.get_or_insert_with(|| ColdState::new(None));
        if cold.end.is_none() {
            // An outcome has a reason of the user's, which may be a `String`: cloned here only.
            cold.end = Some(outcome.clone());
        }
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
        // 3. A pending check: the caller goes on holding. One check answers both kinds of request;
        //    an event's check is the one that does for both, as a recheck may have nothing to ask.
        let event = self.flags.has(Flags::CHECK);
        let recheck = self.flags.has(Flags::RECHECK);
        self.flags
            .clear(Flags::CHECK | Flags::RECHECK | Flags::SEEN);
        if event {
            return Decision::CheckAgain(payload, Cause::Event);
        }
        if recheck {
            return Decision::CheckAgain(payload, Cause::Recheck);
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
        let seen = self.flags.has(Flags::SEEN);
        self.flags.set(Flags::SEEN);
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
            visit_tick: None,
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
    fn recheck_of_held_entry_leaves_a_request() {
        let mut entry = entry(Payload::Here(7));
        assert_eq!(entry.check_out(), Some(7));
        assert!(matches!(
            entry.visit(1, false),
            Visited::Early { queued: false }
        ));
        assert!(matches!(
            entry.visit(2, false),
            Visited::Early { queued: true }
        ));
        assert_eq!(entry.check_out_for_recheck(), None);
        assert!(!entry.event_is_pending(), "a recheck is no event");
        let again = entry.check_in(7, Verdict::Unsatisfied);
        assert_eq!(again, Decision::CheckAgain(7, Cause::Recheck));
        assert_eq!(entry.check_in(7, Verdict::Unsatisfied), Decision::Parked);
    }

    #[test]
    fn requested_event_beats_requested_recheck() {
        let mut entry = entry(Payload::Out);
        assert_eq!(entry.check_out_for_recheck(), None);
        assert_eq!(entry.check_out(), None);
        let again = entry.check_in(7, Verdict::Unsatisfied);
        assert_eq!(again, Decision::CheckAgain(7, Cause::Event));
        assert_eq!(entry.check_in(7, Verdict::Unsatisfied), Decision::Parked);
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
        assert!(matches!(entry.visit(9, false), Visited::Early { .. }));
        assert!(matches!(entry.visit(10, false), Visited::LastCheck(7)));
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
            Decision::CheckAgain(7, Cause::Event)
        );
        assert_eq!(entry.look(), Look::NewCheck);
    }

    #[test]
    fn entry_is_no_larger_than_its_parts() {
        assert_eq!(size_of::<Payload<Box<u64>>>(), 8);
        assert_eq!(size_of::<Entry<Box<u64>>>(), 8 + 8 + 12 + 8 + 8 + 8 + 4);
    }
}
