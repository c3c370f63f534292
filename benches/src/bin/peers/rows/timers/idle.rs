//! `idle`: what a process does while it waits for a thousand timers an hour away. Wake-ups are the
//! voluntary context switches of all its threads but the one that watches, from `/proc`.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use anyhow::{Context, ensure};

use super::super::row::Run;
use crate::{
    activity::WakeUps,
    sink::Sink,
    timers::{Contender, Visit, timer::Timer},
};

const TIMERS: usize = 1000;
const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct Watch(pub(super) Duration);

impl Visit for Watch {
    type Output = anyhow::Result<u64>;

    fn visit<T: Timer>(&self) -> Self::Output {
        let sink = Sink::for_none();
        let timer = T::start(sink)?;
        let mut local = timer.local();
        let handles: Vec<_> = (0..TIMERS).map(|_| T::schedule(&mut local, HOUR)).collect();
        T::settle(&mut local);
        // What is left of the scheduling is done in the first tenth.
        wait(self.0 / 10);
        let before = WakeUps::so_far()?;
        wait(self.0);
        let after = WakeUps::so_far()?;
        let cancelled = handles.into_iter().map(|one| usize::from(T::cancel(&mut local, one)));
        ensure!(cancelled.sum::<usize>() == TIMERS && sink.count() == 0, "{}: fired", T::NAME);
        Ok(after.since(&before))
    }
}

fn wait(time: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    assert_eq!(nothing.recv_timeout(time), Err(RecvTimeoutError::Timeout));
}

/// A thread that wakes every millisecond must be seen, or the zeros below mean nothing.
fn control() -> anyhow::Result<()> {
    let (stop, stopped) = mpsc::channel::<()>();
    let awake = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {}
    });
    let before = WakeUps::so_far()?;
    wait(Duration::from_millis(20));
    let after = WakeUps::so_far()?;
    drop(stop);
    awake.join().ok().context("the control thread")?;
    ensure!(after.since(&before) > 0, "a thread that wakes up is not seen");
    Ok(())
}

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let measure = format!("{id}-wake-ups");
    if let Err(error) = WakeUps::so_far() {
        run.progress.suspend(|| println!("\n{measure}: left out: {error}"));
        return Ok(());
    }
    control()?;
    let idle = run.sizes.idle;
    for round in 0..run.sizes.real_time_rounds {
        run.each(&measure, "a second", round, &Contender::PLAIN, |one| {
            Ok(one.visit(&Watch(idle))? as f64 / idle.as_secs_f64())
        })?;
    }
    Ok(())
}
