//! The reference: the rules of permits on plain queues.

use std::collections::VecDeque;

use purgatory::{CancelReason, WaitError};

/// A request; its number is its place among the requests of the case.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) key: usize,
    pub(super) weight: u64,
    /// The time to live of a lease, in milliseconds.
    pub(super) lives_ms: Option<u64>,
    pub(super) state: State,
    /// Its place among the waits, and once granted among the leases: those due together end in this
    /// order.
    order: u64,
}

/// The states of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In line, until this moment.
    Waits(u64),
    /// It has its permits; a lease ends at this moment. The ordinal counts the leases of its key.
    Has {
        until_ms: u64,
        ordinal: u64,
    },
    /// Its lease has expired, before or after its guard was taken.
    Lost {
        ordinal: u64,
    },
    Failed(WaitError),
    /// Its future or guard was dropped.
    Gone,
}

/// The permits of one key.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) taken: u64,
    /// The numbers of the waiting requests, in the order in which they came.
    pub(super) queue: VecDeque<usize>,
    leases: u64,
}

/// Counts of the requests that were parked, and of those that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) parked: u64,
    pub(super) completed: u64,
    pub(super) expired: u64,
    pub(super) cancelled: u64,
    /// Requests that were refused as they came.
    pub(super) too_heavy: u64,
}

pub(super) struct Reference {
    limit: u64,
    /// The limit without the permits that the last refill lent; below 0 if those were removed.
    own: i64,
    /// Permits that were used up: they are not free, and no guard returns them.
    used_up: u64,
    pub(super) now_ms: u64,
    pub(super) is_closed: bool,
    pub(super) lines: Vec<Line>,
    pub(super) all: Vec<Request>,
    pub(super) counts: Counts,
    /// The maximum number of waiting requests.
    max: Option<usize>,
    /// The last order given.
    orders: u64,
}

impl Reference {
    pub(super) fn new(keys: usize, limit: u64, max: Option<usize>) -> Self {
        Reference {
            limit,
            own: limit as i64,
            used_up: 0,
            now_ms: 0,
            is_closed: false,
            lines: std::iter::repeat_with(Line::default).take(keys).collect(),
            all: Vec::new(),
            counts: Counts::default(),
            max,
            orders: 0,
        }
    }

