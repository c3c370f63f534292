//! Timers of the whole process whose sleeps are futures: polled by the measured thread, cancelled
//! by dropping them. Where one fires, its waker tells (no task is run: kind to the peers).

use std::{
    hint::black_box,
    marker::PhantomData,
    pin::{Pin, pin},
    task::Waker,
    time::Duration,
};

use super::{
    first_poll::{answer, at_once, register},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

/// One of them.
pub(crate) trait Sleeps: Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;
    type Sleep: Future + Unpin + Send + 'static;

    fn set_up() {}

    fn sleep(delay: Duration) -> Self::Sleep;

    /// False when it has fired, as far as the peer can tell.
    fn is_pending(_: &Self::Sleep) -> bool {
        true
    }

    fn schedule_cancel(delay: Duration) -> bool {
        Self::is_pending(&black_box(registered::<Self>(delay, Waker::noop())))
    }

    /// Of one that has no time-out, made of a sleep as others do, the other future polled first.
    fn timeout_ready(limit: Duration) -> bool {
        let _limit = Self::sleep(limit);
        at_once(pin!(async { Ok::<_, ()>(answer().await) }))
    }
}

fn registered<S: Sleeps + ?Sized>(delay: Duration, waker: &Waker) -> S::Sleep {
    let mut sleep = S::sleep(delay);
    register(Pin::new(&mut sleep), waker);
    sleep
}

pub(crate) struct Polled<S>(&'static Sink, PhantomData<S>);

impl<S: Sleeps> Timer for Polled<S> {
    const NAME: &'static str = S::NAME;
    type Handle = S::Sleep;
    type Local<'a> = &'static Sink;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        S::set_up();
        Ok(Polled(sink, PhantomData))
    }

    fn local(&self) -> &'static Sink {
        self.0
    }

    fn schedule(_: &mut &'static Sink, delay: Duration) -> S::Sleep {
        registered::<S>(delay, Waker::noop())
    }

    fn schedule_firing(sink: &mut &'static Sink, delay: Duration, due_ns: u64) -> S::Sleep {
        registered::<S>(delay, &TellsSink::waker(sink, due_ns))
    }

    fn cancel(_: &mut &'static Sink, sleep: S::Sleep) -> bool {
        S::is_pending(&sleep)
    }

    fn schedule_cancel(_: &mut &'static Sink, delay: Duration) -> bool {
        S::schedule_cancel(delay)
    }

    fn timeout_ready(_: &mut &'static Sink, limit: Duration) -> bool {
        S::timeout_ready(limit)
    }
}
