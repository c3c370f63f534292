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

use std::{error::Error, fmt};

use crate::wheel::{
    pages::{PageSlot, Pages, Records},
    steps::step,
};

/// How many tasks one wheel holds at most: 2^26, about 67 million.
pub const MAX_TASKS: u32 = 1 << 26;

/// How many ids an index has: generations from 0, so that one above each fits in 30 bits.
pub(crate) const GENERATIONS: u32 = (1 << GENERATION_BITS) - 1;

/// What one above a generation fits into.
pub(crate) const GENERATION_BITS: u32 = 30;

/// With nothing live there is room for so many sequences.
const KEPT_SEQUENCES: usize = 4096;

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

/// The wheel holds [`MAX_TASKS`] tasks already, or has given out all its ids, which takes more than
/// a century at ten million a second; the task comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a wheel holds at most {MAX_TASKS} tasks")
    }
}

impl<T> Error for Full<T> {}

/// A task and its timer links.
#[derive(Debug)]
pub(crate) struct Node<T> {
    /// When the task is due, in ticks, as asked (it may lie in the past).
    pub(crate) deadline: u64,
    generation: u32,
    /// Where the node is listed.
    pub(crate) position: Position,
    task: Option<T>,
}

impl<T> Node<T> {
    pub(crate) fn task(&self) -> &T {
        self.task.as_ref().expect("Live: an index on a list names a live node")
    }

    /// Reads the deadline and whether there is a task: as a rule both ends of the node.
    pub(crate) fn touch(&self) -> u64 {
        self.deadline | u64::from(self.task.is_some())
    }

    pub(crate) fn task_mut(&mut self) -> &mut T {
        self.task.as_mut().expect("Live: an index on a list names a live node")
    }
}

/// Where a node is listed: at an entry of a chunk, which knows its list, or at an item of the list
/// of those that are not in a bucket yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(u32);

impl Position {
    /// Nowhere: in the arena only.
    pub(crate) const NONE: Position = Position(u32::MAX);

    /// Entries have positions below this, late items this and above.
    pub(crate) const LATE: u32 = 1 << 31;

    pub(crate) fn entry(at: u32) -> Position {
        debug_assert!(at < Position::LATE);
        Position(at)
    }

    /// An item's, of which there are about twice [`MAX_TASKS`] at most.
    pub(crate) fn late(at: usize) -> Position {
        debug_assert!(at < Position::LATE as usize - 1);
        Position(Position::LATE | at as u32)
    }

    /// The entry's position, for a node in a bucket.
    pub(crate) fn entry_at(self) -> Option<u32> {
        (self.0 < Position::LATE).then_some(self.0)
    }
}

impl<T> PageSlot for Node<T> {
    const PAGE_BITS: u32 = 6;
    const MAX: u32 = MAX_TASKS;
    const GENERATIONS: u32 = GENERATIONS;

    fn vacant(generation: u32) -> Self {
        Node { deadline: 0, generation, position: Position::NONE, task: None }
    }

    fn generation(&self) -> u32 {
        self.generation
    }
}

#[derive(Debug)]
pub(crate) struct Arena<T> {
    nodes: Pages<Node<T>>,
    /// If order is kept.
    order: Option<Box<Order>>,
}

/// What puts tasks of one tick in order.
#[derive(Debug, Default)]
struct Order {
    /// What each index was given.
    sequences: Vec<u32>,
}

impl Order {
    fn keep(&mut self, index: u32, sequence: u32) {
        let known = self.sequences.len().max(index as usize + 1);
        self.sequences.resize(known, 0);
        self.sequences[index as usize] = sequence;
    }

    fn is_large(&self) -> bool {
        self.sequences.capacity() > KEPT_SEQUENCES
    }
}

impl<T> Arena<T> {
    pub(crate) fn new() -> Self {
        Arena { nodes: Pages::new(), order: None }
    }

    /// Remembers from now on the sequence of each.
    pub(crate) fn keep_order(&mut self) {
        self.order.get_or_insert_default();
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// O(1). Hands the task back when the arena is full.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: u64, sequence: u32, task: T) -> Result<TaskId, T> {
        let Some(index) = self.nodes.claim() else { return Err(task) };
        let node = self.nodes.at_mut(index);
        node.deadline = deadline;
        node.position = Position::NONE;
        node.task = Some(task);
        let id = TaskId { index, generation: node.generation };
        if let Some(order) = &mut self.order {
            order.keep(index, sequence);
        }
        Ok(id)
    }

    /// The sequence of a live index; 0 unless these are kept.
    pub(crate) fn sequence(&self, index: u32) -> u32 {
        self.order
            .as_ref()
            .and_then(|order| order.sequences.get(index as usize))
            .copied()
            .unwrap_or(0)
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

    /// As [`Pages::is_untidy`]. O(1).
    #[inline]
    pub(crate) fn is_untidy(&self) -> bool {
        self.nodes.is_untidy()
            || self.nodes.is_empty() && self.order.as_ref().is_some_and(|order| order.is_large())
    }

    /// Takes off what a peak has left behind, if nothing is live.
    pub(crate) fn take_leftover(&mut self) -> (Option<Records<Node<T>>>, Vec<u32>) {
        let order = self.order.as_mut().filter(|order| self.nodes.is_empty() && order.is_large());
        let sequences = order.map(|order| std::mem::take(&mut order.sequences));
        (self.nodes.take_records(), sequences.unwrap_or_default())
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
    fn an_order_is_kept_while_something_is_live() {
        let mut arena = Arena::new();
        let before = arena.insert(0, 7, 0).unwrap().index;
        arena.keep_order();
        let ids: Vec<_> = (0..9000).map(|n| arena.insert(0, n, n).unwrap().index).collect();
        assert_eq!(arena.sequence(before), 0);
        assert!(ids.iter().zip(0..).all(|(&index, n)| arena.sequence(index) == n));
        ids.iter().chain([&before]).for_each(|&index| _ = arena.remove(index));
        assert!(arena.is_untidy());
        drop(arena.take_leftover());
        let sequences = &arena.order.as_ref().unwrap().sequences;
        assert!(sequences.is_empty() && sequences.capacity() < 9000);
        let again = arena.insert(0, 8, 0).unwrap().index;
        assert_eq!(arena.sequence(again), 8);
    }

    #[test]
    fn a_node_costs_16_bytes_beside_its_task() {
        assert_eq!(size_of::<Node<Box<u64>>>(), 16 + 8);
    }
}
