//! The reference: the promises of the documentation on plain queues. Every question is a scan.

use purgatory::{CancelReason, EndResult, RefusedReason, Stats, WaitError};

use super::{End, KEYS, Kind, OnDrop, Signal, cancelled};

/// A wait, for as long as the case runs.
pub(super) struct Wait {
    pub(super) kind: Kind,
    deadline_ms: u64,
    pub(super) is_parked: bool,
    /// It was parked at first, and so has a turn that it can pass on.
    was_parked: bool,
    has_future: bool,
    /// Its condition panics when it is evaluated next.
    pub(super) panics: bool,
    /// The result that its future has not taken.
    pub(super) end: Option<End>,
    pub(super) is_taken: bool,
}

/// The cause of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Event,
    /// No event: it has moved up, or its time is up.
    None,
}

pub(super) struct Reference {
    pub(super) all: Vec<Wait>,
    pub(super) free: [u64; KEYS],
    pub(super) stats: Stats,
    max: Option<usize>,
    now_ms: u64,
}

impl Reference {
    pub(super) fn new(max: Option<usize>) -> Self {
        Reference {
            all: Vec::new(),
            free: [0; KEYS],
            stats: Stats::default(),
            max,
            now_ms: 0,
        }
    }

    /// Returns the parked waits of a key, in the order of parking.
    fn parked(&self, key: usize, in_turn: bool) -> Vec<usize> {
        let is_here = |&number: &usize| {
            let wait = &self.all[number];
            wait.is_parked && wait.kind.key == key && wait.kind.in_turn == in_turn
        };
        (0..self.all.len()).filter(is_here).collect()
    }

    pub(super) fn plain(&self, key: usize) -> Vec<usize> {
        self.parked(key, false)
    }

    /// Returns those that wait in turn, the head first.
    pub(super) fn line(&self, key: usize) -> Vec<usize> {
        self.parked(key, true)
    }

    fn is_behind(&self, number: usize) -> bool {
        let kind = self.all[number].kind;
        kind.in_turn && self.line(kind.key).first() != Some(&number)
    }

    /// True if a key has no waits for events in turn.
    pub(super) fn takes_alone(&self, key: usize) -> bool {
        let mut line = self.line(key).into_iter();
        line.all(|number| self.all[number].kind.takes.is_some())
    }

    /// The number of waits that were parked and are over.
    pub(super) fn ended(&self) -> u64 {
        let stats = &self.stats;
        stats.completed + stats.expired + stats.cancelled + stats.taken
    }

    /// Evaluates the condition of a wait. The next event has none.
    fn holds(&mut self, number: usize) -> Result<Option<u64>, WaitError> {
        let wait = &mut self.all[number];
        let Some(count) = wait.kind.takes else {
            return Ok(None);
        };
        if std::mem::take(&mut wait.panics) {
            return Err(WaitError::Cancelled(CancelReason::Panicked));
        }
        let free = &mut self.free[wait.kind.key];
        match free.checked_sub(count) {
            Some(rest) => {
                *free = rest;
                Ok(Some(count))
            }
            None => Ok(None),
        }
    }

    /// Checks a parked wait. Returns true if the check came true.
    fn check(&mut self, number: usize, cause: Cause) -> bool {
        self.stats.checks += 1;
        let held = match self.all[number].kind.takes {
            None if cause == Cause::Event => Ok(Some(0)),
            _ => self.holds(number),
        };
        match held {
            Ok(Some(count)) => {
                self.stats.completed += 1;
                self.over(number, Ok(count));
                true
            }
            Ok(None) => false,
            Err(panicked) => {
                self.stats.panics += 1;
                self.cancelled(number, panicked);
                false
            }
        }
    }

    fn over(&mut self, number: usize, end: End) {
        self.all[number].is_parked = false;
        self.all[number].end = Some(end);
    }

    fn cancelled(&mut self, number: usize, error: WaitError) {
        self.stats.cancelled += 1;
        if error == WaitError::Cancelled(CancelReason::Panicked) {
            self.stats.cancelled_by_panic += 1;
        }
        self.over(number, Err(error));
    }

