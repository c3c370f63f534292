//! The reference: the promises of the documentation on plain lists. Every question is a scan.

use std::{collections::VecDeque, sync::Arc};

use purgatory::{CancelReason, ReachResult, Stats, WaitError};

use super::{Act, End, SCOPES, Saw, To};

/// The key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Plain(u64),
    /// A scope, by its number among all scopes ever made, and the request's number in it.
    Scoped(usize, u64),
}

struct Request {
    key: Key,
    then: Arc<Vec<Act>>,
    panics: bool,
    deadline_ms: u64,
    is_waiting: bool,
    was_moved: bool,
    was_parked: bool,
    /// Whether it counts towards `max_parked`; it does until it is over.
    has_place: bool,
    has_future: bool,
    /// The end that its future has not yet taken.
    end: Option<End>,
}

#[derive(Clone, Copy, Default)]
struct Scope {
    number: usize,
    last: u64,
    is_closed: bool,
}

#[derive(Default)]
pub(super) struct Reference {
    max: Option<usize>,
    requests: Vec<Request>,
    scopes: [Scope; SCOPES],
    /// The number of scopes ever made.
    all_scopes: usize,
    now_ms: u64,
    /// Whether a call that ends requests is under way; it still has to wake the tasks in `queue`.
    inside: bool,
    queue: VecDeque<usize>,
    /// The scopes that calls are using, and those of them that were replaced and live only until
    /// then.
    used: Vec<usize>,
    left: Vec<usize>,
    pub(super) log: Vec<Saw>,
    /// The record of the real ones, for the orders that are not promised.
    pub(super) seen: Vec<Saw>,
    /// The counts of plain requests, and of requests in scopes.
    stats: [Stats; 2],
}

fn cancelled(reason: &'static str) -> WaitError {
    WaitError::Cancelled(CancelReason::Requested(reason.into()))
}

impl Reference {
    pub(super) fn new(max: Option<usize>) -> Self {
        let mut reference = Reference {
            max,
            all_scopes: SCOPES,
            ..Reference::default()
        };
        for (number, scope) in reference.scopes.iter_mut().enumerate() {
            scope.number = number;
        }
        reference
    }

    fn of(&mut self, number: usize) -> &mut Stats {
        let scoped = matches!(self.requests[number].key, Key::Scoped(..));
        &mut self.stats[usize::from(scoped)]
    }

    fn waiting(&self, scoped: bool) -> impl Iterator<Item = &Request> {
        let is_here = move |request: &&Request| {
            request.is_waiting && matches!(request.key, Key::Scoped(..)) == scoped
        };
        self.requests.iter().filter(is_here)
    }

    pub(super) fn stats(&self, scoped: bool) -> Stats {
        let mut stats = self.stats[usize::from(scoped)];
        stats.parked = self.waiting(scoped).count() as u64;
        stats.watched = stats.parked;
        stats
    }

    /// Returns the number of waiting keys: plain ones, and those in scopes.
    pub(super) fn keys(&self) -> (usize, usize) {
        (self.waiting(false).count(), self.waiting(true).count())
    }

    pub(super) fn values(&self) -> usize {
        let has_value = |request: &&Request| matches!(request.end, Some(Ok(())));
        self.requests.iter().filter(has_value).count()
    }

    /// Takes the end of a request whose future is ready.
    pub(super) fn take_end(&mut self, number: usize) -> End {
        self.requests[number].has_future = false;
        self.requests[number].end.take().expect("it goes on")
    }

    /// Returns a request that has an id; 0 is the latest.
    fn parked_back(&self, back: usize) -> Option<usize> {
        let number = self.requests.len().checked_sub(back + 1)?;
        self.requests[number].was_parked.then_some(number)
    }

    fn find(&self, key: Key) -> Option<usize> {
        let is_it = |request: &Request| request.is_waiting && request.key == key;
        self.requests.iter().position(is_it)
    }

