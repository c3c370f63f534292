//! A list of timers in order of deadline.

use super::{
    Scheme, Task,
    rings::{Handle, Rings},
};

/// A list in order of absolute deadlines: nothing is counted down, and a tick checks the first
/// timer only.
///
/// The trap is the start, O(n): it searches from the front. (From the back, equal delays would find
/// their place at once, and random ones would not.) Scheme 2 of Varghese and Lauck.
#[derive(Debug, Default)]
pub(crate) struct SortedList {
    now: u64,
    deadlines: Rings<1>,
}

impl Scheme for SortedList {
    const NAME: &'static str = "sorted-list";
    const CLAIM: [&'static str; 4] = ["O(n)", "O(1)", "O(1)", "O(1)"];
    const STARTS_MAX: usize = 1_000;
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Handle {
        self.deadlines.insert_sorted(self.now + delay, task)
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.deadlines.remove(handle)
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        self.now += ticks;
        fired.extend(std::iter::from_fn(|| self.deadlines.pop_until(self.now)));
    }

    fn pending(&self) -> usize {
        self.deadlines.timers()
    }
}