    pub(super) fn wait(&mut self, kind: Kind, ms: u64) {
        let number = self.all.len();
        let is_behind = kind.in_turn && !self.line(kind.key).is_empty();
        self.all.push(Wait {
            kind,
            deadline_ms: self.now_ms + ms,
            is_parked: false,
            was_parked: false,
            has_future: true,
            panics: false,
            end: None,
            is_taken: false,
        });
        // 1. The first check, unless others are ahead.
        let is_checked = !is_behind && (kind.takes.is_some() || !kind.in_turn);
        self.stats.checks += u64::from(is_checked);
        let mut at_once = None;
        if is_checked {
            if let Ok(Some(count)) = self.holds(number) {
                at_once = Some(Ok(count));
            }
        }
        if at_once.is_none() && ms == 0 {
            at_once = Some(Err(WaitError::Expired));
        }
        if at_once.is_some() {
            self.stats.ended_at_once += 1;
            self.all[number].end = at_once;
            return;
        }
        // 2. A place.
        let parked = self.all.iter().filter(|wait| wait.is_parked).count();
        if let Some(limit) = self.max.filter(|&max| parked >= max) {
            self.stats.refused_full += 1;
            let full = WaitError::Refused(RefusedReason::Full { limit });
            self.all[number].end = Some(Err(full));
            return;
        }
        self.stats.parked_total += 1;
        self.all[number].is_parked = true;
        self.all[number].was_parked = true;
    }

    /// Signals a key; returns how many completed, of a signal for one 1 at most.
    pub(super) fn signal(&mut self, key: usize, signal: Signal) -> usize {
        self.stats.events += 1;
        let mut completed = 0;
        let in_turn = !self.line(key).is_empty();
        for number in self.plain(key) {
            completed += usize::from(self.check(number, Cause::Event));
            if completed > 0 && signal == Signal::One {
                return 1;
            }
        }
        if in_turn {
            completed += self.serve(key, Some(signal));
        }
        if signal == Signal::One {
            completed.min(1)
        } else {
            completed
        }
    }

    /// Checks the head, and the next as long as heads end. An event for one is used up by the first
    /// check that comes true. Returns how many completed.
    fn serve(&mut self, key: usize, mut event: Option<Signal>) -> usize {
        let mut completed = 0;
        while let Some(&head) = self.line(key).first() {
            let cause = if event.is_some() {
                Cause::Event
            } else {
                Cause::None
            };
            let came_true = self.check(head, cause);
            completed += usize::from(came_true);
            if self.all[head].is_parked {
                break;
            }
            event = event.filter(|&event| !came_true || event != Signal::One);
        }
        completed
    }

    /// Checks the next of a head that has left.
    fn left(&mut self, number: usize, was_behind: bool) {
        let kind = self.all[number].kind;
        if kind.in_turn && !was_behind {
            self.serve(kind.key, None);
        }
    }

    pub(super) fn cancel(&mut self, number: usize, error: WaitError) -> EndResult {
        if !self.all[number].is_parked {
            return EndResult::Gone;
        }
        let was_behind = self.is_behind(number);
        self.cancelled(number, error);
        self.left(number, was_behind);
        EndResult::Ended
    }

    pub(super) fn complete(&mut self, number: usize) -> EndResult {
        if !self.all[number].is_parked {
            return EndResult::Gone;
        }
        if self.is_behind(number) {
            return EndResult::NoValue;
        }
        self.check(number, Cause::Event);
        if self.all[number].is_parked {
            return EndResult::NoValue;
        }
        self.left(number, false);
        EndResult::Ended
    }

    pub(super) fn cancel_all(&mut self, key: usize, error: &WaitError) -> usize {
        let mut all = self.plain(key);
        all.extend(self.line(key));
        for &number in &all {
            self.cancelled(number, error.clone());
        }
        all.len()
    }

    /// Completes those of a key that have a value. No event waits in turn there.
    pub(super) fn complete_all(&mut self, key: usize) -> usize {
        let mut completed = 0;
        let head = self.line(key).first().copied();
        for number in self.plain(key).into_iter().chain(head) {
            completed += usize::from(self.check(number, Cause::Event));
        }
        if let Some(head) = head {
            if !self.all[head].is_parked {
                self.serve(key, None);
            }
        }
        completed
    }

    pub(super) fn take_out(&mut self, number: usize) -> bool {
        if !self.all[number].is_parked {
            return false;
        }
        let was_behind = self.is_behind(number);
        self.stats.taken += 1;
        self.all[number].is_parked = false;
        self.left(number, was_behind);
        true
    }

