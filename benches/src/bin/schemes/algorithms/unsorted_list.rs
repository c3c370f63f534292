//! A list of timers in no order.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Refused, Scheme, Task},
};

/// Each timer knows the ticks it has left, and every tick counts every timer down.
///
/// Start and stop are O(1). The trap is the tick: O(n), however far from due they all are. Scheme 1
/// of Varghese and Lauck.
#[derive(Debug)]
pub(crate) struct UnsortedList {
    left: Rings,
}

impl Default for UnsortedList {
    fn default() -> Self {
        UnsortedList { left: Rings::new(1) }
    }
}

impl Scheme for UnsortedList {
    const NAME: &'static str = "unsorted-list";
    const CLAIM: Claim = Claim { start: "O(1)", stop: "O(1)", tick: "O(n)", expire: "O(delay)" };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Result<Handle, Refused> {
        Ok(self.left.push(0, delay.max(1), task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.left.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.left.retain(0, |left, task| {
            *left -= 1;
            if *left == 0 {
                fired.push(task);
            }
            *left > 0
        });
    }

    fn pending(&self) -> usize {
        self.left.timers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_one_two_and_then_one_wait_as_they_came() {
        let mut list = UnsortedList::default();
        for (task, delay) in [3, 1, 2, 1].into_iter().enumerate() {
            list.start(delay, task as Task).unwrap();
        }
        assert_eq!(list.left.times(0), [3, 1, 2, 1]);
        let mut fired = Vec::new();
        list.tick(&mut fired);
        assert_eq!((fired, list.left.times(0)), (vec![1, 3], vec![2, 1]));
    }
}
