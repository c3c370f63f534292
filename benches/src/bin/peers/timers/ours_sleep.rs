//! Ours: a `Sleep` on a `SystemTimer`, polled by the measured thread; where it fires, its waker
//! tells. For the rows of sleeps, where it is `ours`.

use std::{
    pin::{Pin, pin},
    task::Waker,
    time::Duration,
};

use timer_core::{Sleep, SystemTimer, Timer as _};

use super::{
    first_poll::{answer, at_once, register},
    timer::Timer,
};
use crate::sink::{Sink, TellsSink};

pub(crate) struct OursSleep {
    timer: SystemTimer,
    sink: &'static Sink,
}

fn registered(mut sleep: Sleep, waker: &Waker) -> Sleep {
    register(Pin::new(&mut sleep), waker);
    sleep
}

impl Timer for OursSleep {
    const NAME: &'static str = "ours";
    type Handle = Sleep;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(sink.clock()).build()?;
        Ok(OursSleep { timer, sink })
    }

    fn local(&self) -> &Self {
        self
    }

    fn schedule(local: &mut &Self, delay: Duration) -> Sleep {
        registered(local.timer.sleep(delay), Waker::noop())
    }

    fn schedule_firing(local: &mut &Self, delay: Duration, due_ns: u64) -> Sleep {
        registered(local.timer.sleep(delay), &TellsSink::waker(local.sink, due_ns))
    }

    fn cancel(_: &mut &Self, handle: Sleep) -> bool {
        drop(handle);
        true
    }

    fn timeout_ready(local: &mut &Self, limit: Duration) -> bool {
        at_once(pin!(local.timer.timeout(limit, answer())))
    }

    fn pending(&self) -> Option<usize> {
        Some(self.timer.sleeps().len())
    }
}
