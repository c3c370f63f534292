//! Time in the reference.

use purgatory::{Outcome, Timeout};

use super::reference::Reference;

/// The last moment that a clock shows.
const LAST_NS: u64 = u64::MAX - 1;

impl Reference {
    /// Returns the tick of a deadline, rounded up; `None` for never.
    pub fn deadline(&self, timeout: Timeout) -> Option<u64> {
        let up = |at_ns: u128| at_ns.div_ceil(self.setup.tick_ns.into());
        let at = match timeout {
            Timeout::After(delay) => up(u128::from(self.now_ns) + delay.as_nanos()),
            Timeout::At(at) => up(at.as_nanos().into()),
            Timeout::Never => return None,
            other => panic!("{other:?}"),
        };
        Some(at.try_into().unwrap_or(u64::MAX))
    }

    /// Advances from one tick that has work to the next. A nested call only moves the goal.
    pub fn advance(&mut self, by_ns: u64) {
        let running = self.goal_ns.is_some();
        let goal_ns = self.goal_ns.unwrap_or(self.now_ns).saturating_add(by_ns);
        self.goal_ns = Some(goal_ns);
        self.count_if(running, "time moved on from inside");
        if running {
            return;
        }
        let tick_ns = self.setup.tick_ns;
        while let Some(goal_ns) = self.goal_ns {
            let deadlines = self
                .parked
                .iter()
                .filter_map(|&number| self.all[number].deadline);
            let next = deadlines.min().filter(|&next| next <= goal_ns / tick_ns);
            match next {
                Some(next) => {
                    let next_ns = next.saturating_mul(tick_ns);
                    self.now_ns = self.now_ns.max(next_ns.min(LAST_NS));
                    self.expire(self.now_ns / tick_ns);
                }
                None => {
                    self.now_ns = self.now_ns.max(goal_ns.min(LAST_NS));
                    self.goal_ns = None;
                }
            }
        }
    }

    /// Lets time pass; operations that fall due meanwhile expire later.
    pub fn pass(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns).min(LAST_NS);
        self.goal_ns = self.goal_ns.map(|goal_ns| goal_ns.saturating_add(by_ns));
    }

    /// Expires the due operations, by deadline and then by parking.
    fn expire(&mut self, now: u64) {
        let is_due = |&&number: &&usize| self.all[number].deadline.is_some_and(|due| due <= now);
        let mut due: Vec<usize> = self.parked.iter().filter(is_due).copied().collect();
        due.sort_by_key(|&number| self.all[number].deadline);
        for &number in &due {
            self.all[number].deadline = None;
        }
        let ended = self.claim_each(due, &Outcome::Expired);
        self.count_if(ended.len() > 1, "several due at a tick");
        self.tell_elsewhere(ended, Outcome::Expired);
    }
}
