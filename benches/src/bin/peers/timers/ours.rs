//! Ours: `SystemTimer` with a task that holds nothing, so that the timer alone is measured
//! (`ours`); with one that holds two words, boxed as a caller would have it (`ours-closure`); at a
//! tick of 250 µs (`ours-250us`); and with one handler for all tasks, of one word each and unboxed
//! (`ours-handler`).

use std::time::Duration;

use timer_core::{SystemTimer, TaskTimer, TickLength, Timer as _, TimerHandle, TimerTask};

use super::timer::Timer;
use crate::sink::Sink;

/// `ours`.
pub(crate) type Ours = Configured<1000, false>;
/// `ours-closure`.
pub(crate) type OursClosure = Configured<1000, true>;
/// `ours-250us`.
pub(crate) type OursFine = Configured<250, false>;

pub(crate) struct Configured<const TICK_US: u64, const CLOSURE: bool> {
    timer: SystemTimer,
    sink: &'static Sink,
}

impl<const TICK_US: u64, const CLOSURE: bool> Configured<TICK_US, CLOSURE> {
    fn add(&self, delay: Duration, task: impl TimerTask) -> TimerHandle {
        self.timer.schedule(delay, task).expect("an open timer with room")
    }
}

impl<const TICK_US: u64, const CLOSURE: bool> Timer for Configured<TICK_US, CLOSURE> {
    const NAME: &'static str = match (TICK_US, CLOSURE) {
        (250, _) => "ours-250us",
        (_, true) => "ours-closure",
        _ => "ours",
    };
    type Handle = TimerHandle;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let tick = TickLength::new(Duration::from_micros(TICK_US))?;
        let timer = SystemTimer::builder().clock(sink.clock()).tick(tick).build()?;
        Ok(Configured { timer, sink })
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule(local: &mut Self::Local<'_>, delay: Duration) -> TimerHandle {
        if CLOSURE { Self::schedule_firing(local, delay, 0) } else { local.add(delay, || ()) }
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> TimerHandle {
        let sink = local.sink;
        local.add(delay, move || sink.fired(due_ns))
    }

    fn cancel(local: &mut Self::Local<'_>, handle: TimerHandle) -> bool {
        local.timer.cancel(handle)
    }

    fn pending(&self) -> Option<usize> {
        Some(self.timer.len())
    }
}

/// `ours-handler`.
pub(crate) struct OursHandler(TaskTimer<u64>);

impl Timer for OursHandler {
    const NAME: &'static str = "ours-handler";
    type Handle = TimerHandle;
    type Local<'a> = &'a Self;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        let timer = SystemTimer::builder().clock(sink.clock()).build()?;
        Ok(OursHandler(timer.with_handler(move |due_ns| sink.fired(due_ns))?))
    }

    fn local(&self) -> Self::Local<'_> {
        self
    }

    fn schedule_firing(local: &mut Self::Local<'_>, delay: Duration, due_ns: u64) -> TimerHandle {
        local.0.schedule(delay, due_ns).expect("an open timer with room")
    }

    fn cancel(local: &mut Self::Local<'_>, handle: TimerHandle) -> bool {
        local.0.cancel(handle).is_some()
    }

    fn pending(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
