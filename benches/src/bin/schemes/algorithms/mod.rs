//! The timer algorithms, each in its plain form, behind [`Scheme`].
//!
//! The unsorted list and the bounded wheel are hashed wheels, of one slot and of a slot for each
//! tick. To add an algorithm, add a line in [`ALL`].

mod delay_heap;
mod hashed_wheel;
mod hierarchical_wheel;
mod rings;
mod sorted_list;

use self::{
    delay_heap::DelayHeap, hashed_wheel::HashedWheel, hierarchical_wheel::HierarchicalWheel,
    sorted_list::SortedList,
};
use crate::trial::{Costs, DAY, HOUR, Plan, trial};

/// The value that a timer yields when it fires.
pub(crate) type Task = u64;

/// A timer algorithm. Time is in ticks, and its present begins at 0.
///
/// `Default` creates it as it is measured: for ticks of a second and delays below a day.
pub(crate) trait Scheme: Default {
    /// The name in the output.
    const NAME: &'static str;
    /// The cost of each measure among `n` pending timers that the literature claims: of a start, a
    /// stop, a tick in which nothing is due or handed down, and the expiry of one timer, from its
    /// start on, without the empty ticks.
    const CLAIM: [&'static str; 4];
    /// The greatest number of pending timers that is started in 10 s.
    const STARTS_MAX: usize = usize::MAX;
    /// The greatest number of pending timers that fires in 10 s.
    const EXPIRES_MAX: usize = usize::MAX;
    /// Names a timer; never reused.
    type Handle: Copy;

    /// Starts a timer that fires on the `delay`-th tick from now, of one at least and less than a
    /// day.
    fn start(&mut self, delay: u64, task: Task) -> Self::Handle;

    /// Stops a timer; false when it has fired or was stopped before.
    fn stop(&mut self, handle: Self::Handle) -> bool;

    /// Advances by one tick and adds due tasks to `fired`. A scheme implements this method or
    /// [`advance`](Self::advance).
    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.advance(1, fired);
    }

    /// Advances by `ticks` and adds due tasks to `fired` in order of deadline. A scheme that knows
    /// its next deadline skips the ticks before it.
    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        for _ in 0..ticks {
            self.tick(fired);
        }
    }

    /// Returns the number of pending timers.
    fn pending(&self) -> usize;
}

/// One scheme, with its type erased.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) claim: [&'static str; 4],
    /// Measures the scheme once.
    pub(crate) trial: fn(Plan) -> anyhow::Result<Costs>,
}

const fn contender<S: Scheme>() -> Contender {
    Contender {
        name: S::NAME,
        claim: S::CLAIM,
        trial: trial::<S>,
    }
}

/// All schemes, in the order of the table.
pub(crate) const ALL: [Contender; 6] = [
    contender::<HashedWheel<1>>(),
    contender::<SortedList>(),
    contender::<HashedWheel<{ DAY as usize }>>(),
    contender::<HashedWheel<{ HOUR as usize }>>(),
    contender::<DelayHeap>(),
    contender::<HierarchicalWheel>(),
];
