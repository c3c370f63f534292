//! Late placement: a task that is due in a long while goes onto one plain list, and into a bucket
//! only when its time has come near. Most never get there: they are cancelled. So starting and
//! stopping a long timer writes to its node, the end of this list and a few counts, and to no
//! bucket.
//!
//! - **Late position**: the item at its [`Position`] is the node, for each node that is late.
//!   Every other item is *stale*: its task was cancelled or moved. There are about as many stale
//!   items as live ones at most, since the list is packed when it is full of them.

use crate::wheel::arena::{Arena, Position};

/// A task is late when it is due in so many ticks or more.
pub(crate) const LATE_TICKS: u64 = 4096;

/// The list is looked through when the first of it is due in so many ticks, or fewer.
const NEAR_TICKS: u64 = LATE_TICKS / 2;

/// So many stale items are nothing to pack for.
const STALE_KEPT: usize = 64;

/// So many items are looked at as one more becomes stale, when nearly all are.
const SWEPT: usize = 8;

#[derive(Debug)]
#[repr(C)] // what starting and stopping a task writes comes first
pub(crate) struct Late {
    indices: Vec<u32>,
    live_count: usize,
    /// When to look through the list; at or before the first of the live.
    due: u64,
    /// When the look after the one that is under way is due.
    next: u64,
    /// How far that look has come.
    looked: u32,
    /// Where the next sweep goes on.
    swept: u32,
}

impl Late {
    pub(crate) fn new() -> Self {
        let (due, next) = (u64::MAX, u64::MAX);
        Late { indices: Vec::new(), live_count: 0, due, looked: 0, next, swept: 0 }
    }

    /// When to look through the list.
    #[inline]
    pub(crate) fn due(&self) -> Option<u64> {
        (self.live_count > 0).then_some(self.due)
    }

    /// No live task is due before this tick: until then, looking through the list can wait.
    pub(crate) fn deadline_bound(&self) -> u64 {
        self.due.saturating_add(NEAR_TICKS)
    }

    /// Adds a node that is on no list; returns when to look through the list for it. O(1)
    /// amortised.
    #[inline]
    pub(crate) fn add<T>(&mut self, nodes: &mut Arena<T>, index: u32) -> u64 {
        if self.indices.len() >= 2 * self.live_count + STALE_KEPT {
            self.pack(nodes);
        }
        if self.live_count == 0 {
            (self.due, self.looked, self.next) = (u64::MAX, 0, u64::MAX);
        }
        let node = nodes.at_mut(index);
        node.position = Position::late(self.indices.len());
        let due = node.deadline - NEAR_TICKS;
        self.indices.push(index);
        self.live_count += 1;
        self.due = self.due.min(due);
        due
    }

