//! One parked operation: its payload, the requests to a thread that holds the payload, and the
//! watches and times with which it was parked. It is a pure state machine: the shard's lock is held
//! around each call, and no user code runs in here.
//!
//! An entry is *parked*, with its payload in it, or *held*: a thread took the payload out, to check
//! it or while it still sets the watches (the engine's head draws the whole life of an operation).
//! These are the only two states of an operation that has not ended. An entry queued for its last
//! check counts as held: its payload travels with the queued job.
//!
//! - **Holder removes**: while an entry is held, only its holder ends or removes it. Every other
//!   thread leaves its holder a *request*: to check again (an event or a sweep came by), or to end
//!   (expiry or cancel; the first one wins).
//! - **Requests are read**: the holder acts on them in the same lock hold in which it checks the
//!   payload in. A check that came true beats a pending end; a pending end beats a pending check,
//!   except that an expiry may let one more check run.
//! - **One outcome**: it is decided once, when the payload is taken for good.

use std::mem;

use timer_core::{
    TimerHandle,
    driver::sync::{Latch, UnderWay},
};

use super::links::{Link, SecondaryId};
use crate::{
    operation::{CancelReason, Outcome, Verdict},
    table::Arrival,
    watches::{UnaskedChecks, Watches},
};

/// The reason why a payload was checked out, which decides how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An event of one of its keys.
    Event,
    /// A sweep, or the last check: there was no event. If this check comes true, one was missed.
    NoEvent,
}

/// A payload that is out of its entry, and the result of its check.
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
            verdict: Verdict::Unsatisfied, // until the check
        }
    }
}

/// A parked operation, as it lies on its shard's wheel.
#[derive(Debug)]
pub(crate) struct Entry<O> {
    /// The operation; `None` while a thread holds it: the thread that parks or checks it, or the
    /// job of its last check. Requests to a holder lie in fields of their own: so an `Option` of a
    /// box stays one word.
    pub(crate) payload: Option<O>,
    /// The watch of its last key, if it has several keys. Each watch names the one set before it.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// The watch of its first key.
    pub(super) link: Link,
    pub(super) cold: Option<Box<ColdState>>,
    /// The time at which it was parked, in nanoseconds of the timer's clock.
    parked_ns: u64,
    unasked: UnaskedChecks,
    /// A request to its holder: an event or a sweep came while the entry was held.
    check_asked: bool,
}

/// The holder's next step with an operation that it has checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterCheck {
    End(Outcome),
    /// Check it once more, for this cause.
    CheckAgain(Cause),
    /// Put it back.
    Park,
}

/// The knowledge that snapshots have of the check that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KnownCheck {
    #[default]
    No,
    /// A snapshot that had read the clock at this time found the check. It will read the clock
    /// again, since the check may have begun later.
    FoundAt(u64),
    /// The check has been under way since this time, or longer.
    Since(u64),
}

/// The fields that few entries need.
#[derive(Debug)]
pub(crate) struct ColdState {
    /// The pending end. Only a held entry has one.
    end: Option<Outcome>,
    /// Its time was up during a check, which may have looked before an event or a change: so
    /// another check may come before the pending end.
    may_check_again: bool,
    /// The deadline that passed while it was held, in nanoseconds.
    due_ns: Option<u64>,
    label: Option<&'static str>,
    check: KnownCheck,
    /// Dropped once its holder has called it back. A shutdown waits for that.
    closing: Option<UnderWay>,
}

impl ColdState {
    fn new(label: Option<&'static str>) -> Box<Self> {
        Box::new(ColdState {
            end: None,
            may_check_again: false,
            due_ns: None,
            label,
            check: KnownCheck::No,
            closing: None,
        })
    }
}

impl<O> Entry<O> {
    /// Makes an entry. If it is held, the thread that parks it has the payload.
    #[inline(always)] // a call costs 20 instructions
    pub(super) fn new<K>(
        payload: Option<O>,
        arrival: Arrival,
        watches: &Watches<'_, K>,
        link: Link,
    ) -> Self {
        // Most operations have no label. They get a box when an end is requested, if at all.
        let cold = watches.label.map(|label| ColdState::new(Some(label)));
        Entry {
            payload,
            last_secondary: None,
            link,
            cold,
            parked_ns: arrival.now_ns,
            unasked: watches.unasked,
            check_asked: false,
        }
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.cold.as_ref()?.label
    }

