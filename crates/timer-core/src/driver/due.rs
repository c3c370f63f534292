//! `Due`: what fell due in a round, in its order, and in jobs.

use crate::driver::executor::jobs;

/// What fell due in a round, in the order in which it is to be told: as it came off the wheels, or,
/// for a timer that promises it, in that of (tick, insertion).
#[derive(Debug)]
pub struct Due<T> {
    tasks: Vec<T>,
    /// Deadline and sequence of each, where order matters.
    order: Vec<(u64, u64)>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due { tasks: Vec::new(), order: Vec::new() }
    }
}

impl<T> Due<T> {
    /// Adds a task; with its deadline and place in the order of insertion, if order matters.
    #[inline]
    pub fn push(&mut self, task: T, order: Option<(u64, u64)>) {
        self.tasks.push(task);
        self.order.extend(order);
    }

    /// True when nothing fell due.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks in jobs of [`JOB_TASKS`](crate::JOB_TASKS) at most, and few enough that each of
    /// `parallelism` threads gets one.
    pub fn into_jobs(self, parallelism: usize) -> impl Iterator<Item = Vec<T>> {
        let Due { mut tasks, mut order } = self;
        if order.len() == tasks.len() {
            tasks = sorted(tasks, &mut order);
        }
        jobs(tasks, parallelism)
    }
}

fn sorted<T>(tasks: Vec<T>, order: &mut Vec<(u64, u64)>) -> Vec<T> {
    let mut sorted: Vec<_> = order.drain(..).zip(tasks).collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, task)| task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fell_due_is_put_into_the_order_of_insertion() {
        let mut due = Due::default();
        for (task, at, sequence) in [('d', 7, 9), ('b', 7, 1), ('c', 7, 2), ('a', 6, 4)] {
            due.push(task, Some((at, sequence)));
        }
        assert!(due.into_jobs(1).flatten().eq(['a', 'b', 'c', 'd']));
    }
}