    /// Takes a node off. O(1).
    #[inline]
    pub(crate) fn remove<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        self.take_off(nodes, index);
        if self.indices.len() > 4 * self.live_count + 8 * STALE_KEPT {
            self.sweep(nodes);
        }
    }

    #[inline]
    fn take_off<T>(&mut self, nodes: &mut Arena<T>, index: u32) {
        nodes.at_mut(index).position = Position::NONE;
        self.live_count -= 1;
    }

    /// Drops some stale items of a list that is nearly all stale: more than become stale meanwhile.
    /// A look under way does that, too, and is not to be disturbed.
    #[cold]
    fn sweep<T>(&mut self, nodes: &mut Arena<T>) {
        if self.live_count == 0 {
            self.pack(nodes);
        }
        if self.looked > 0 {
            return;
        }
        for _ in 0..SWEPT {
            if self.swept as usize >= self.indices.len() {
                self.swept = 0;
            }
            if self.indices.is_empty() {
                break;
            }
            if self.is_live(nodes, self.swept as usize) {
                self.swept += 1;
            } else {
                self.drop_item(nodes, self.swept as usize);
            }
        }
        self.shrink();
    }

    /// Drops a stale item; the last one takes its position.
    fn drop_item<T>(&mut self, nodes: &mut Arena<T>, at: usize) {
        let last = self.indices.len() - 1;
        if at != last && self.is_live(nodes, last) {
            nodes.at_mut(self.indices[last]).position = Position::late(at);
        }
        self.indices.swap_remove(at);
    }

    /// Gives a peak back.
    fn shrink(&mut self) {
        let (len, room) = (self.indices.len(), self.indices.capacity());
        if room > 8 * STALE_KEPT && len < room / 8 {
            self.indices.shrink_to(4 * len + 2 * STALE_KEPT);
        }
    }

    fn is_live<T>(&self, nodes: &Arena<T>, at: usize) -> bool {
        let node = nodes.look(self.indices[at]);
        node.is_some_and(|node| node.position == Position::late(at))
    }

    #[cold]
    fn pack<T>(&mut self, nodes: &mut Arena<T>) {
        let mut kept = 0;
        for at in 0..self.indices.len() {
            if self.is_live(nodes, at) {
                let index = self.indices[at];
                nodes.at_mut(index).position = Position::late(kept);
                self.indices[kept] = index;
                kept += 1;
            }
        }
        self.indices.truncate(kept);
        self.looked = 0; // a look under way begins anew
        self.next = u64::MAX;
        self.shrink();
    }

    /// Looks at up to `budget` items at `now`; returns how many that were, and takes off those that
    /// are not late any more, for `near` to place.
    pub(crate) fn look<T>(
        &mut self,
        nodes: &mut Arena<T>,
        now: u64,
        budget: usize,
        near: &mut Vec<u32>,
    ) -> usize {
        for step in 0..budget {
            let at = self.looked as usize;
            if at == self.indices.len() {
                (self.due, self.next, self.looked) = (self.next, u64::MAX, 0);
                self.shrink();
                return step;
            }
            let index = self.indices[at];
            if self.is_live(nodes, at) {
                let deadline = nodes.at(index).deadline;
                if deadline - now >= LATE_TICKS {
                    self.next = self.next.min(deadline - NEAR_TICKS);
                    self.looked += 1;
                    continue;
                }
                self.take_off(nodes, index);
                near.push(index);
            }
            self.drop_item(nodes, at);
        }
        budget
    }

    /// The live nodes, in no order.
    pub(crate) fn live<T>(&self, nodes: &Arena<T>) -> impl Iterator<Item = u32> {
        let all = 0..self.indices.len();
        all.filter(|&at| self.is_live(nodes, at)).map(|at| self.indices[at])
    }

    /// The earliest deadline among up to `budget` items, as
    /// [`earliest_below`](crate::wheel::task_list::TimerTaskList::earliest_below).
    pub(crate) fn earliest_below<T>(
        &self,
        nodes: &Arena<T>,
        from: &mut usize,
        budget: &mut usize,
    ) -> Option<u64> {
        let end = self.indices.len().min(*from);
        let begin = end.saturating_sub(*budget);
        *budget -= end - begin;
        *from = begin;
        let live = (begin..end).filter(|&at| self.is_live(nodes, at));
        live.map(|at| nodes.at(self.indices[at]).deadline).min()
    }

    /// Checks that the counts agree with the list; returns how many are live.
    pub(crate) fn assert_valid<T>(&self, nodes: &Arena<T>) -> usize {
        assert_eq!(self.live(nodes).count(), self.live_count, "Late position");
        for index in self.live(nodes) {
            assert!(nodes.at(index).deadline - NEAR_TICKS >= self.due.min(self.next));
        }
        self.live_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_survivor_of_a_long_list_keeps_little_of_it() {
        for survivor in [0, 50_000, 99_999] {
            let (mut nodes, mut late) = (Arena::new(), Late::new());
            let indices: Vec<_> =
                (0..100_000).map(|n| nodes.insert(10_000, n, ()).unwrap().index).collect();
            indices.iter().for_each(|&index| _ = late.add(&mut nodes, index));
            let (mut room, mut steps) = (late.indices.capacity(), 0);
            for &index in indices.iter().filter(|&&index| index != indices[survivor]) {
                late.remove(&mut nodes, index);
                nodes.remove(index);
                let (items, left) = (late.indices.len(), late.indices.capacity());
                assert!(left <= 8 * items + 16 * STALE_KEPT, "room for {left}");
                assert!(items == 100_000 || late.live_count < 50_000, "swept too early");
                steps += usize::from(std::mem::replace(&mut room, left) != left);
            }
            assert!(steps < 20, "{steps} steps");
            assert_eq!((late.assert_valid(&nodes), late.live(&nodes).count()), (1, 1));
            let room = late.indices.capacity();
            assert!(room < 100 * STALE_KEPT, "room for {room}");
        }
    }

    #[test]
    fn of_what_comes_and_goes_about_half_is_stale_at_most() {
        let (mut nodes, mut late) = (Arena::new(), Late::new());
        let mut live = std::collections::VecDeque::new();
        let mut packed = 0;
        for n in 0..20_000 {
            let items = late.indices.len();
            live.push_back(nodes.insert(10_000, n, ()).unwrap().index);
            late.add(&mut nodes, live[live.len() - 1]);
            if live.len() > 1000 {
                let oldest = live.pop_front().unwrap();
                late.remove(&mut nodes, oldest);
                nodes.remove(oldest);
            }
            assert!(late.indices.len() <= 2 * live.len() + STALE_KEPT + 2);
            packed += usize::from(late.indices.len() < items);
            if n % 100 == 0 {
                assert_eq!(late.assert_valid(&nodes), live.len());
            }
        }
        assert!(packed <= 20, "packed {packed} times");
    }

    #[test]
    fn a_look_under_way_finds_all_that_are_near_whoever_leaves_meanwhile() {
        let (mut nodes, mut late) = (Arena::new(), Late::new());
        let deadline = |n| if n < 2900 { 1_000_000 } else { 10_000 };
        let indices: Vec<_> =
            (0..3000).map(|n| nodes.insert(deadline(n), n, ()).unwrap().index).collect();
        indices.iter().for_each(|&index| _ = late.add(&mut nodes, index));
        let (now, mut near) = (late.due().unwrap(), Vec::new());
        assert_eq!(late.look(&mut nodes, now, 1000, &mut near), 1000);
        for &index in &indices[..2500] {
            late.remove(&mut nodes, index);
            nodes.remove(index);
        }
        while late.look(&mut nodes, now, 1000, &mut near) == 1000 {}
        near.sort_unstable();
        assert_eq!(near, &indices[2900..]);
        assert_eq!((late.assert_valid(&nodes), late.due()), (400, Some(1_000_000 - NEAR_TICKS)));
    }

    #[test]
    fn a_wheel_tells_its_late_tasks_and_looks_at_them_within_the_budget() {
        use crate::wheel::{geometry::WheelSize, timing_wheel::TimingWheel};
        let mut wheel = TimingWheel::new(WheelSize::default(), 0).placing_late();
        (0..100).for_each(|n| _ = wheel.insert(10_000 + 5000 * (n % 2), n).unwrap());
        let due = wheel.next_due().unwrap();
        let mut near = 0;
        for _ in 0..9 {
            let advanced = wheel.advance(due, 11, |_| unreachable!());
            assert!(advanced.next_due == Some(due) && advanced.cascaded <= 11);
            near += advanced.cascaded;
        }
        near += wheel.advance(due, 11, |_| unreachable!()).cascaded;
        assert_eq!((near, wheel.late.map(|late| late.live_count)), (50, Some(50)));
    }

    #[test]
    fn when_all_leave_during_a_look_their_memory_goes() {
        let (mut nodes, mut late) = (Arena::new(), Late::new());
        let indices: Vec<_> =
            (0..10_000).map(|n| nodes.insert(1_000_000, n, ()).unwrap().index).collect();
        indices.iter().for_each(|&index| _ = late.add(&mut nodes, index));
        late.look(&mut nodes, 500_000, 1000, &mut Vec::new());
        indices.iter().for_each(|&index| late.remove(&mut nodes, index));
        assert!(late.indices.is_empty() && late.indices.capacity() < 10 * STALE_KEPT);
        assert_eq!(late.due(), None);
    }
}
