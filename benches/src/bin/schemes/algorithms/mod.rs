//! The timer algorithms, each in its plain form, behind [`Scheme`].
//!
//! Each algorithm is a file, except the unsorted list, which is a hashed wheel with one slot. To
//! add an algorithm, add a file and a line in [`ALL`].

mod bounded_wheel;
mod delay_heap;
mod hashed_wheel;
mod hierarchical_wheel;
mod rings;
pub(crate) mod scheme;
mod sorted_list;

use self::{
    bounded_wheel::BoundedWheel,
    delay_heap::DelayHeap,
    hashed_wheel::{HashedWheel, UnsortedList},
    hierarchical_wheel::HierarchicalWheel,
    scheme::{Claim, Scheme},
    sorted_list::SortedList,
};
use crate::trial::{Costs, DAY, HOUR, Plan, trial};

/// A scheme with its type erased.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) claim: Claim,
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
    contender::<UnsortedList>(),
    contender::<SortedList>(),
    contender::<BoundedWheel<{ DAY as usize }>>(),
    contender::<HashedWheel<{ HOUR as usize }>>(),
    contender::<DelayHeap>(),
    contender::<HierarchicalWheel>(),
];