    pub(super) fn act(&mut self, act: &Act) {
        match *act {
            Act::Expect(to, ms, ref then, panics) => self.expect(to, ms, then, panics),
            Act::Deliver(key) => {
                let delivered = self.deliver(Key::Plain(key));
                self.log.push(Saw::Delivered(delivered));
            }
            Act::DeliverIn(at, back) => {
                let number = self.scopes[at].last.saturating_sub(back);
                self.use_scope(at, |reference, _| reference.deliver_in(at, number));
            }
            Act::DeliverUpTo(at, back) => {
                let up_to = self.scopes[at].last.saturating_sub(back);
                self.use_scope(at, |reference, scope| reference.deliver_up_to(scope, up_to));
            }
            Act::Reassign(at, back, to) => self.reassign(at, back, to),
            Act::DeliverUnasked(at, is_zero) => {
                let number = if is_zero { 0 } else { self.scopes[at].last + 1 };
                self.use_scope(at, |reference, _| reference.deliver_in(at, number));
            }
            Act::FailAll => self.fail_all(),
            Act::FailScope(at) => self.use_scope(at, |reference, scope| {
                let failed = reference.fail(scope, cancelled("scope"));
                reference.log.push(Saw::Failed(failed));
            }),
            Act::Close(at) => self.use_scope(at, |reference, scope| {
                reference.scopes[at].is_closed = true;
                let closed = CancelReason::Closed("closed".into());
                let failed = reference.fail(scope, WaitError::Cancelled(closed));
                reference.log.push(Saw::Failed(failed));
            }),
            Act::Replace(at) => {
                let scope = Scope {
                    number: self.all_scopes,
                    ..Scope::default()
                };
                self.all_scopes += 1;
                let before = std::mem::replace(&mut self.scopes[at], scope).number;
                if self.used.contains(&before) {
                    self.left.push(before);
                } else {
                    self.fail(before, WaitError::Cancelled(CancelReason::Dropped));
                }
            }
            Act::Drop(back) => {
                if let Some(number) = self.requests.len().checked_sub(back + 1) {
                    self.drop_future(number);
                }
            }
            Act::Cancel(back) => {
                if let Some(number) = self.parked_back(back) {
                    let ended = self.end_by_id(number);
                    self.log.push(Saw::Attempt(ended));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(number) = self.parked_back(back) {
                    let deadline_ms = self.now_ms + ms;
                    let request = &mut self.requests[number];
                    request.deadline_ms = deadline_ms;
                    self.log.push(Saw::Rescheduled(request.is_waiting));
                }
            }
            Act::Pass(ms) => self.pass(ms),
        }
    }

    /// Does an act with a scope. If the scope was replaced meanwhile, it is dropped afterwards.
    fn use_scope(&mut self, at: usize, act: impl FnOnce(&mut Self, usize)) {
        let scope = self.scopes[at].number;
        self.used.push(scope);
        act(self, scope);
        self.used.pop();
        if self.left.contains(&scope) && !self.used.contains(&scope) {
            self.left.retain(|&left| left != scope);
            self.fail(scope, WaitError::Cancelled(CancelReason::Dropped));
        }
    }

    fn expect(&mut self, to: To, ms: u64, then: &Arc<Vec<Act>>, panics: bool) {
        // 1. Its key.
        let mut is_closed = false;
        let key = match to {
            To::Key(key) => Key::Plain(key),
            To::Scope(at) => {
                let scope = self.scopes[at];
                is_closed = scope.is_closed;
                Key::Scoped(scope.number, scope.last + 1)
            }
        };
        let is_taken = self.find(key).is_some();
        let scoped = matches!(key, Key::Scoped(..));
        let has_place = |request: &&Request| {
            request.has_place && matches!(request.key, Key::Scoped(..)) == scoped
        };
        let places = self.requests.iter().filter(has_place).count();
        let number = self.requests.len();
        self.requests.push(Request {
            key,
            then: then.clone(),
            panics,
            deadline_ms: self.now_ms + ms,
            is_waiting: false,
            was_moved: false,
            was_parked: false,
            has_place: false,
            has_future: false,
            end: None,
        });
        // 2. A closed scope and a taken key refuse it. Without time it is over at once; otherwise
        // it takes a place. A refused request uses up no number.
        if is_closed {
            let closed = WaitError::ScopeClosed;
            return self.log.push(Saw::Refused(number, closed));
        } else if is_taken {
            return self
                .log
                .push(Saw::Refused(number, WaitError::AlreadyExpected));
        } else if ms == 0 {
            self.of(number).ended_at_once += 1;
        } else if let Some(limit) = self.max.filter(|&max| places >= max) {
            self.of(number).refused_full += 1;
            return self
                .log
                .push(Saw::Refused(number, WaitError::Full { limit }));
        } else {
            self.of(number).parked_total += 1;
        }
        if let To::Scope(at) = to {
            self.scopes[at].last += 1;
        }
        let request = &mut self.requests[number];
        request.is_waiting = ms > 0;
        request.has_place = ms > 0;
        request.has_future = ms > 0;
        let request = &mut self.requests[number];
        request.was_parked = ms > 0;
        if ms == 0 {
            request.end = Some(Err(WaitError::Expired));
        }
        self.log.push(Saw::Came(number, ms == 0));
    }

    fn end(&mut self, number: usize, end: End) {
        let stats = self.of(number);
        match &end {
            Ok(()) => stats.completed += 1,
            Err(WaitError::Expired) => stats.expired += 1,
            Err(error) => {
                stats.cancelled += 1;
                let dropped = WaitError::Cancelled(CancelReason::Dropped);
                stats.cancelled_by_drop += u64::from(*error == dropped);
                let panicked = WaitError::Cancelled(CancelReason::Panicked);
                stats.cancelled_by_panic += u64::from(*error == panicked);
            }
        }
        self.requests[number].is_waiting = false;
        self.requests[number].has_place = false;
        self.requests[number].end = Some(end);
    }

    /// Wakes the task of an ended request: by then the future has its answer, or is gone.
    fn wake(&mut self, number: usize) {
        self.log.push(Saw::Woken(number));
        for act in &*self.requests[number].then.clone() {
            self.act(act);
        }
        let panics = self.requests[number].panics;
        self.of(number).panics += u64::from(panics);
    }

    /// Wakes the tasks of requests that one call has ended. A nested call leaves them to the outer
    /// call.
    fn wake_all(&mut self, ended: Vec<usize>) {
        if self.inside {
            self.queue.extend(ended);
            return;
        }
        self.inside = true;
        for number in ended {
            self.wake(number);
        }
        while let Some(number) = self.queue.pop_front() {
            self.wake(number);
        }
        self.inside = false;
    }

    fn deliver(&mut self, key: Key) -> bool {
        let Some(number) = self.find(key) else {
            return false;
        };
        self.end(number, Ok(()));
        self.wake_all(vec![number]);
        true
    }

    fn deliver_in(&mut self, at: usize, number: u64) {
        let Scope {
            number: scope,
            last,
            ..
        } = self.scopes[at];
        if self.deliver(Key::Scoped(scope, number)) {
            self.log.push(Saw::Delivered(true));
        } else {
            let is_late = (1..=last).contains(&number);
            self.log.push(Saw::Late(is_late));
        }
    }

    /// Delivers to the requests of a scope up to a number, in the order of their numbers.
    fn deliver_up_to(&mut self, scope: usize, up_to: u64) {
        let mut confirmed = self.of_scope(scope);
        confirmed.retain(|&(number, _)| number <= up_to);
        for &(_, request) in &confirmed {
            self.end(request, Ok(()));
        }
        let count = confirmed.len();
        self.wake_all(confirmed.into_iter().map(|(_, request)| request).collect());
        self.log.push(Saw::Confirmed(count));
    }

    /// Gives a request the next number of another scope. It keeps its task, deadline and place.
    fn reassign(&mut self, at: usize, back: u64, to: usize) {
        let from = self.scopes[at];
        let key = Key::Scoped(from.number, from.last.saturating_sub(back));
        let moved = match self.find(key) {
            None => Err(WaitError::NotExpected),
            Some(_) if self.scopes[to].is_closed => Err(WaitError::ScopeClosed),
            Some(request) => {
                let to = &mut self.scopes[to];
                to.last += 1;
                self.requests[request].key = Key::Scoped(to.number, to.last);
                self.requests[request].was_moved = true;
                Ok(to.last)
            }
        };
        self.log.push(Saw::Reassigned(moved));
    }

    /// Returns the waiting requests of a scope, by their numbers.
    fn of_scope(&self, scope: usize) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        for (index, request) in self.requests.iter().enumerate() {
            match request.key {
                Key::Scoped(of, number) if of == scope && request.is_waiting => {
                    found.push((number, index));
                }
                _ => {}
            }
        }
        found.sort_unstable();
        found
    }

