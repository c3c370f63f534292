//! The state machine of one parked operation. Pure: its shard's lock is around each call, and
//! nothing of the user's runs in here.
//!
//! An entry holds the operation itself (its *payload*) or is *held*: a thread took the payload out
//! to check it, and that is the claim. There is no other; but an entry whose last check is on its
//! way counts as held by it.
//!
//! - **Holder removes**: while an entry is held, only its holder ends or removes it. Everyone else
//!   leaves a *note*: `recheck` (an event came by) or `end` (expiry or cancel; the first wins).
//! - **Notes are read**: the holder acts on the notes in the same lock hold in which it gives the
//!   payload back. A check that came true beats `end`; `end` beats `recheck`.
//! - **Counted down**: `remaining` watermark watches must be met, each taken off its key by one
//!   thread, which counts it down here. The last one ends the operation as Completed, or leaves
//!   that as a note.
//! - **One outcome**: it is decided when the payload leaves for good, which happens once.

use smallvec::SmallVec;
use timer_core::{TimerHandle, TimingWheel};

use super::keys::{Link, SecondaryId};
use crate::operation::{Outcome, Verdict};

/// The entries of a shard, on its wheel, and the shard's number.
#[derive(Debug)]
pub(crate) struct Entries<O> {
    pub(crate) wheel: TimingWheel<Entry<O>>,
    pub(crate) shard: u32,
}

impl<O> Entries<O> {
    pub(crate) fn id(&self, index: u32) -> TimerHandle {
        TimerHandle::new(self.shard as usize, self.wheel.id_at(index))
    }
}

/// A waiter that a walk found: an operation whose first key is in this shard, by its entry's index,
/// or another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Here(u32),
    Foreign(TimerHandle),
}

impl Waiter {
    pub(crate) fn id<O>(self, entries: &Entries<O>) -> TimerHandle {
        match self {
            Waiter::Here(index) => entries.id(index),
            Waiter::Foreign(id) => id,
        }
    }
}

/// A payload out of its entry, and what its check found.
#[derive(Debug)]
pub(crate) struct CheckedOut<O> {
    pub(crate) id: TimerHandle,
    pub(crate) payload: O,
    pub(crate) verdict: Verdict,
}

/// Waiters of a key that an event found together, in the order they were parked.
#[derive(Debug)]
pub(crate) struct Batch<O> {
    /// Those that are checked out.
    pub(crate) held: SmallVec<[CheckedOut<O>; 1]>,
    /// Those whose first key is in another shard, still to be checked out: each with how many of the
    /// held come before.
    pub(crate) foreign: SmallVec<[(usize, TimerHandle); 1]>,
}

impl<O> Batch<O> {
    pub(crate) fn new() -> Self {
        Batch {
            held: SmallVec::new(),
            foreign: SmallVec::new(),
        }
    }

    /// What a walk of a shard is to do with the waiters it finds.
    #[inline(always)]
    pub(crate) fn finding(&mut self) -> impl FnMut(&mut Entries<O>, Waiter) {
        |entries, waiter| self.check_out(entries, waiter)
    }

