//! The state machine of one parked operation. Pure: the home shard's lock is around each call, and
//! nothing of the user's runs in here.
//!
//! An entry holds the operation itself (its *payload*) or is *held*: a thread took the payload out
//! to check it, and that is the claim. There is no other.
//!
//! - **Holder removes**: while an entry is held, only its holder ends or removes it. Everyone else
//!   leaves a *note*: `recheck` (an event came by) or `end` (expiry or cancel; the first wins).
//! - **Notes are read**: the holder acts on the notes in the same lock hold in which it gives the
//!   payload back. A check that came true beats `end`; `end` beats `recheck`.
//! - **One outcome**: it is decided when the payload leaves for good, which happens once.

use crate::{operation::Outcome, sync::planted, watch::Ticket};

#[derive(Debug)]
pub(crate) struct Entry<O> {
    payload: Option<O>,
    tickets: Tickets,
    /// Boxed because it is rare.
    end: Option<Box<Outcome>>,
    recheck: bool,
}

/// The watch slots of an operation: usually one, without an allocation.
#[derive(Debug)]
pub(crate) enum Tickets {
    One(Ticket),
    /// None, or several.
    Many(Box<[Ticket]>),
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Satisfied,
    Unsatisfied,
    Panicked,
}

/// What became of a payload given back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled<O> {
    /// It waits on.
    Parked,
    /// An event passed meanwhile: check again. The caller still holds the entry.
    CheckAgain(O),
    /// It is over: remove the entry.
    Ended(O, Outcome),
}

/// What became of an attempt to end an operation from outside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim<O> {
    /// It is over: remove the entry.
    Ended(O, Outcome),
    /// It is held; its holder was left a note.
    Noted,
}

impl<O> Entry<O> {
    /// An entry held by the thread that parks it.
    pub(crate) fn held() -> Self {
        Entry { payload: None, tickets: Tickets::default(), end: None, recheck: false }
    }

    /// Gives the entry its watch slots; `event_passed` if one of the keys saw an event since the
    /// parker looked. Only for the parker, who holds it.
    pub(crate) fn watched(&mut self, tickets: Tickets, event_passed: bool) {
        self.tickets = tickets;
        self.recheck |= event_passed;
    }

    /// For an event: takes the payload out to check it. If it is out already, its holder is left
    /// a note to check again.
    pub(crate) fn check_out(&mut self) -> Option<O> {
        let payload = self.payload.take();
        if payload.is_none() && !planted("an event leaves no note") {
            self.recheck = true;
        }
        payload
    }

    /// For expiry and cancel: ends the operation, or leaves its holder a note to.
    pub(crate) fn claim(&mut self, outcome: Outcome) -> Claim<O> {
        match self.payload.take() {
            Some(payload) => Claim::Ended(payload, outcome),
            None => {
                if !planted("an expiry leaves no note") {
                    self.end.get_or_insert_with(|| Box::new(outcome));
                }
                Claim::Noted
            }
        }
    }

    /// For the holder: gives the payload back with what its check found, and acts on the notes.
    pub(crate) fn settle(&mut self, payload: O, verdict: Verdict) -> Settled<O> {
        use crate::operation::CancelReason::Panicked;
        match (verdict, self.end.take()) {
            (Verdict::Satisfied, _) => Settled::Ended(payload, Outcome::Completed),
            (_, Some(end)) => Settled::Ended(payload, *end),
            (Verdict::Panicked, None) => Settled::Ended(payload, Outcome::Cancelled(Panicked)),
            (Verdict::Unsatisfied, None) if self.recheck => {
                self.recheck = false;
                Settled::CheckAgain(payload)
            }
            (Verdict::Unsatisfied, None) => {
                self.payload = Some(payload);
                Settled::Parked
            }
        }
    }

    /// True when an end is noted.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn into_tickets(self) -> Tickets {
        self.tickets
    }
}

impl Tickets {
    pub(crate) fn as_slice(&self) -> &[Ticket] {
        match self {
            Tickets::One(ticket) => std::slice::from_ref(ticket),
            Tickets::Many(tickets) => tickets,
        }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Tickets::Many(Box::default())
    }
}

impl From<&[Ticket]> for Tickets {
    fn from(tickets: &[Ticket]) -> Self {
        match tickets {
            [ticket] => Tickets::One(*ticket),
            tickets => Tickets::Many(tickets.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::CancelReason;

    const PANICKED: Outcome = Outcome::Cancelled(CancelReason::Panicked);

    fn parked() -> Entry<u8> {
        let mut entry = Entry::held();
        assert_eq!(entry.settle(7, Verdict::Unsatisfied), Settled::Parked);
        entry
    }

    fn held() -> Entry<u8> {
        let mut entry = parked();
        assert_eq!(entry.check_out(), Some(7));
        entry
    }

    #[test]
    fn what_nobody_holds_ends_at_once() {
        assert_eq!(parked().claim(Outcome::Expired), Claim::Ended(7, Outcome::Expired));
        let mut entry = held();
        assert_eq!(entry.settle(7, Verdict::Satisfied), Settled::Ended(7, Outcome::Completed));
        assert_eq!(held().settle(7, Verdict::Panicked), Settled::Ended(7, PANICKED));
    }

    #[test]
    fn an_event_that_finds_it_held_makes_the_holder_look_again() {
        let mut entry = held();
        assert_eq!(entry.check_out(), None);
        assert_eq!(entry.settle(7, Verdict::Unsatisfied), Settled::CheckAgain(7));
        assert_eq!(entry.settle(7, Verdict::Unsatisfied), Settled::Parked);
    }

    #[test]
    fn an_event_that_passed_before_the_watch_makes_the_parker_look_again() {
        let mut entry = Entry::held();
        entry.watched(Tickets::default(), true);
        assert_eq!(entry.settle(7, Verdict::Unsatisfied), Settled::CheckAgain(7));
    }

    #[test]
    fn the_first_end_noted_wins_and_beats_recheck() {
        let mut entry = held();
        assert_eq!(entry.claim(Outcome::Expired), Claim::Noted);
        assert_eq!(entry.claim(PANICKED), Claim::Noted);
        assert_eq!(entry.check_out(), None);
        assert_eq!(entry.settle(7, Verdict::Unsatisfied), Settled::Ended(7, Outcome::Expired));
    }

    #[test]
    fn a_check_that_came_true_beats_every_note() {
        let mut entry = held();
        assert_eq!(entry.claim(Outcome::Expired), Claim::Noted);
        assert_eq!(entry.settle(7, Verdict::Satisfied), Settled::Ended(7, Outcome::Completed));
    }

    #[test]
    fn an_entry_is_no_larger_than_its_parts() {
        assert_eq!(size_of::<Tickets>(), 16);
        assert_eq!(size_of::<Entry<Box<u64>>>(), 8 + 16 + 8 + 8);
    }
}
