//! The timers that are compared, each used as its own documentation advises, behind [`Timer`]; and
//! the data structures among them that can be turned without a clock, behind
//! [`Core`](self::core::Core).
//!
//! A peer is one file. It joins the run by an arm in [`Contender::visit`].

mod async_io;
mod binary_heap;
mod btree_map;
pub(crate) mod core;
mod delay_queue;
mod first_poll;
mod futures_timer;
mod hashed_core;
mod hashed_wheel;
mod nexus_core;
mod ours;
mod ours_sleep;
mod pingora;
mod polled;
mod queue_thread;
pub(crate) mod timer;
mod tokio_sleep;

pub(crate) use self::{
    binary_heap::LazyHeap,
    btree_map::DeadlineMap,
    hashed_core::HashedCore,
    nexus_core::NexusCore,
    ours::{Ours, OursClosure, OursFine, OursHandler, OursWheel, OursWithin},
};
use self::{polled::Polled, timer::Timer};
use crate::named::Named;

/// Every [`Timer`], by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Ours,
    OursClosure,
    OursFine,
    OursHandler,
    OursSleep,
    TokioSleep,
    TokioAlt,
    Pingora,
    FuturesTimer,
    DelayQueue,
    HashedWheel,
    AsyncIo,
    BTreeMap,
    BinaryHeap,
}

/// Something to do with a timer of any type.
pub(crate) trait Visit {
    type Output;

    fn visit<T: Timer>(&self) -> Self::Output;
}

impl Contender {
    /// Ours by its defaults, and the peers.
    pub(crate) const PLAIN: [Contender; 7] = [
        Contender::Ours,
        Contender::TokioSleep,
        Contender::DelayQueue,
        Contender::HashedWheel,
        Contender::AsyncIo,
        Contender::BTreeMap,
        Contender::BinaryHeap,
    ];
    /// With ours once more, its task a closure that holds something.
    pub(crate) const WITH_CLOSURE: [Contender; 8] = with(Contender::OursClosure);
    /// With ours twice more: at a tick of 250 µs, and with one handler for all tasks.
    pub(crate) const FIRING: [Contender; 9] = {
        let [ours, fine, tokio, queue, wheel, async_io, map, heap] = with(Contender::OursFine);
        [ours, Contender::OursHandler, fine, tokio, queue, wheel, async_io, map, heap]
    };

    /// Those that are futures, ours by its own; tokio's alternative timer in a build that has it.
    pub(crate) const SLEEPS: &[Contender] = {
        const ALL: [Contender; 6] = [
            Contender::OursSleep,
            Contender::TokioSleep,
            Contender::Pingora,
            Contender::FuturesTimer,
            Contender::AsyncIo,
            Contender::TokioAlt,
        ];
        if cfg!(tokio_unstable) { &ALL } else { ALL.split_at(5).0 }
    };

    pub(crate) fn visit<V: Visit>(self, visitor: &V) -> V::Output {
        match self {
            Contender::Ours => visitor.visit::<Ours>(),
            Contender::OursClosure => visitor.visit::<OursClosure>(),
            Contender::OursFine => visitor.visit::<OursFine>(),
            Contender::OursHandler => visitor.visit::<OursHandler>(),
            Contender::OursSleep => visitor.visit::<ours_sleep::OursSleep>(),
            Contender::TokioSleep => visitor.visit::<tokio_sleep::TokioSleep<false>>(),
            Contender::TokioAlt => visitor.visit::<tokio_sleep::TokioSleep<true>>(),
            Contender::Pingora => visitor.visit::<Polled<pingora::Pingora>>(),
            Contender::FuturesTimer => visitor.visit::<Polled<futures_timer::FuturesTimer>>(),
            Contender::DelayQueue => visitor.visit::<delay_queue::Queue>(),
            Contender::HashedWheel => visitor.visit::<hashed_wheel::HashedWheel>(),
            Contender::AsyncIo => visitor.visit::<Polled<async_io::AsyncIo>>(),
            Contender::BTreeMap => visitor.visit::<queue_thread::QueueThread<DeadlineMap>>(),
            Contender::BinaryHeap => visitor.visit::<queue_thread::QueueThread<LazyHeap>>(),
        }
    }
}

impl Named for Contender {
    fn name(self) -> &'static str {
        struct Name;
        impl Visit for Name {
            type Output = &'static str;

            fn visit<T: Timer>(&self) -> &'static str {
                T::NAME
            }
        }
        self.visit(&Name)
    }
}

const fn with(second: Contender) -> [Contender; 8] {
    let [ours, tokio, queue, wheel, async_io, map, heap] = Contender::PLAIN;
    [ours, second, tokio, queue, wheel, async_io, map, heap]
}
