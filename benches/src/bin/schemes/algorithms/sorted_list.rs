//! A list of timers in order of deadline.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Scheme, Task},
};

/// A list in the order of absolute deadlines: nothing is counted down, and a tick checks only the
/// first timer.
///
/// The trap is the start, which searches from the front: O(n). (From the back, equal delays would
/// find their place at once, but random ones would not.) This is scheme 2 of Varghese and Lauck.
#[derive(Debug, Default)]
pub(crate) struct SortedList {
    now: u64,
    deadlines: Rings<1>,
}

impl Scheme for SortedList {
    const NAME: &'static str = "sorted-list";
    const CLAIM: Claim = ["O(n)", "O(1)", "O(1)", "O(1)"];
    const STARTS_MAX: usize = 1_000;
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<Handle> {
        let deadline = self.now.saturating_add(delay.max(1));
        Ok(self.deadlines.insert_sorted(0, deadline, task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.deadlines.remove(handle)
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        self.now += ticks;
        while self
            .deadlines
            .first_time(0)
            .is_some_and(|deadline| deadline <= self.now)
        {
            fired.extend(self.deadlines.pop(0));
        }
    }

    fn pending(&self) -> usize {
        self.deadlines.timers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_deadline_goes_to_the_front() {
        let mut list = SortedList::default();
        list.start(5, 0).unwrap();
        list.tick(&mut Vec::new());
        list.start(3, 1).unwrap();
        assert_eq!(list.deadlines.times(0), [4, 5], "absolute");
        list.start(1, 2).unwrap();
        assert_eq!(list.deadlines.times(0), [2, 4, 5]);
    }
}
