//! A generational slab of timer nodes.
//!
//! A node is the task and its timer links side by side, so that starting, stopping and firing a
//! timer touch one place. An id is (index, generation); removing a node raises its generation, so
//! an old id finds nothing, ever:
//!
//! - **Retire**: a node that has had all its generations is never used again.
//! - **Floor**: the nodes of a page that comes back start above every generation they had.
//!
//! How many ids that makes, and how many years they last: `docs/DESIGN.md`, *Ids*.

use std::fmt;

use crate::wheel::{
    pages::{PageSlot, Pages},
    steps::step,
};

/// How many tasks one wheel holds at most: 2^26, about 67 million.
pub const MAX_TASKS: u32 = 1 << 26;

/// How many ids an index has: generations from 0, so that one above each fits in 30 bits.
pub(crate) const GENERATIONS: u32 = (1 << GENERATION_BITS) - 1;

/// What one above a generation fits into.
pub(crate) const GENERATION_BITS: u32 = 30;

/// Names a task on one [`TimingWheel`](crate::TimingWheel). Never reused for another task.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The index for [`TimingWheel::first_from`](crate::TimingWheel::first_from); below
    /// [`MAX_TASKS`].
    pub fn index(self) -> u32 {
        self.index
    }

    /// How often the index had been used before, or more: below 2^30 − 1.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The id with this index and generation.
    pub fn from_parts(index: u32, generation: u32) -> TaskId {
        TaskId { index, generation }
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({}v{})", self.index, self.generation)
    }
}

/// A task and its timer links.
#[derive(Debug)]
#[repr(C)] // links at both ends: with these read, all of a small node is in the cache
pub(crate) struct Node<T> {
    /// When the task is due, in ticks, as asked (it may lie in the past).
    pub(crate) deadline: u64,
    generation: u32,
    /// The list the node is on; see `OnList`.
    pub(crate) on_list: OnList,
    task: Option<T>,
    /// Its position in that list.
    pub(crate) position: u32,
    /// Counts insertions (wrapping), so that tasks of one tick can be put in order.
    pub(crate) sequence: u32,
}

impl<T> Node<T> {
    pub(crate) fn task(&self) -> &T {
        self.task.as_ref().expect("Live: an index on a list names a live node")
    }

    /// Reads both ends of the node.
    pub(crate) fn touch(&self) -> u64 {
        self.deadline | u64::from(self.position) | u64::from(self.task.is_some())
    }

    pub(crate) fn task_mut(&mut self) -> &mut T {
        self.task.as_mut().expect("Live: an index on a list names a live node")
    }
}

/// Which list a node is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnList(u32);

impl OnList {
    /// On no list: in the arena only.
    pub(crate) const NONE: OnList = OnList(u32::MAX);

    /// On the list of those that are not in a bucket yet.
    pub(crate) const LATE: OnList = OnList(u32::MAX - 1);

    /// So many slots of a level can be told apart.
    pub(crate) const SLOTS: usize = 1 << 16;

    pub(crate) const fn bucket(level: usize, slot: usize) -> OnList {
        OnList((level as u32) << 16 | slot as u32)
    }

    /// Level and slot, for a node in a bucket.
    pub(crate) fn level_and_slot(self) -> (usize, usize) {
        ((self.0 >> 16) as usize, (self.0 & 0xffff) as usize)
    }
}

impl<T> PageSlot for Node<T> {
    const PAGE_BITS: u32 = 6;
    const MAX: u32 = MAX_TASKS;
    const GENERATIONS: u32 = GENERATIONS;

    fn vacant(generation: u32) -> Self {
        Node {
            deadline: 0,
            generation,
            on_list: OnList::NONE,
            position: 0,
            sequence: 0,
            task: None,
        }
    }

    fn generation(&self) -> u32 {
        self.generation
    }
}

#[derive(Debug)]
pub(crate) struct Arena<T> {
    nodes: Pages<Node<T>>,
}

