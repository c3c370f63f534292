//! The timer algorithms that are compared, each in its plain form, behind [`Scheme`].
//!
//! An algorithm is one file. It joins the run and the model by a line in [`ALL`] and in `model`.

mod bounded_wheel;
mod clock_wheel;
mod delay_heap;
mod hashed_wheel;
mod hierarchical_wheel;
#[cfg(test)]
mod model;
mod overflow_wheel;
mod rings;
pub(crate) mod scheme;
mod sorted_list;
mod unsorted_list;

pub(crate) use self::clock_wheel::{CALENDAR_SLOTS, CLOCK_SLOTS};
use self::{
    bounded_wheel::BoundedWheel,
    clock_wheel::ClockWheel,
    delay_heap::DelayHeap,
    hashed_wheel::HashedWheel,
    hierarchical_wheel::HierarchicalWheel,
    overflow_wheel::OverflowWheel,
    scheme::{Claim, Scheme},
    sorted_list::SortedList,
    unsorted_list::UnsortedList,
};
use crate::trial::{Costs, Plan, trial};

/// One scheme, whatever its type.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) idea: &'static str,
    pub(crate) claim: Claim,
    /// Measures it once.
    pub(crate) trial: fn(&Plan) -> anyhow::Result<Costs>,
}

const fn contender<S: Scheme>() -> Contender {
    Contender { name: S::NAME, idea: S::IDEA, claim: S::CLAIM, trial: trial::<S> }
}

/// Every scheme, in the order of the table.
pub(crate) const ALL: [Contender; 8] = [
    contender::<UnsortedList>(),
    contender::<SortedList>(),
    contender::<OverflowWheel>(),
    contender::<BoundedWheel>(),
    contender::<HashedWheel>(),
    contender::<DelayHeap>(),
    contender::<ClockWheel>(),
    contender::<HierarchicalWheel>(),
];