    fn next_order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.queue.len()).sum()
    }

    /// Returns the number of permits of each key that are free or taken.
    pub(super) fn present(&self) -> u64 {
        self.limit.saturating_sub(self.used_up)
    }

    fn fits(&self, key: usize, weight: u64) -> bool {
        self.lines[key].taken + weight <= self.present()
    }

    fn is_too_heavy(&self, weight: u64) -> bool {
        self.limit > 0 && weight > self.limit
    }

    pub(super) fn free_at_once(&self, key: usize, weight: u64) -> bool {
        !self.is_closed && self.lines[key].queue.is_empty() && self.fits(key, weight)
    }

    /// Grants a request its permits.
    fn grant(&mut self, number: usize) {
        let now_ms = self.now_ms;
        let order = self.next_order();
        let request = &mut self.all[number];
        request.order = order;
        let line = &mut self.lines[request.key];
        line.taken += request.weight;
        line.leases += u64::from(request.lives_ms.is_some());
        request.state = State::Has {
            until_ms: request.lives_ms.map_or(u64::MAX, |ms| now_ms + ms),
            ordinal: line.leases,
        };
    }

    /// Adds a request, which is granted, parked or refused.
    pub(super) fn acquire(
        &mut self,
        key: usize,
        weight: u64,
        lives_ms: Option<u64>,
        timeout_ms: u64,
    ) {
        let limit = self.limit;
        let state = if self.is_closed {
            State::Failed(WaitError::Cancelled(CancelReason::Closed(
                "the permits were closed".into(),
            )))
        } else if self.is_too_heavy(weight) {
            self.counts.too_heavy += 1;
            let reason = WaitError::TooHeavy { weight, limit };
            State::Failed(reason)
        } else if timeout_ms == 0 {
            State::Failed(WaitError::Expired)
        } else if let Some(limit) = self.max.filter(|&max| self.waiting() >= max) {
            State::Failed(WaitError::Full { limit })
        } else {
            State::Waits(self.now_ms + timeout_ms)
        };
        let at_once = self.free_at_once(key, weight);
        let number = self.all.len();
        let order = self.next_order();
        self.all.push(Request {
            key,
            weight,
            lives_ms,
            state,
            order,
        });
        if at_once && !self.is_too_heavy(weight) {
            self.grant(number);
        } else if matches!(self.all[number].state, State::Waits(_)) {
            self.lines[key].queue.push_back(number);
            self.counts.parked += 1;
        }
    }

    /// Grants the requests at the front of each line as long as they fit.
    fn serve(&mut self) {
        for key in 0..self.lines.len() {
            while let Some(&first) = self.lines[key].queue.front() {
                if self.is_closed || !self.fits(key, self.all[first].weight) {
                    break;
                }
                self.lines[key].queue.pop_front();
                self.counts.completed += 1;
                self.grant(first);
            }
        }
    }

    fn leave(&mut self, number: usize, state: State) {
        let request = &mut self.all[number];
        request.state = state;
        self.lines[request.key].queue.retain(|of| *of != number);
    }

    /// Takes the permits of a request back.
    fn give_back(&mut self, number: usize, state: State) {
        let request = &mut self.all[number];
        self.lines[request.key].taken -= request.weight;
        request.state = state;
    }

    /// Drops the request's future or guard.
    pub(super) fn drop_one(&mut self, number: usize) {
        match self.all[number].state {
            State::Waits(_) => {
                self.leave(number, State::Gone);
                self.counts.cancelled += 1;
            }
            State::Has { .. } => self.give_back(number, State::Gone),
            State::Lost { .. } | State::Failed(_) | State::Gone => {
                self.all[number].state = State::Gone;
            }
        }
        self.serve();
    }

    /// Cancels a wait; returns false if it has ended.
    pub(super) fn cancel(&mut self, number: usize, error: WaitError) -> bool {
        let waits = matches!(self.all[number].state, State::Waits(_));
        if waits {
            self.leave(number, State::Failed(error));
            self.counts.cancelled += 1;
            self.serve();
        }
        waits
    }

    /// Ends all waits; serves none of them.
    pub(super) fn cancel_all(&mut self, error: &WaitError) -> usize {
        let mut count = 0;
        for number in 0..self.all.len() {
            if matches!(self.all[number].state, State::Waits(_)) {
                self.leave(number, State::Failed(error.clone()));
                count += 1;
            }
        }
        self.counts.cancelled += count as u64;
        count
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.cancel_all(&WaitError::Cancelled(CancelReason::Closed(
            "the permits were closed".into(),
        )));
    }

    /// Sets a new deadline of a wait; returns false if it has ended.
    pub(super) fn reschedule(&mut self, number: usize, ms: u64) -> bool {
        match &mut self.all[number].state {
            State::Waits(deadline_ms) => {
                *deadline_ms = self.now_ms + ms;
                true
            }
            _ => false,
        }
    }

    /// Renews a lease; returns false if it is lost.
    pub(super) fn renew(&mut self, number: usize, ms: u64) -> bool {
        match &mut self.all[number].state {
            State::Has { until_ms, .. } => {
                *until_ms = self.now_ms + ms;
                true
            }
            _ => false,
        }
    }

    /// Uses up the permits of a guard.
    pub(super) fn forget(&mut self, number: usize) {
        self.used_up += self.all[number].weight;
        self.give_back(number, State::Gone);
        self.serve();
    }

    /// Makes this many permits free. Permits that are held beyond `own` are lent.
    pub(super) fn refill(&mut self, free: u64) {
        let present = self.lines[0].taken + free;
        let limit = present.max(self.own.max(0) as u64);
        self.used_up = limit - present;
        self.change(limit);
    }

    pub(super) fn resize(&mut self, limit: u64) {
        self.used_up = 0;
        self.own = limit as i64;
        self.change(limit);
    }

    pub(super) fn add(&mut self, permits: u64) {
        self.own += permits as i64;
        self.change(self.limit + permits);
    }

    /// Removes permits; returns how many there were to remove.
    pub(super) fn remove(&mut self, permits: u64) -> u64 {
        let removed = permits.min(self.present());
        self.own -= removed as i64;
        self.change(self.limit - removed);
        removed
    }

    fn change(&mut self, limit: u64) {
        let may_refuse = self.limit == 0 || limit < self.limit;
        self.limit = limit;
        for number in 0..self.all.len() {
            let request = &self.all[number];
            let weight = request.weight;
            let waits = matches!(request.state, State::Waits(_));
            if may_refuse && waits && self.is_too_heavy(weight) {
                let reason = WaitError::TooHeavy { weight, limit };
                self.leave(number, State::Failed(reason));
                self.counts.cancelled += 1;
            }
        }
        self.serve();
    }

    /// Lets a millisecond pass. Waits and leases that are due end one at a time, and the permits
    /// that each one leaves are handed on before the next ends.
    pub(super) fn pass(&mut self) {
        self.now_ms += 1;
        let mut numbers: Vec<usize> = (0..self.all.len()).collect();
        numbers.sort_by_key(|number| self.all[*number].order);
        for number in numbers {
            match self.all[number].state {
                State::Waits(deadline_ms) if deadline_ms <= self.now_ms => {
                    self.leave(number, State::Failed(WaitError::Expired));
                    self.counts.expired += 1;
                }
                State::Has { until_ms, ordinal } if until_ms <= self.now_ms => {
                    self.give_back(number, State::Lost { ordinal });
                }
                _ => continue,
            }
            self.serve();
        }
    }
}