impl<T> Arena<T> {
    pub(crate) fn new() -> Self {
        Arena { nodes: Pages::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// O(1). Hands the task back when the arena is full.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: u64, sequence: u32, task: T) -> Result<TaskId, T> {
        let Some(index) = self.nodes.claim() else { return Err(task) };
        let node = self.nodes.at_mut(index);
        node.deadline = deadline;
        node.sequence = sequence;
        node.on_list = OnList::NONE;
        node.task = Some(task);
        Ok(TaskId { index, generation: node.generation })
    }

    #[inline]
    pub(crate) fn get(&self, id: TaskId) -> Option<&Node<T>> {
        step();
        let node = self.nodes.get(id.index)?;
        (node.generation == id.generation && node.task.is_some()).then_some(node)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Node<T>> {
        step();
        let node = self.nodes.get_mut(id.index)?;
        (node.generation == id.generation && node.task.is_some()).then_some(node)
    }

    /// The node at any index, live or not, unless its page has no memory.
    #[inline]
    pub(crate) fn look(&self, index: u32) -> Option<&Node<T>> {
        self.nodes.get(index)
    }

    /// The node at an index known to be live (it is on a list).
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Node<T> {
        step();
        self.nodes.at(index)
    }

    /// See [`at`](Self::at).
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Node<T> {
        step();
        self.nodes.at_mut(index)
    }

    /// The id of a live index.
    pub(crate) fn id(&self, index: u32) -> TaskId {
        TaskId { index, generation: self.at(index).generation }
    }

    /// O(1), but for the freeing of an emptied page. The index must be live and on no list.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let node = self.nodes.at_mut(index);
        let task = node.task.take().expect("Live: only a live index is removed");
        node.generation += 1; // Retire: released for good at GENERATIONS
        self.nodes.release(index);
        task
    }

    /// The first live id at or after `index`, in order of index.
    pub(crate) fn first_from(&self, index: u32) -> Option<TaskId> {
        self.nodes.first_from(index).map(|index| self.id(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(arena: &mut Arena<u32>, task: u32) -> TaskId {
        arena.insert(0, 0, task).unwrap()
    }

    #[test]
    fn an_old_id_finds_nothing_after_its_place_is_reused() {
        let mut arena = Arena::new();
        let old = add(&mut arena, 1);
        assert_eq!(arena.remove(old.index), 1);
        let new = add(&mut arena, 2);
        assert_eq!(new.index, old.index);
        assert!(arena.get(old).is_none() && arena.get_mut(old).is_none());
        assert_eq!(*arena.get(new).unwrap().task(), 2);
    }

    #[test]
    fn a_node_whose_generation_would_wrap_is_retired() {
        let mut arena = Arena::new();
        let index = add(&mut arena, 1).index;
        arena.at_mut(index).generation = GENERATIONS - 1;
        let last = arena.id(index);
        arena.remove(index);
        assert!((0..200).all(|task| add(&mut arena, task).index != index));
        assert!(arena.get(last).is_none());
    }

    #[test]
    fn near_the_end_of_generations_node_after_node_is_retired_and_no_id_comes_twice() {
        let mut arena = Arena::new();
        let first: Vec<_> = (0..300).map(|task| add(&mut arena, task).index).collect();
        first.iter().for_each(|&index| arena.at_mut(index).generation = GENERATIONS - 4);
        first.iter().for_each(|&index| _ = arena.remove(index));
        let mut given = std::collections::HashSet::new();
        for peak in [1, 300, 70, 1, 1, 200, 300] {
            let ids: Vec<_> = (0..peak).map(|task| add(&mut arena, task)).collect();
            assert!(ids.iter().all(|&id| id.generation < GENERATIONS && given.insert(id)));
            assert!(ids.iter().all(|&id| arena.get(id).is_some()));
            ids.iter().for_each(|id| _ = arena.remove(id.index));
        }
        assert!(given.iter().all(|&id| arena.get(id).is_none()));
        let used_up = given.iter().filter(|id| id.generation == GENERATIONS - 1).count();
        assert!(used_up > 64, "{used_up}");
    }

    #[test]
    fn the_ids_of_a_page_that_came_back_are_new() {
        let mut arena = Arena::new();
        let old: Vec<_> = (0..300).map(|task| add(&mut arena, task)).collect();
        old.iter().for_each(|id| _ = arena.remove(id.index));
        let new: Vec<_> = (0..300).map(|task| add(&mut arena, task)).collect();
        assert!(old.iter().all(|&id| arena.get(id).is_none()));
        assert!(new.iter().all(|&id| arena.get(id).is_some()));
    }

    #[test]
    fn a_node_costs_24_bytes_beside_its_task() {
        assert_eq!(size_of::<Node<Box<u64>>>(), 24 + 8);
    }
}
