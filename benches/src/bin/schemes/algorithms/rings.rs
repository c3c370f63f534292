//! Rings: doubly linked lists of timers in one vector, each closed by a sentinel, like Kafka's
//! `TimerTaskList`. A timer joins the end of a ring or leaves it in O(1). Most schemes consist of
//! rings.

use super::scheme::Task;

/// Names a timer on a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    node: u32,
    generation: u32,
}

#[derive(Debug)]
struct Node {
    /// A deadline, remaining ticks, or rounds, as the scheme decides.
    time: u64,
    task: Task,
    previous: u32,
    next: u32,
    /// The number of timers that have left this node.
    generation: u32,
}

/// A fixed number of rings, and the timers on them.
#[derive(Debug)]
pub(crate) struct Rings<const RINGS: usize> {
    /// The first nodes are the rings' sentinels, so a ring's number is its sentinel's index.
    nodes: Vec<Node>,
    free: Vec<u32>,
}

impl<const RINGS: usize> Default for Rings<RINGS> {
    fn default() -> Self {
        let sentinel = |at| Node {
            time: 0,
            task: 0,
            previous: at,
            next: at,
            generation: 0,
        };
        Rings {
            nodes: (0..RINGS as u32).map(sentinel).collect(),
            free: Vec::new(),
        }
    }
}

impl<const RINGS: usize> Rings<RINGS> {
    /// Returns the number of timers on all rings.
    pub(crate) fn timers(&self) -> usize {
        self.nodes.len() - RINGS - self.free.len()
    }

    /// Adds a timer to the end of a ring. O(1).
    pub(crate) fn push(&mut self, ring: usize, time: u64, task: Task) -> Handle {
        self.insert_before(ring as u32, time, task)
    }

    /// Adds a timer in the order of time, behind equal ones. Searches from the front: O(n).
    pub(crate) fn insert_sorted(&mut self, ring: usize, time: u64, task: Task) -> Handle {
        let mut at = self.nodes[ring].next;
        while at as usize != ring && self.nodes[at as usize].time <= time {
            at = self.nodes[at as usize].next;
        }
        self.insert_before(at, time, task)
    }

    /// Removes a timer from its ring; false if it had left before. O(1).
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        let pending = self.nodes[handle.node as usize].generation == handle.generation;
        if pending {
            self.take(handle.node);
        }
        pending
    }

    /// Returns the time of a ring's first timer. O(1).
    pub(crate) fn first_time(&self, ring: usize) -> Option<u64> {
        self.first(ring).map(|at| self.nodes[at as usize].time)
    }

    /// Removes a ring's first timer. O(1).
    pub(crate) fn pop(&mut self, ring: usize) -> Option<Task> {
        self.first(ring).map(|at| self.take(at))
    }

    /// Visits every timer of a ring, and removes those for which `keep` returns false. O(n).
    pub(crate) fn retain(&mut self, ring: usize, mut keep: impl FnMut(&mut u64, Task) -> bool) {
        let mut at = self.nodes[ring].next;
        while at as usize != ring {
            let node = &mut self.nodes[at as usize];
            // Read the link before the node may be removed.
            let next = node.next;
            if !keep(&mut node.time, node.task) {
                self.take(at);
            }
            at = next;
        }
    }

    fn first(&self, ring: usize) -> Option<u32> {
        let at = self.nodes[ring].next;
        if at as usize == ring { None } else { Some(at) }
    }

    fn insert_before(&mut self, next: u32, time: u64, task: Task) -> Handle {
        // Use a free node if there is one, else a new one.
        let at = self.free.pop().unwrap_or_else(|| self.grow());

        // Link it between the neighbours.
        let previous = std::mem::replace(&mut self.nodes[next as usize].previous, at);
        self.nodes[previous as usize].next = at;
        let node = &mut self.nodes[at as usize];
        node.previous = previous;
        node.next = next;
        node.time = time;
        node.task = task;
        Handle {
            node: at,
            generation: node.generation,
        }
    }

    /// Adds an unlinked node; returns its index.
    fn grow(&mut self) -> u32 {
        let at = u32::try_from(self.nodes.len()).expect("fewer than 2^32 timers");
        self.nodes.push(Node {
            time: 0,
            task: 0,
            previous: at,
            next: at,
            generation: 0,
        });
        at
    }

    fn take(&mut self, at: u32) -> Task {
        // Unlink it, and make its handle stale.
        let Node { previous, next, .. } = self.nodes[at as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        self.free.push(at);
        let node = &mut self.nodes[at as usize];
        node.generation = node.generation.wrapping_add(1);
        node.task
    }
}

#[cfg(test)]
impl<const RINGS: usize> Rings<RINGS> {
    /// Returns the times on a ring, in order.
    pub(crate) fn times(&self, ring: usize) -> Vec<u64> {
        let next = |&at: &u32| Some(self.nodes[at as usize].next).filter(|&at| at as usize != ring);
        let nodes = std::iter::successors(self.first(ring), next);
        nodes.map(|at| self.nodes[at as usize].time).collect()
    }

    /// Returns the ring of a timer.
    pub(crate) fn ring_of(&self, handle: Handle) -> Option<usize> {
        let mut at = handle.node as usize;
        let pending = self.nodes[at].generation == handle.generation;
        while pending && at >= RINGS {
            at = self.nodes[at].next as usize;
        }
        if pending { Some(at) } else { None }
    }
}