    /// One that was taken out is completed, expired or dropped.
    pub(super) fn end_detached(&mut self, number: usize, how: u8) {
        let panicked = WaitError::Cancelled(CancelReason::Panicked);
        let end = match how {
            0 if self.all[number].kind.takes.is_none() => Ok(0),
            0 => match self.holds(number) {
                Ok(Some(count)) => Ok(count),
                Ok(None) => Err(cancelled("completed without a value")),
                Err(panicked) => Err(panicked),
            },
            1 => Err(WaitError::Expired),
            _ => Err(panicked),
        };
        self.all[number].end = Some(end);
        if !self.all[number].has_future {
            let value = self.all[number].end.take();
            if let Some(Ok(_)) = value {
                self.drop_value(number);
            }
        }
    }

    /// A value is dropped that was taken, or that nobody takes.
    pub(super) fn drop_value(&mut self, number: usize) {
        let kind = self.all[number].kind;
        let Some(count) = kind.takes else {
            return;
        };
        if kind.on_drop != OnDrop::Loses {
            self.free[kind.key] += count;
        }
        match kind.on_drop {
            OnDrop::Signals => _ = self.signal(kind.key, Signal::All),
            OnDrop::SignalsOne => _ = self.signal(kind.key, Signal::One),
            OnDrop::Returns | OnDrop::Loses => {}
        }
    }

    pub(super) fn drop_future(&mut self, number: usize) {
        self.all[number].has_future = false;
        if self.all[number].is_parked {
            let dropped = WaitError::Cancelled(CancelReason::FutureDropped);
            self.stats.cancelled_by_future_drop += 1;
            self.cancel(number, dropped);
            self.all[number].end = None;
            return;
        }
        match self.all[number].end.take() {
            // A value that nobody took: it is dropped, then the turn is passed on.
            Some(Ok(_)) => self.drop_value(number),
            _ => return,
        }
        let wait = &self.all[number];
        if wait.kind.in_turn && wait.was_parked {
            self.signal(wait.kind.key, Signal::One);
        }
    }

    pub(super) fn reschedule(&mut self, number: usize, ms: u64) -> bool {
        let deadline_ms = self.now_ms + ms;
        let wait = &mut self.all[number];
        if wait.is_parked {
            wait.deadline_ms = deadline_ms;
        }
        wait.is_parked
    }

    /// Time passes. Waits with a condition are checked once more, but not behind others.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            let is_due = |wait: &Wait| wait.is_parked && wait.deadline_ms <= self.now_ms;
            let due = (0..self.all.len()).filter(|&number| is_due(&self.all[number]));
            let due: Vec<usize> = due.collect();
            let behind: Vec<bool> = due.iter().map(|&number| self.is_behind(number)).collect();
            // 1. Those without a last check are over before any code runs.
            for (&number, &is_behind) in due.iter().zip(&behind) {
                if is_behind || self.all[number].kind.takes.is_none() {
                    self.expired(number);
                }
            }
            // 2. The others are checked, each in its place, and the next in turn of each head.
            for (number, was_behind) in due.into_iter().zip(behind) {
                if self.all[number].is_parked {
                    self.last_check(number);
                }
                self.left(number, was_behind);
            }
        }
    }

    /// Returns a timeout with which a wait in turn expires alone in its line: nothing is promised
    /// of the order in which several leave.
    pub(super) fn alone(&self, key: usize, mut ms: u64) -> u64 {
        let line = self.line(key);
        while line
            .iter()
            .any(|&number| self.all[number].deadline_ms == self.now_ms + ms)
        {
            ms += 1;
        }
        ms
    }

    /// Checks a wait whose time is up. A panic does not change its outcome.
    fn last_check(&mut self, number: usize) {
        self.stats.checks += 1;
        match self.holds(number) {
            Ok(Some(count)) => {
                self.stats.completed += 1;
                self.stats.missed_events += 1;
                self.over(number, Ok(count));
            }
            Ok(None) => self.expired(number),
            Err(_) => {
                self.stats.panics += 1;
                self.expired(number);
            }
        }
    }

    fn expired(&mut self, number: usize) {
        self.stats.expired += 1;
        self.over(number, Err(WaitError::Expired));
    }
}
