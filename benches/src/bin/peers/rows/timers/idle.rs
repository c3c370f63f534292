//! `idle`: what a process does while it waits for a thousand timers an hour away. Wake-ups are the
//! voluntary context switches of all its threads but the one that watches, from `/proc`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use anyhow::{Context, ensure};

use crate::{
    rows::row::Run,
    sink::Sink,
    timers::{Timer, timers},
};

const TIMERS: usize = 1000;
const HOUR: Duration = Duration::from_secs(3600);

/// Waits that came to an end, of every thread but the one that asks, since it began.
#[derive(Debug)]
struct WakeUps(BTreeMap<OsString, u64>);

impl WakeUps {
    /// An error where there is no `/proc`.
    fn so_far() -> anyhow::Result<WakeUps> {
        let me = fs::read_link("/proc/thread-self").context("no /proc here")?;
        let tasks = fs::read_dir("/proc/self/task")?.flatten();
        let others = tasks.filter(|task| Some(task.file_name().as_os_str()) != me.file_name());
        // A thread that has just ended is left out.
        let count = others.filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((task.file_name(), count.trim().parse().ok()?))
        });
        Ok(WakeUps(count.collect()))
    }

    /// Those since then, of the threads that are still there.
    fn since(&self, before: &WakeUps) -> u64 {
        let of = |(thread, now): (_, &u64)| {
            now.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        self.0.iter().map(of).sum()
    }
}

/// Wake-ups a second.
pub(super) fn watch<T: Timer>(time: Duration) -> anyhow::Result<f64> {
    let sink = Sink::for_none();
    let timer = T::start(sink)?;
    let mut local = timer.local();
    let handles: Vec<_> = (0..TIMERS).map(|_| T::schedule(&mut local, HOUR)).collect();
    T::settle(&mut local);
    // What is left of the scheduling is done in the first tenth.
    wait(time / 10);
    let before = WakeUps::so_far()?;
    wait(time);
    let after = WakeUps::so_far()?;
    let cancelled = handles.into_iter().map(|one| usize::from(T::cancel(&mut local, one)));
    ensure!(cancelled.sum::<usize>() == TIMERS && sink.count() == 0, "{}: fired", T::NAME);
    Ok(after.since(&before) as f64 / time.as_secs_f64())
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
    for round in 0..run.sizes.real_time_rounds {
        run.each(&measure, "a second", round, &timers!(watch, plain), run.sizes.idle)?;
    }
    Ok(())
}
