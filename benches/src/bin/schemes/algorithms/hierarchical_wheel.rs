//! `timer-core`'s wheel.

use timer_core::{TaskId, TimingWheel, WheelSize};

use super::scheme::{Claim, Scheme, Task};

/// [`TimingWheel`]: levels of 64 slots, each slot as long as the whole level below. A deadline goes
/// to the lowest level that reaches it, levels are created on demand, and time jumps from one
/// occupied bucket to the next.
///
/// A start is O(levels), a stop is O(1), and any delay is accepted. The trap of the idea is a tick
/// that moves every level although all are empty; here `advance` skips empty ticks. This is scheme
/// 7 of Varghese and Lauck, and Kafka's `TimingWheel`.
#[derive(Debug)]
pub(crate) struct HierarchicalWheel {
    wheel: TimingWheel<Task>,
}

impl Default for HierarchicalWheel {
    fn default() -> Self {
        HierarchicalWheel {
            wheel: TimingWheel::new(WheelSize::default(), 0),
        }
    }
}

impl Scheme for HierarchicalWheel {
    const NAME: &'static str = "timing-wheel";
    const CLAIM: Claim = ["O(levels)", "O(1)", "O(1)", "O(levels)"];
    type Handle = TaskId;

    fn start(&mut self, delay: u64, task: Task) -> anyhow::Result<TaskId> {
        let deadline = self.wheel.now().saturating_add(delay.max(1));
        Ok(self
            .wheel
            .insert(deadline, task)
            .expect("fewer than MAX_TASKS")
            .id)
    }

    fn stop(&mut self, handle: TaskId) -> bool {
        self.wheel.cancel(handle).is_some()
    }

    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        let now = self.wheel.now() + ticks;
        self.wheel
            .advance(now, usize::MAX, |task| fired.push(task.take()));
    }

    fn pending(&self) -> usize {
        self.wheel.len()
    }
}