    #[inline(always)]
    fn check_out(&mut self, entries: &mut Entries<O>, waiter: Waiter) {
        match waiter {
            Waiter::Foreign(id) => self.foreign.push((self.held.len(), id)),
            Waiter::Here(index) => {
                if let Some(payload) = entries.wheel.at_mut(index).check_out() {
                    let id = entries.id(index);
                    self.held.push(CheckedOut {
                        id,
                        payload,
                        verdict: Verdict::Unsatisfied,
                    });
                }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Entry<O> {
    payload: Option<O>,
    /// The watch of its last key, if it has several: each names the one that was set before.
    pub(crate) last_secondary: Option<SecondaryId>,
    /// The watch of its first key.
    pub(super) link: Link,
    rare: Option<Box<ColdState>>,
    /// When its time is up, in ticks; `u64::MAX` for never. The wheel comes by earlier if it is to
    /// be checked before.
    pub(crate) deadline: u64,
    /// The nanosecond of the timer's clock at which it was parked.
    parked_ns: u64,
    /// The watermark watches still to be met, and three flags above.
    bits: u32,
}

/// What few entries have.
#[derive(Debug)]
struct ColdState {
    end: Option<Outcome>,
    tag: ParkInfo,
}

/// What an operation is parked with; its times are in ticks (`None`: never).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkTimes {
    pub(crate) now: u64,
    pub(crate) deadline: Option<u64>,
    /// When the wheel is to come by: then, or earlier to have it checked again.
    pub(crate) armed: Option<u64>,
    /// By the timer's clock.
    pub(crate) parked_ns: u64,
    pub(crate) tag: ParkInfo,
    /// Watermarks to be counted down.
    pub(crate) counted: usize,
}

/// What an operation is parked with beside its keys and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParkInfo {
    /// Its part of `max_weight`.
    pub(crate) weight: u64,
    pub(crate) label: Option<&'static str>,
}

impl ParkInfo {
    /// Most operations' tag.
    pub(crate) const PLAIN: ParkInfo = ParkInfo {
        weight: 1,
        label: None,
    };
}

/// An event came by while the entry was held, or a rise is about to have it checked.
const RECHECK: u32 = 1 << 15;

/// A snapshot saw this very check.
const SEEN: u32 = 1 << 14;

/// A check without an event is on its way.
const DUE_AGAIN: u32 = 1 << 16;

/// How many watermark watches an entry can count.
pub(crate) const COUNTED_MAX: usize = SEEN as usize - 1;

/// What became of a checked operation that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<C, E> {
    /// It waits on.
    Parked,
    /// An event passed meanwhile: check again. The caller still holds the entry.
    CheckAgain(C),
    /// It is over.
    Ended(E),
}

impl<O> Entry<O> {
    /// An entry with up to [`COUNTED_MAX`] watermark watches to be counted down; without a payload
    /// the thread that parks it holds it.
    #[inline]
    pub(crate) fn new(payload: Option<O>, span: &ParkTimes) -> Self {
        let tag = span.tag;
        let rare = (tag != ParkInfo::PLAIN).then(|| Box::new(ColdState { end: None, tag }));
        Entry {
            payload,
            last_secondary: None,
            link: Link::NOWHERE,
            rare,
            deadline: span.deadline.unwrap_or(u64::MAX),
            parked_ns: span.parked_ns,
            bits: span.counted as u32,
        }
    }

    /// The payload, unless it is held.
    pub(crate) fn payload(&self) -> Option<&O> {
        self.payload.as_ref()
    }

    fn rare(&mut self) -> &mut ColdState {
        self.rare.get_or_insert_with(|| {
            Box::new(ColdState {
                end: None,
                tag: ParkInfo::PLAIN,
            })
        })
    }

    #[inline]
    pub(crate) fn tag(&self) -> ParkInfo {
        self.rare.as_ref().map_or(ParkInfo::PLAIN, |rare| rare.tag)
    }

    /// Notes that it is due for a check without an event; false if it was already.
    pub(crate) fn due_again(&mut self) -> bool {
        let first = self.bits & DUE_AGAIN == 0;
        self.bits |= DUE_AGAIN;
        first
    }

    /// For that check: takes the payload out, unless a thread has it.
    pub(crate) fn check_out_again(&mut self) -> Option<O> {
        self.bits &= !DUE_AGAIN;
        self.payload.take()
    }

    /// Takes the payload out, unless it is held.
    #[inline]
    fn take(&mut self) -> Option<O> {
        if self.is_ending() {
            None
        } else {
            self.payload.take()
        }
    }