    /// Fails all plain requests, then wakes their tasks. Their order is not promised.
    fn fail_all(&mut self) {
        let mut failed = Vec::new();
        for number in 0..self.requests.len() {
            let request = &self.requests[number];
            if request.is_waiting && matches!(request.key, Key::Plain(_)) {
                self.end(number, Err(cancelled("all")));
                failed.push(number);
            }
        }
        failed.sort_by_key(|&number| self.seen_at(number));
        let count = failed.len();
        self.wake_all(failed);
        self.log.push(Saw::Failed(count));
    }

    /// Returns the place of a wake in the record of the real ones.
    fn seen_at(&self, number: usize) -> Option<usize> {
        self.seen.iter().position(|saw| *saw == Saw::Woken(number))
    }

    /// Fails the requests of a scope, in the order of their numbers.
    fn fail(&mut self, scope: usize, error: WaitError) -> usize {
        let failed = self.of_scope(scope);
        for &(_, request) in &failed {
            self.end(request, Err(error.clone()));
        }
        let count = failed.len();
        self.wake_all(failed.into_iter().map(|(_, request)| request).collect());
        count
    }

    fn drop_future(&mut self, number: usize) {
        let request = &mut self.requests[number];
        if !std::mem::take(&mut request.has_future) {
            return;
        }
        request.end = None;
        if std::mem::take(&mut request.is_waiting) {
            request.has_place = false;
            let stats = self.of(number);
            stats.cancelled += 1;
            stats.cancelled_by_future_drop += 1;
        }
    }

    fn end_by_id(&mut self, number: usize) -> ReachResult {
        if !self.requests[number].is_waiting {
            return ReachResult::Gone;
        }
        self.end(number, Err(cancelled("by id")));
        self.wake_all(vec![number]);
        ReachResult::Reached(())
    }

    /// Lets time pass. All requests that expire at a tick end before the first task is woken.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            // The form that was made first expires first.
            for scoped in [true, false] {
                let mut due = Vec::new();
                for number in 0..self.requests.len() {
                    let request = &self.requests[number];
                    let is_here = matches!(request.key, Key::Scoped(..)) == scoped;
                    if is_here && request.is_waiting && request.deadline_ms <= self.now_ms {
                        self.end(number, Err(WaitError::Expired));
                        due.push(number);
                    }
                }
                // It is not promised whether a moved request comes before those that were expected
                // earlier.
                if due.iter().any(|&number| self.requests[number].was_moved) {
                    due.sort_by_key(|&number| self.seen_at(number));
                }
                for number in due {
                    self.wake_all(vec![number]); // a call each
                }
            }
        }
    }
}
