//! Access to tasks where they lie, for crates that keep state in them: by the index of a task that
//! is certain to be there, or by an id that is looked up once for several steps.
//!
//! These methods are not part of the documented interface: see [`driver`](crate::driver).

use crate::wheel::{
    node::{NO_PLACE, TaskId},
    step,
    timing_wheel::TimingWheel,
};

impl<T> TimingWheel<T> {
    /// Returns the task at the index of a task that the wheel keeps. O(1).
    ///
    /// # Panics
    /// When the wheel keeps no task there.
    #[doc(hidden)]
    #[inline]
    pub fn at(&self, index: u32) -> &T {
        self.nodes.at(index).task()
    }

    /// See [`at`](Self::at).
    #[doc(hidden)]
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut T {
        self.nodes.at_mut(index).task_mut()
    }

    /// Returns the id of the task at an index, as in [`at`](Self::at).
    #[doc(hidden)]
    pub fn id_at(&self, index: u32) -> TaskId {
        TaskId {
            index,
            sequence: self.nodes.at(index).sequence,
        }
    }

    /// Stops the task at an index, as in [`at`](Self::at): calls `look` with the task where it
    /// lies, then takes it off its bucket. The task counts as cancelled, but stays in the wheel's
    /// keeping. O(1).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn stop_with<R>(&mut self, index: u32, look: impl FnOnce(&mut T) -> R) -> R {
        let node = self.nodes.at_mut(index);
        let seen = look(node.task_mut());
        let place = node.take_place();
        self.unlink_cancelled(index, place);
        seen
    }

    /// Looks a task up once, and ends it as `decide` says, which sees it where it lies: always
    /// `Some`. If `decide` takes the task out, it is gone, as after [`cancel`](Self::cancel). If
    /// `decide` leaves the task and returns `Some`, the task is stopped, as by
    /// [`stop_with`](Self::stop_with). Otherwise it stays. Returns the result of `decide`, or
    /// `None` if the task is gone already. O(1).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn end_with<R>(
        &mut self,
        id: TaskId,
        decide: impl FnOnce(&mut Option<T>) -> Option<R>,
    ) -> Option<R> {
        step();
        let mut taken = None;
        let mut place = NO_PLACE;
        // 1. Look the node up once, and free it if its task goes.
        self.nodes.release_if(id.index, |node| {
            if !node.keeps(id) {
                return false; // it is free, or has a later task
            }
            taken = decide(&mut node.task);
            let is_gone = node.task.is_none();
            if is_gone || taken.is_some() {
                place = node.take_place();
            }
            if is_gone {
                node.sequence = 0;
            }
            is_gone
        });
        // 2. Take it off its bucket.
        self.unlink_cancelled(id.index, place);
        taken
    }
}