    /// For how long it has been parked, in nanoseconds.
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.parked_ns) // the clock may have been read before it parked
    }

    /// Gives the entry its further watches; `event_passed` if one of the keys saw an event since
    /// the parker looked. Only the parker, which holds it, calls this.
    #[inline]
    pub(crate) fn watched(&mut self, last_secondary: Option<SecondaryId>, event_passed: bool) {
        self.last_secondary = last_secondary;
        if event_passed {
            self.bits |= RECHECK;
        }
    }

    /// For an event: takes the payload out to check it. If it is out already, its holder is left
    /// a note to check again.
    #[inline]
    pub(crate) fn check_out(&mut self) -> Option<O> {
        let payload = self.take();
        if payload.is_some() {
            self.bits &= !RECHECK; // of a rise: this is the check it asked for
        } else if !failpoint!(EventLeavesNoNote) {
            self.bits |= RECHECK;
        }
        payload
    }

    /// For a time that is up: it is held for its last check, at which it ends.
    pub(crate) fn hold_for_last(&mut self) {
        self.rare().end.get_or_insert(Outcome::Expired);
    }

    /// True when an event came by, or is about to, since its holder took the payload out.
    pub(crate) fn event_noted(&self) -> bool {
        self.bits & RECHECK != 0
    }

    /// Counts down a watermark watch that was met and taken off its key. True: it was the last one,
    /// so the operation is to be completed. Otherwise it is to be checked.
    pub(crate) fn count_down(&mut self) -> bool {
        debug_assert!(
            self.bits & COUNTED_MAX as u32 > 0,
            "each counted watch is taken once"
        );
        self.bits -= u32::from(!failpoint!(MetWatchNotCounted));
        if !failpoint!(EventLeavesNoNote) {
            self.bits |= RECHECK;
        }
        self.bits & COUNTED_MAX as u32 == 0
    }

    /// For expiry and cancel: takes the payload out for good, or leaves its holder a note to end
    /// it.
    #[inline]
    pub(crate) fn claim(&mut self, outcome: &Outcome) -> Option<O> {
        let payload = self.take();
        if payload.is_none() && !failpoint!(ExpiryLeavesNoNote) {
            self.rare().end.get_or_insert_with(|| outcome.clone());
        }
        payload
    }

    /// For the holder: gives the payload back with what its check found, and acts on the notes.
    #[inline]
    pub(crate) fn check_until_in(&mut self, payload: O, verdict: Verdict) -> Next<O, (O, Outcome)> {
        use crate::operation::CancelReason::Panicked;
        match (verdict, self.rare.as_mut().and_then(|rare| rare.end.take())) {
            (Verdict::Satisfied, _) => Next::Ended((payload, Outcome::Completed)),
            (_, Some(end)) => Next::Ended((payload, end)),
            (Verdict::Panicked, None) => Next::Ended((payload, Outcome::Cancelled(Panicked))),
            (_, None) if self.bits & RECHECK != 0 => {
                self.bits &= !(RECHECK | SEEN);
                Next::CheckAgain(payload)
            }
            (_, None) => {
                self.bits &= !SEEN;
                self.payload = Some(payload);
                Next::Parked
            }
        }
    }

    /// True when an end is noted.
    pub(crate) fn is_ending(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.end.is_some())
    }

    /// For a snapshot of an operation under check: whether the last snapshot saw this very check.
    pub(crate) fn look(&mut self) -> Option<bool> {
        if !self.is_held() {
            return None;
        }
        let seen = self.bits & SEEN != 0;
        self.bits |= SEEN;
        Some(seen)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.payload.is_none() || self.is_ending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(counted: usize) -> Entry<u8> {
        let (deadline, armed) = (None, None);
        Entry::new(
            None,
            &ParkTimes {
                now: 0,
                deadline,
                armed,
                parked_ns: 0,
                tag: ParkInfo::PLAIN,
                counted,
            },
        )
    }

    #[test]
    fn a_check_that_came_true_beats_every_note() {
        let mut entry = held(0);
        assert_eq!(entry.claim(&Outcome::Expired), None);
        assert_eq!(
            entry.check_until_in(7, Verdict::Satisfied),
            Next::Ended((7, Outcome::Completed))
        );
    }

    #[test]
    fn the_flags_do_not_touch_the_count() {
        let mut entry = held(COUNTED_MAX);
        entry.watched(None, true);
        assert_eq!(entry.look(), Some(false));
        (1..COUNTED_MAX).for_each(|_| assert!(!entry.count_down()));
        assert_eq!(
            entry.check_until_in(7, Verdict::Unsatisfied),
            Next::CheckAgain(7)
        );
        assert!(entry.count_down());
    }

    #[test]
    fn an_entry_is_no_larger_than_its_parts() {
        assert_eq!(size_of::<Entry<Box<u64>>>(), 8 + 8 + 12 + 8 + 8 + 8 + 4);
    }
}
