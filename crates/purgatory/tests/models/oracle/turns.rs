//! Turns in the reference: of those that wait in turn for a key only the first, the head, is
//! checked; and whenever a head ends, the next.

use purgatory::Outcome;

use super::{
    reference::{Handle, Reference, State, Verdict, Watch, Watching, Work},
    steps::{Key, Saw},
};

/// The result of checks in turn.
#[derive(Default)]
pub struct Served {
    pub completed: usize,
    /// A check came true.
    pub came_true: bool,
}

impl Reference {
    /// Returns those that wait in turn for a key, the head first.
    pub fn line(&self, key: Key) -> Vec<usize> {
        let in_turn = |watch: &Watch| (watch.watching == Watching::InTurn).then_some(watch.order);
        self.watching(key, in_turn)
            .into_iter()
            .map(|(_, number)| number)
            .collect()
    }

    /// Returns true for an operation that is to wait in turn, and finds others ahead.
    pub fn is_behind_others(&self, number: usize) -> bool {
        let request = &self.all[number].request;
        request.plan.in_turn && !self.line(request.keys[0]).is_empty()
    }

    /// Notes the next one in turn, if this one is a head. It is about to leave.
    pub fn leave_turn(&mut self, number: usize) {
        let of_key = self.all[number].watches.first();
        let Some(key) = of_key.map(|watch| watch.key) else {
            return;
        };
        let line = self.line(key);
        if let &[head, next, ..] = &*line {
            if head == number {
                self.at(number).moved_up = Some(self.handle(next));
            }
        }
        let is_behind = line.iter().skip(1).any(|&behind| behind == number);
        self.count_if(is_behind, "one in turn left from behind");
    }

    /// Operations have expired together. Nothing is promised of the order in which they leave.
    pub fn expired_in_turn(&mut self, ended: &[usize]) {
        for &last in ended {
            let next = self.at(last).moved_up;
            let Some(next) = next.filter(|&next| self.state(next) != State::Over) else {
                continue;
            };
            let of_line = |number: &usize| {
                let watch = self.all[*number].watches[0];
                watch.watching == Watching::InTurn
                    && watch.key == self.all[next.number].watches[0].key
            };
            let together: Vec<usize> = ended.iter().copied().filter(of_line).collect();
            self.count_if(together.len() > 1, "several in turn expire together");
            if together.len() > 1 {
                self.at(last).moved_up = None;
                self.left_together.push((next, together));
            }
        }
    }

    /// Checks the next in turn of several that have expired together, if it is time.
    pub fn check_behind(&mut self, number: usize) {
        let mut lines = self.left_together.iter_mut();
        let Some(at) = lines.position(|(_, line)| line.contains(&number)) else {
            return;
        };
        let (next, line) = &mut self.left_together[at];
        line.retain(|&other| other != number);
        let next = *next;
        let is_last = line.is_empty();
        let check = Saw::Check(next.number, self.all[next.number].look + 1);
        if is_last || self.seen.get(self.log.len()) == Some(&check) {
            self.left_together.swap_remove(at);
            self.serve_heads(true, Some(next));
        }
    }

    /// Leaves the check of the next in turn to the outermost call, behind the work that is queued.
    pub fn queue_moved_up(&mut self, number: usize) {
        let mut lines = self.left_together.iter();
        if lines.any(|(_, line)| line.contains(&number)) {
            self.queue.push_back(Work::MovedUpBehind(number));
        }
        if let Some(next) = self.at(number).moved_up.take() {
            self.queue.push_back(Work::MovedUp(next));
        }
    }

    /// Checks the head of those in turn for an event, if some waited in turn as it began.
    pub fn event_in_turn(&mut self, nested: bool, key: Key, began: bool) -> Served {
        let head = self.handles(self.line(key)).first().copied();
        self.serve_heads(nested, head.filter(|_| began))
    }

    /// Checks a head, and the next as long as heads end. One that has left had the next checked.
    pub fn serve_heads(&mut self, nested: bool, mut head: Option<Handle>) -> Served {
        let mut served = Served::default();
        while let Some(handle) = head.take() {
            let number = handle.number;
            let is_parked = self.state(handle) == State::Parked;
            self.count_if(!is_parked, "moved up, and gone");
            if !is_parked {
                break;
            }
            self.at(number).state = State::UnderCheck;
            let verdict = self.check(number);
            served.came_true |= verdict == Verdict::Holds;
            let Some(outcome) = self.check_in(number, verdict) else {
                self.count_if(self.line_behind(number), "a head that others wait behind");
                break;
            };
            head = self.at(number).moved_up.take();
            let completed = outcome == Outcome::Completed;
            self.count_if(
                completed && head.is_some(),
                "a head completes, and the next",
            );
            self.count_if(!completed && head.is_some(), "a head ends, and the next");
            served.completed += usize::from(completed);
            self.finish(nested, number, outcome);
        }
        served
    }

    fn line_behind(&self, number: usize) -> bool {
        self.line(self.all[number].watches[0].key).len() > 1
    }
}
