//! Time in the reference.

use purgatory::{Outcome, Timeout};

use super::{
    reference::{Reference, State},
    steps::{Act, Saw},
};

impl Reference {
    /// The tick of a deadline, rounded up; `None` for never.
    pub fn deadline(&mut self, timeout: Timeout, now_ns: u64) -> Option<u64> {
        let tick_ns = self.tick_ns;
        let up = |at_ns: u128| at_ns.div_ceil(tick_ns.into()).try_into().unwrap_or(u64::MAX);
        match timeout {
            Timeout::After(delay) => Some(up(u128::from(now_ns) + delay.as_nanos())),
            Timeout::At(at_ns) => Some(up(at_ns.into())),
            Timeout::Never => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn let_time_pass(&mut self, act: &Act) {
        match act {
            Act::Advance(quarters) => self.advance(quarters.saturating_mul(self.quarter_ns())),
            Act::Pass(quarters) => self.pass(quarters.saturating_mul(self.quarter_ns())),
            _ => self.jump_to_next(),
        }
    }

    /// Time goes from one tick that has work to the next. Inside such work only the goal moves.
    fn advance(&mut self, by_ns: u64) {
        let running = self.goal_ns.is_some();
        let goal_ns = self.goal_ns.unwrap_or(self.now_ns).saturating_add(by_ns);
        self.goal_ns = Some(goal_ns);
        if running {
            return self.count("time moved on from inside");
        }
        self.count_if(self.inside, "time passed in a check or callback");
        while let Some(goal_ns) = self.goal_ns {
            let deadlines = self.parked.iter().filter_map(|&number| self.all[number].deadline);
            let next = deadlines.min().filter(|&next| next <= goal_ns / self.tick_ns);
            match next {
                Some(next) => {
                    self.now_ns = self.now_ns.max(next.saturating_mul(self.tick_ns));
                    self.expire(self.now_ns / self.tick_ns);
                }
                None => {
                    self.now_ns = self.now_ns.max(goal_ns);
                    self.goal_ns = None;
                }
            }
        }
    }

    /// Time passes, and what fell due meanwhile runs later.
    fn pass(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        self.goal_ns = self.goal_ns.map(|goal_ns| goal_ns.saturating_add(by_ns));
        self.count("time passed without a turn");
    }

    /// To the next deadline; or less far, as was seen, for work of a wheel's own.
    fn jump_to_next(&mut self) {
        let from_ns = self.now_ns;
        let jumped = |saw: &Saw| if let Saw::Jumped(by_ns) = saw { Some(*by_ns) } else { None };
        let seen_ns = self.seen.iter().find_map(jumped).unwrap();
        let next = self.parked.iter().filter_map(|&number| self.all[number].deadline).min();
        let next_ns = next.map_or(u64::MAX, |next| next.saturating_mul(self.tick_ns));
        let by_ns = seen_ns.min(next_ns.saturating_sub(from_ns));
        self.count_if(by_ns > 0, "on to the next work");
        self.advance(by_ns);
        self.log.push(Saw::Jumped(self.now_ns - from_ns));
    }

    /// Expires what is due, in the order of (deadline, parking).
    fn expire(&mut self, now: u64) {
        let is_due = |&&number: &&usize| self.all[number].deadline.is_some_and(|due| due <= now);
        let mut due: Vec<usize> = self.parked.iter().filter(is_due).copied().collect();
        due.sort_by_key(|&number| self.all[number].deadline);
        let mut ended = Vec::new();
        for number in due {
            self.at(number).deadline = None;
            if self.all[number].state == State::Parked {
                self.depart(number, &Outcome::Expired);
                ended.push(number);
            } else {
                self.note(number, Outcome::Expired);
            }
        }
        self.count_if(ended.len() > 1, "several due at a tick");
        if !ended.is_empty() {
            self.count("expired");
            self.tell_elsewhere(ended, Outcome::Expired);
        }
    }
}
