//! The timers that are compared, each used as its own documentation advises, behind [`Timer`]; and
//! the data structures among them that can be turned without a clock, behind [`Core`].
//!
//! A peer joins the run by its type in [`timers`].

mod cores;
mod delay_queue;
mod hashed_wheel;
mod ours;
mod queue_thread;
mod sleeps;
mod timer;
mod tokio_sleep;

pub(crate) use self::{
    cores::{Core, HashedCore, NexusCore, OursWheel},
    delay_queue::Queue as DelayQueue,
    hashed_wheel::HashedWheel,
    ours::{Ours, OursClosure, OursFine, OursHandler},
    queue_thread::{DeadlineMap, LazyHeap, QueueThread},
    sleeps::{AsyncIo, FuturesTimer, OursSleep, Pingora, Polled},
    timer::Timer,
    tokio_sleep::TokioSleep,
};

/// What a row measures with the timers of a set.
macro_rules! timers {
    // Ours by its defaults, and the peers.
    ($measure:ident, plain) => {
        $crate::timers::timers!($measure, Ours)
    };
    // With ours once more, its task a closure that holds something.
    ($measure:ident, with_closure) => {
        $crate::timers::timers!($measure, Ours, OursClosure)
    };
    // With ours twice more: with one handler for all tasks, and at a tick of 250 µs.
    ($measure:ident, firing) => {
        $crate::timers::timers!($measure, Ours, OursHandler, OursFine)
    };
    // Those that are futures, ours by its own; the last is tokio's alternative timer.
    ($measure:ident, sleeps) => {{
        use $crate::timers::*;
        $crate::contender::contenders!($measure, Timer:
            Polled<OursSleep>, TokioSleep<false>, Polled<Pingora>, Polled<FuturesTimer>,
            Polled<AsyncIo>, TokioSleep<true>)
    }};
    ($measure:ident, $($ours:ident),+) => {{
        use $crate::timers::*;
        $crate::contender::contenders!($measure, Timer:
            $($ours,)+ TokioSleep<false>, DelayQueue, HashedWheel, Polled<AsyncIo>,
            QueueThread<DeadlineMap>, QueueThread<LazyHeap>)
    }};
}
pub(crate) use timers;
