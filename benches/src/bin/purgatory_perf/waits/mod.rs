//! Where the requests wait: what is compared.

mod first;
mod heap;
mod nothing;
pub(crate) mod wait;
mod wheel;

use clap::ValueEnum;

pub(crate) use first::First;
pub(crate) use heap::Heap;
pub(crate) use nothing::Nothing;
pub(crate) use wheel::Wheel;

/// What times the requests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimerKind {
    /// This project's purgatory: the hierarchical timing wheel.
    Wheel,
    /// The same purgatory without its timer, and a delay heap beside it.
    Heap,
    /// The shape of Kafka's first purgatory: one heap, one lock, and completed requests kept until
    /// a purge.
    First,
}
