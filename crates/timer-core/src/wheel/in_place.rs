//! Tasks reached where they lie, for crates that keep state in them: by the index of a task that is
//! there for certain, or by an id that is looked up once for several steps.
//!
//! These methods are no part of the documented interface: see [`driver`](crate::driver).

use crate::wheel::{
    node::TaskId,
    timing_wheel::{Fate, TimingWheel},
};

impl<T> TimingWheel<T> {
    /// Returns the task at the index of a task that the wheel keeps. O(1).
    ///
    /// # Panics
    /// When it keeps none there.
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

    /// Returns the task at an index, as in [`at`](Self::at), with its id.
    #[doc(hidden)]
    #[inline]
    pub fn named_at_mut(&mut self, index: u32) -> (TaskId, &mut T) {
        let node = self.nodes.at_mut(index);
        let sequence = node.sequence;
        (TaskId { index, sequence }, node.task_mut())
    }

    /// Returns the id of the task at an index, as in [`at`](Self::at).
    #[doc(hidden)]
    #[inline]
    pub fn id_at(&self, index: u32) -> TaskId {
        TaskId {
            index,
            sequence: self.nodes.at(index).sequence,
        }
    }

    /// Takes the task at an index, as in [`at`](Self::at), off its bucket. It counts as cancelled,
    /// but stays in the wheel's keeping. O(1).
    #[doc(hidden)]
    #[inline]
    pub fn stop_at(&mut self, index: u32) {
        let place = self.nodes.at_mut(index).take_place();
        self.unlink_cancelled(index, place);
    }

    /// Looks a task up once, calls `visit` with it, and takes it out as [`cancel`](Self::cancel)
    /// does if that returns true. Returns what `keep` keeps of it; `None` if the task stays, or is
    /// gone already. O(1).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn cancel_if<R>(
        &mut self,
        id: TaskId,
        visit: impl FnOnce(&mut T) -> bool,
        keep: impl FnOnce(T) -> R,
    ) -> Option<R> {
        self.end_node(id, |node| {
            if visit(node.task_mut()) {
                Fate::Gone(keep(node.take_task()))
            } else {
                Fate::Stays
            }
        })
    }

    /// Looks a task up once, and calls `stays` with it. If that returns true, stops the task as
    /// [`stop_at`](Self::stop_at) does; otherwise takes it out as [`cancel`](Self::cancel) does, and
    /// calls `keep` with it. Does nothing if the task is gone. O(1).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn stop_or_cancel(
        &mut self,
        id: TaskId,
        stays: impl FnOnce(&mut T) -> bool,
        keep: impl FnOnce(T),
    ) {
        self.end_node(id, |node| {
            if stays(node.task_mut()) {
                return Fate::Stopped(());
            }
            keep(node.take_task());
            Fate::Gone(())
        });
    }

    /// Looks a task up once, and does with it what `decide` says. Returns what `decide` took out of
    /// it; `None` if the task stays, or is gone already. O(1).
    #[doc(hidden)]
    #[inline(always)] // as `cancel`
    pub fn end_with<R>(&mut self, id: TaskId, decide: impl FnOnce(&mut T) -> Fate<R>) -> Option<R> {
        self.end_node(id, |node| {
            let fate = decide(node.task_mut());
            if matches!(fate, Fate::Gone(_)) {
                node.free();
            }
            fate
        })
    }
}