    /// Returns the deadline that passed while it was held, in nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.cold.as_ref()?.due_ns
    }

    /// Returns how long it has been parked, in nanoseconds.
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.parked_ns) // the clock may have been read before it parked
    }

    /// Asks the holder of a held entry to check again.
    pub(crate) fn request_check(&mut self) {
        if !failpoint!(EventLeavesNoRequest) {
            self.check_asked = true;
        }
    }

    /// Checks the payload out for an event. If the entry is held, asks the holder to check again.
    pub(crate) fn check_out(&mut self) -> Option<O> {
        let payload = self.payload.take();
        if payload.is_none() {
            self.request_check(); // Holder removes
        }
        payload
    }

    /// Checks the payload out for a sweep, as for an event, if the operation was parked by then.
    /// Leaves out operations without a condition and those with a pending end, whose last check
    /// itself tells if an event was missed.
    pub(super) fn check_out_for_sweep(&mut self, parked_by_ns: u64) -> Option<O> {
        let is_young = self.parked_ns > parked_by_ns;
        if is_young || !self.has_condition() || self.is_ending() {
            return None;
        }
        self.check_out()
    }

    /// Returns true if a check decides whether an event ends it. Otherwise every event does.
    pub(super) fn has_condition(&self) -> bool {
        self.unasked != UnaskedChecks::Never
    }

    /// Returns true if it is checked once more when its time is up.
    pub(super) fn has_last_check(&self) -> bool {
        self.unasked == UnaskedChecks::Last
    }

    /// Asks its holder to end it, since its time was up at `due_ns`. Returns the payload if it has
    /// no holder: the job of its last check becomes the holder.
    pub(super) fn expire_held(&mut self, due_ns: u64) -> Option<O> {
        let payload = self.payload.take();
        if payload.is_some() || !failpoint!(ExpiryLeavesNoRequest) {
            let cold = self.request_end(&Outcome::Expired);
            cold.due_ns = Some(due_ns); // the wheel does not keep it
            cold.may_check_again = payload.is_none();
        }
        payload
    }

    /// Returns true if an event has come, or is about to, since its holder took the payload out.
    pub(crate) fn event_is_pending(&self) -> bool {
        self.check_asked
    }

    /// Takes the payload out for good, for an end from outside. If the entry is held, asks the
    /// holder to end it.
    #[inline]
    pub(super) fn claim(&mut self, outcome: &Outcome) -> Option<O> {
        let payload = self.payload.take();
        // Holder removes: leave only a request.
        if payload.is_none() && !failpoint!(ExpiryLeavesNoRequest) {
            self.request_end(outcome);
        }
        payload
    }

    /// Asks its holder to end it. The first such request wins.
    #[cold]
    fn request_end(&mut self, outcome: &Outcome) -> &mut ColdState {
        let cold = self.cold.get_or_insert_with(|| ColdState::new(None));
        if cold.end.is_none() {
            // Cloned only here: an outcome may have a reason of the user's, such as a `String`.
            cold.end = Some(outcome.clone());
        }
        cold
    }

    /// Counts a held operation as under way until its holder has called it back.
    pub(super) fn hold_shutdown(&mut self, closing: &Latch) {
        let cold = self.cold.get_or_insert_with(|| ColdState::new(None));
        cold.closing.get_or_insert_with(|| closing.begin());
    }

    /// Decides what comes after a check, for the holder, as it checks the payload in.
    pub(super) fn after_check(&mut self, verdict: Verdict) -> AfterCheck {
        // 1. A check that came true beats every request.
        if verdict == Verdict::Satisfied {
            return AfterCheck::End(Outcome::Completed);
        }
        // 2. A pending end beats a panic and, but for one more check, a pending check.
        if self.is_ending() {
            return self.after_last_check(verdict);
        }
        if verdict == Verdict::Panicked {
            return AfterCheck::End(Outcome::Cancelled(CancelReason::Panicked));
        }
        // 3. This check is over. A pending request has the same holder check again.
        if let Some(cold) = &mut self.cold {
            cold.check = KnownCheck::No;
        }
        if mem::take(&mut self.check_asked) {
            return AfterCheck::CheckAgain(Cause::Event);
        }
        AfterCheck::Park
    }

    /// Decides what comes after a check that did not come true, with an end pending: that end. But
    /// if the time was up during this check, an event that came meanwhile has its check first, or
    /// else the last check runs.
    #[cold]
    fn after_last_check(&mut self, verdict: Verdict) -> AfterCheck {
        let has_last_check = self.has_last_check();
        let cold = self.cold.as_mut().expect("an end is pending");
        let is_expiry = matches!(cold.end, Some(Outcome::Expired));
        let may_check_again = mem::take(&mut cold.may_check_again) && is_expiry;
        if may_check_again && verdict == Verdict::Unsatisfied {
            cold.check = KnownCheck::No; // that check is over
            if mem::take(&mut self.check_asked) {
                return AfterCheck::CheckAgain(Cause::Event);
            }
            if has_last_check {
                return AfterCheck::CheckAgain(Cause::NoEvent);
            }
        }
        AfterCheck::End(cold.end.take().expect("an end is pending"))
    }

    /// Returns true if an end is pending.
    pub(crate) fn is_ending(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| cold.end.is_some())
    }

    /// Returns for how long the present check is known to have run, for a snapshot that has read
    /// the clock at `now_ns`. The first snapshot that finds the check gets 0, and
    /// [notes](Self::note_check) it.
    pub(crate) fn check_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !self.is_held() {
            return None;
        }
        let cold = self.cold.get_or_insert_with(|| ColdState::new(None));
        if let KnownCheck::Since(since_ns) = cold.check {
            return Some(now_ns.saturating_sub(since_ns));
        }
        cold.check = KnownCheck::FoundAt(now_ns);
        Some(0)
    }

    /// Notes that the check that a snapshot found at `found_ns` has run since the second reading of
    /// the clock, if it still runs. The check's end removes the note.
    pub(crate) fn note_check(&mut self, found_ns: u64, since_ns: u64) {
        if let Some(cold) = &mut self.cold {
            if cold.check == KnownCheck::FoundAt(found_ns) {
                cold.check = KnownCheck::Since(since_ns);
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.payload.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(unasked: UnaskedChecks) -> Entry<u8> {
        let arrival = Arrival {
            now_ns: 0,
            now_tick: 0,
            deadline_tick: Some(10),
            is_over: false,
        };
        let watches = Watches {
            unasked,
            ..Watches::keys(&[0])
        };
        Entry::new(None, arrival, &watches, Link::new(0, 0))
    }

    #[test]
    fn check_past_the_deadline_is_followed_by_another() {
        let expired = || AfterCheck::End(Outcome::Expired);
        let cancelled = Outcome::Cancelled(CancelReason::Shutdown);
        // One more check if an event came, or if there is a last check.
        for (is_asked, unasked, cause) in [
            (true, UnaskedChecks::Rechecks, Some(Cause::Event)),
            (false, UnaskedChecks::Last, Some(Cause::NoEvent)),
            (false, UnaskedChecks::Rechecks, None),
        ] {
            let mut entry = entry(unasked);
            assert_eq!(entry.expire_held(10), None);
            if is_asked {
                entry.request_check();
            }
            assert_eq!(entry.check_ns(2), Some(0));
            entry.note_check(2, 3);
            assert_eq!(entry.check_ns(4), Some(1));
            let mut after = entry.after_check(Verdict::Unsatisfied);
            if let Some(cause) = cause {
                assert_eq!(after, AfterCheck::CheckAgain(cause));
                entry.note_check(2, 5); // too late
                assert_eq!(entry.check_ns(6), Some(0), "another check");
                entry.note_check(2, 5);
                entry.note_check(6, 7);
                assert_eq!(entry.check_ns(9), Some(2));
                after = entry.after_check(Verdict::Unsatisfied);
            }
            assert_eq!(after, expired());
        }
        // No more checks after a panic, or if it was cancelled before.
        for (verdict, is_cancelled) in [(Verdict::Panicked, false), (Verdict::Unsatisfied, true)] {
            let mut entry = entry(UnaskedChecks::Last);
            if is_cancelled {
                entry.claim(&cancelled);
            }
            assert_eq!(entry.expire_held(10), None);
            entry.request_check();
            let expected = match is_cancelled {
                true => AfterCheck::End(cancelled.clone()),
                false => expired(),
            };
            assert_eq!(entry.after_check(verdict), expected);
        }
    }

    #[test]
    fn entry_is_no_larger_than_its_parts() {
        assert_eq!(size_of::<Option<Box<u64>>>(), 8);
        assert_eq!(size_of::<Entry<Box<u64>>>(), 8 + 8 + 12 + 8 + 8 + 4);
    }
}
