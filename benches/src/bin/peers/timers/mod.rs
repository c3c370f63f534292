//! The timers that are compared, each used as its own documentation advises, behind [`Timer`]; and
//! the data structures among them that can be turned without a clock, behind [`Core`].
//!
//! A peer is one file. It joins the run by an arm in [`Contender::visit`].

mod async_io;
mod binary_heap;
mod btree_map;
mod delay_queue;
mod futures_timer;
mod hashed_core;
mod hashed_wheel;
mod ours;
mod ours_sleep;
mod pingora;
mod queue_thread;
mod tokio_sleep;

use std::{
    convert::Infallible,
    future::ready,
    hint::black_box,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{rows::Named, sink::Sink};

pub(crate) use self::{
    binary_heap::LazyHeap,
    btree_map::DeadlineMap,
    hashed_core::HashedCore,
    ours::{Ours, OursClosure, OursFine, OursWheel},
};

/// A timer that any thread may use.
///
/// `schedule` is what a timeout costs that will be cancelled; `schedule_firing` also tells the sink
/// when the timer fires, with the moment it was due. Both return what `cancel` needs.
pub(crate) trait Timer: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;
    /// Names a pending timer, or is it.
    type Handle: Send + 'static;
    /// What a thread holds while it uses the timer.
    type Local<'a>;

    fn start(sink: &'static Sink) -> anyhow::Result<Self>;

    /// Runs a thread that uses the timer.
    fn inside(
        _: Arc<Self>,
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        work()
    }

    fn local(&self) -> Self::Local<'_>;

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> Self::Handle;

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> Self::Handle;

    /// True when the timer was pending, as far as the peer can tell.
    fn cancel(local: &mut Self::Local<'_>, handle: Self::Handle) -> bool;

    /// One timeout that did not come to pass.
    fn schedule_cancel(local: &mut Self::Local<'_>, delay: Duration) -> bool {
        let handle = Self::schedule(local, delay);
        Self::cancel(local, black_box(handle))
    }

    /// A time-out around a future that is ready at once. True if it yielded what that did.
    fn timeout_ready(_: &mut Self::Local<'_>, _: Duration) -> bool {
        false
    }

    /// Puts a new timer in the place of a pending one.
    fn replace(local: &mut Self::Local<'_>, place: &mut Self::Handle, delay: Duration) -> bool {
        let old = std::mem::replace(place, Self::schedule(local, delay));
        Self::cancel(local, old)
    }

    /// Returns once everything asked for so far has been done: at once, unless requests queue.
    fn settle(_: &mut Self::Local<'_>) {}

    /// How many timers are pending, where the peer can tell.
    fn pending(&self) -> Option<usize> {
        None
    }
}

/// Polls a sleep that is not over yet.
fn register<F: Future + ?Sized>(sleep: Pin<&mut F>, waker: &Waker) {
    let poll = sleep.poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending(), "a sleep was over when first polled");
}

/// What a time-out is around.
fn answer() -> impl Future<Output = Result<u64, Infallible>> {
    ready(Ok(black_box(7)))
}

/// True if a time-out yields what it is around at its first poll.
fn at_once<T: Yields>(timeout: Pin<&mut impl Future<Output = T>>) -> bool {
    match timeout.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output.value() == Some(7),
        Poll::Pending => false,
    }
}

/// What a time-out yields, or the future it is around.
trait Yields {
    fn value(self) -> Option<u64>;
}

impl Yields for Result<u64, Infallible> {
    fn value(self) -> Option<u64> {
        self.ok()
    }
}

impl<E> Yields for Result<Result<u64, Infallible>, E> {
    fn value(self) -> Option<u64> {
        self.ok()?.ok()
    }
}

/// Ordered timers without clock, lock or thread: time is told in ticks.
pub(crate) trait Core: Default {
    const NAME: &'static str;

    fn insert(&mut self, deadline: u64, id: u64);

    /// Hands over every timer due at `now`.
    fn advance(&mut self, now: u64, sink: impl FnMut(u64));
}

/// Every [`Timer`], by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Ours,
    OursClosure,
    OursFine,
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
    /// With ours once more, at a tick of 250 µs.
    pub(crate) const WITH_FINE: [Contender; 8] = with(Contender::OursFine);

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
            Contender::OursSleep => visitor.visit::<ours_sleep::OursSleep>(),
            Contender::TokioSleep => visitor.visit::<tokio_sleep::TokioSleep<false>>(),
            Contender::TokioAlt => visitor.visit::<tokio_sleep::TokioSleep<true>>(),
            Contender::Pingora => visitor.visit::<pingora::Pingora>(),
            Contender::FuturesTimer => visitor.visit::<futures_timer::FuturesTimer>(),
            Contender::DelayQueue => visitor.visit::<delay_queue::Queue>(),
            Contender::HashedWheel => visitor.visit::<hashed_wheel::HashedWheel>(),
            Contender::AsyncIo => visitor.visit::<async_io::AsyncIo>(),
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
