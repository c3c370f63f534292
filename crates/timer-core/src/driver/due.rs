//! `Due`: what fell due in a round, in its order, and in jobs.

use std::cmp::Reverse;

use crate::driver::executor::jobs;

/// What fell due in a round, in the order in which it is to be told: as it came off the wheels, or,
/// for a timer that promises it, in that of (tick, insertion).
#[derive(Debug)]
pub struct Due<T> {
    tasks: Vec<T>,
    /// Deadline and sequence of each, where order matters.
    order: Vec<(u64, u32)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due { tasks: Vec::new(), order: Vec::new() }
    }
}

impl<T> Due<T> {
    /// Adds a task; with its deadline and place in the order of insertion, if order matters.
    #[inline]
    pub fn push(&mut self, task: T, order: Option<(u64, u32)>) {
        self.tasks.push(task);
        self.order.extend(order);
    }

    /// True when nothing fell due.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks in jobs of [`JOB_TASKS`](crate::JOB_TASKS) at most, and few enough that each of
    /// `parallelism` threads gets one. Sequences wrap: they count back from the `newest`.
    pub fn into_jobs(self, newest: u32, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
        let Due { mut tasks, mut order } = self;
        if order.len() == tasks.len() {
            tasks = sorted(tasks, &mut order, newest);
        }
        jobs(tasks, parallelism)
    }
}

fn sorted<T>(tasks: Vec<T>, order: &mut Vec<(u64, u32)>, newest: u32) -> Vec<T> {
    let place = |(deadline, sequence)| (deadline, Reverse(newest.wrapping_sub(sequence)));
    let mut sorted: Vec<_> = order.drain(..).map(place).zip(tasks).collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, task)| task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fell_due_is_put_into_the_order_of_insertion_even_when_the_count_wraps() {
        let mut due = Due::default();
        for (task, at, sequence) in [('d', 7, 1), ('b', 7, u32::MAX), ('c', 7, 0), ('a', 6, 2)] {
            due.push(task, Some((at, sequence)));
        }
        assert!(due.into_jobs(5, 1).flatten().eq(['a', 'b', 'c', 'd']));
    }
}
