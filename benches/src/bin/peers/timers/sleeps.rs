//! Sleeps that are futures: polled by the measured thread, cancelled by dropping them. Where one
//! fires, its waker tells (no task is run: kind to the peers). All but ours are of the whole
//! process.

use std::{
    future::ready,
    hint::black_box,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_timer::Delay;
use pingora_timeout::fast_timeout::{
    fast_sleep, fast_timeout, set_fast_timeout_to_tokio_threshold,
};
use timer_core::{Sleep, SystemTimer, Timer as _};

use super::timer::Timer;
use crate::sink::{Sink, TellsSink};

/// Polls a sleep for the first time, which registers it: it must not be over yet.
pub(super) fn register<F: Future + ?Sized>(sleep: Pin<&mut F>, waker: &Waker) {
    let poll = sleep.poll(&mut Context::from_waker(waker));
    assert!(poll.is_pending(), "a sleep was over when first polled");
}

/// The same with one that need not be pinned.
pub(super) fn registered<F: Future + Unpin>(mut sleep: F, waker: &Waker) -> F {
    register(Pin::new(&mut sleep), waker);
    sleep
}

/// What a time-out is around.
pub(super) fn answer() -> impl Future<Output = u64> {
    ready(black_box(7))
}

/// True if a time-out yields at its first poll what it is around.
pub(super) fn at_once<E>(timeout: Pin<&mut impl Future<Output = Result<u64, E>>>) -> bool {
    matches!(timeout.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(7)))
}

/// Makes one kind of them.
pub(crate) trait Sleeps: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;
    type Sleep: Future + Unpin + Send + 'static;

    fn start(sink: &Sink) -> anyhow::Result<Self>;

    fn sleep(&self, delay: Duration) -> Self::Sleep;

    /// False when it has fired, as far as the peer can tell.
    fn is_pending(_: &Self::Sleep) -> bool {
        true
    }

    fn schedule_cancel(&self, delay: Duration) -> bool {
        Self::is_pending(&black_box(registered(self.sleep(delay), Waker::noop())))
    }

    /// Of one that has no time-out, made of a sleep as others do, the other future polled first.
    fn timeout_ready(&self, limit: Duration) -> bool {
        let _limit = self.sleep(limit);
        at_once(pin!(async { Ok::<_, ()>(answer().await) }))
    }

    /// How many are pending, where the peer can tell.
    fn pending(&self) -> Option<usize> {
        None
    }
}

pub(crate) struct Polled<S> {
    sleeps: S,
    sink: &'static Sink,
}

impl<S: Sleeps> Timer for Polled<S> {
    const NAME: &'static str = S::NAME;
    type Handle = S::Sleep;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(Polled { sleeps: S::start(sink)?, sink })
    }

    fn local(&self) -> &Self {
        self
    }

    fn schedule(local: &mut &Self, delay: Duration) -> S::Sleep {
        registered(local.sleeps.sleep(delay), Waker::noop())
    }

    fn schedule_firing(local: &mut &Self, delay: Duration, due_ns: u64) -> S::Sleep {
        registered(local.sleeps.sleep(delay), &TellsSink::waker(local.sink, due_ns))
    }

    fn cancel(_: &mut &Self, sleep: S::Sleep) -> bool {
        S::is_pending(&sleep)
    }

    fn schedule_cancel(local: &mut &Self, delay: Duration) -> bool {
        local.sleeps.schedule_cancel(delay)
    }

    fn timeout_ready(local: &mut &Self, limit: Duration) -> bool {
        local.sleeps.timeout_ready(limit)
    }

    fn pending(&self) -> Option<usize> {
        self.sleeps.pending()
    }
}

/// Ours: a `Sleep` on a `SystemTimer`. For the rows of sleeps, where it is `ours`.
pub(crate) struct OursSleep(SystemTimer);

impl Sleeps for OursSleep {
    const NAME: &'static str = "ours";
    type Sleep = Sleep;

    fn start(sink: &Sink) -> anyhow::Result<Self> {
        Ok(OursSleep(SystemTimer::builder().clock(sink.clock()).build()?))
    }

    fn sleep(&self, delay: Duration) -> Sleep {
        self.0.sleep(delay)
    }

    fn timeout_ready(&self, limit: Duration) -> bool {
        at_once(pin!(self.0.timeout(limit, answer())))
    }

    fn pending(&self) -> Option<usize> {
        Some(self.0.sleeps().len())
    }
}

/// async-io's `Timer`: registers with the process's one reactor when it is first polled.
pub(crate) struct AsyncIo;

impl Sleeps for AsyncIo {
    const NAME: &'static str = "async-io";
    type Sleep = async_io::Timer;

    fn start(_: &Sink) -> anyhow::Result<Self> {
        Ok(AsyncIo)
    }

    fn sleep(&self, delay: Duration) -> async_io::Timer {
        async_io::Timer::after(delay)
    }

    fn is_pending(sleep: &async_io::Timer) -> bool {
        sleep.will_fire()
    }
}

/// futures-timer's `Delay`: registered with the process's one helper thread when it is made.
pub(crate) struct FuturesTimer;

impl Sleeps for FuturesTimer {
    const NAME: &'static str = "futures-timer";
    type Sleep = Delay;

    fn start(_: &Sink) -> anyhow::Result<Self> {
        Ok(FuturesTimer)
    }

    fn sleep(&self, delay: Duration) -> Delay {
        Delay::new(delay)
    }
}

/// pingora-timeout's `fast_sleep`, for time-outs that rarely fire: registered when it is polled, in
/// steps of 10 ms, those of a thread and step together; one that is dropped leaves its step behind.
/// Its longer sleeps are tokio's by default; here all are its own.
pub(crate) struct Pingora;

impl Sleeps for Pingora {
    const NAME: &'static str = "pingora-timeout";
    type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn start(_: &Sink) -> anyhow::Result<Self> {
        set_fast_timeout_to_tokio_threshold(None);
        Ok(Pingora)
    }

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        Box::pin(fast_sleep(delay))
    }

    /// On the stack.
    fn schedule_cancel(&self, delay: Duration) -> bool {
        register(pin!(fast_sleep(delay)), Waker::noop());
        true
    }

    fn timeout_ready(&self, limit: Duration) -> bool {
        at_once(pin!(fast_timeout(limit, answer())))
    }
}
