//! Where the requests wait: what is compared.

mod first;
mod heap;
mod nothing;
mod wheel;

use clap::ValueEnum;

use crate::books::Request;
pub(crate) use first::First;
pub(crate) use heap::Heap;
pub(crate) use nothing::Nothing;
pub(crate) use wheel::Wheel;

/// A watch key.
pub(crate) type Key = u32;

/// What times the requests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimerKind {
    /// This project's purgatory: the hierarchical timing wheel.
    Wheel,
    /// The same purgatory without its timer, and a delay heap beside it.
    Heap,
    /// The shape of Kafka's first purgatory: one heap, one lock, and completed requests kept until a
    /// purge.
    First,
}

/// How a request is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Completion {
    /// By name, as Kafka's test does.
    Force,
    /// By the events of its keys.
    Event,
}

/// Requests that wait until they are completed or their time runs out.
pub(crate) trait Waits: Send + Sync + Sized + 'static {
    /// What nobody completes ends, too.
    const EXPIRES: bool = true;

    /// Names a request that waits.
    type Ticket: Send + 'static;

    /// Parks a request under all keys.
    fn park(&self, request: Request) -> Self::Ticket;

    /// Completes a request, unless its time ran out.
    fn complete(&self, ticket: Self::Ticket);
}
