//! The rows of timers that do not fire, and of a core that is turned by hand.
//!
//! `schedule-cancel-…` and `random-replace-1m`: the cost of a timeout that is cancelled or moved,
//! with the clock read that a delay needs, on one thread and on two.
//!
//! The pending timers belong to the threads that work, an hour or two away; each is cancelled in
//! the end, and must still be there.
//!
//! `idle`: wake-ups of a process that waits for a thousand timers an hour away. These are the
//! voluntary context switches of all its threads but the one that watches, from `/proc`.
//!
//! `bytes-per-timer`: heap in use while a million timers are pending, divided by their number. A
//! caller's handle is not counted, unless it is the timer. Ours counts 16 bytes of pointer to the
//! task, a peer but tokio 8 bytes of payload.
//!
//! `advance-1m`: the cost of turning a core over a second of virtual time, tick by tick, in which a
//! million timers fall due at random. Filling it is not measured. (tokio's wheels turn only with
//! its clock and runtime.) `longest-insert-1m`: the longest insertion, for which a lock is held.

use std::{
    fs,
    hint::black_box,
    sync::{
        Barrier,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::row::Run;
use crate::{
    contender::contenders,
    sink::Sink,
    timers::{Core, DeadlineMap, OursWheel, Timer, timers},
};

/// The delay of a timeout that is cancelled at once.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The work of threads on a timer.
#[derive(Clone, Copy, Debug)]
struct Churn {
    threads: usize,
    /// Pending timers, of all threads together.
    pending: usize,
    /// Replace one of those, instead of scheduling a timeout and cancelling it.
    replace: bool,
    operations: usize,
}

/// One to two hours.
fn far(random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(3_600_000_000..7_200_000_000))
}

/// Does the work on this many threads, which are numbered.
pub(super) fn on_threads<R: Send>(threads: usize, work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads = (0..threads as u64).map(|thread| scope.spawn(move || work(thread)));
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it schedules"))
            .collect()
    })
}

/// Nanoseconds an operation, of the slowest thread.
fn churn<T: Timer>(of: Churn) -> anyhow::Result<f64> {
    let sink = Sink::for_none();
    let (timer, together) = (T::start(sink)?, Barrier::new(of.threads));
    let spent = on_threads(of.threads, |thread| member(&timer, of, thread, &together));
    let spent: Vec<f64> = spent.into_iter().collect::<anyhow::Result<_>>()?;
    let (pending, fired) = (timer.pending().unwrap_or(0), sink.count());
    ensure!(
        pending == 0,
        "{pending} are pending after all were cancelled"
    );
    ensure!(fired == 0, "{fired} fired that were an hour away");
    Ok(spent.into_iter().fold(0.0, f64::max))
}

/// Fills the timer, works on it together with the other threads, and empties it again.
fn member<T: Timer>(timer: &T, of: Churn, thread: u64, together: &Barrier) -> anyhow::Result<f64> {
    let (mut random, clock) = (Rng::with_seed(thread), SystemClock::new());
    let (mut local, share) = (timer.local(), of.pending / of.threads);
    let fill = |_| T::schedule(&mut local, far(&mut random));
    let mut pending: Vec<_> = (0..share).map(fill).collect();
    let (mut begin, mut cancelled) = (0, 0);
    for operation in 0..2 * of.operations {
        if operation == of.operations {
            together.wait(); // warmed up
            begin = clock.now_ns();
        }
        cancelled += usize::from(if of.replace {
            let place = random.usize(0..share);
            T::replace(&mut local, &mut pending[place], far(&mut random))
        } else {
            T::schedule_cancel(&mut local, TIMEOUT)
        });
    }
    let spent = clock.now_ns() - begin;
    let all = share + 2 * of.operations;
    let left = pending
        .into_iter()
        .map(|one| usize::from(T::cancel(&mut local, one)));
    cancelled += left.sum::<usize>();
    ensure!(
        cancelled == all,
        "{}: {cancelled} of {all} were cancelled",
        T::NAME
    );
    Ok(spent as f64 / of.operations as f64)
}

pub(super) fn schedule(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = match id.rsplit('-').next() {
        Some("100k") => run.sizes.hundred_k,
        Some("1m") => run.sizes.one_m,
        _ => 0,
    };
    let (replace, operations) = (id.contains("replace"), run.sizes.operations);
    let of = Churn {
        threads,
        pending,
        replace,
        operations,
    };
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns", &timers!(churn), of)?;
    }
    Ok(())
}

const IDLE_TIMERS: usize = 1000;
const HOUR: Duration = Duration::from_secs(3600);

/// Waits that came to an end, of every thread but the one that asks, since it began. An error where
/// there is no `/proc`.
fn wake_ups() -> anyhow::Result<u64> {
    let me = fs::read_link("/proc/thread-self").context("no /proc here")?;
    let tasks = fs::read_dir("/proc/self/task")?.flatten();
    let others = tasks.filter(|task| Some(task.file_name().as_os_str()) != me.file_name());
    // A thread that has just ended is left out.
    let counts = others.filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    });
    Ok(counts.sum())
}

/// Wake-ups a second.
fn watch<T: Timer>(time: Duration) -> anyhow::Result<f64> {
    let sink = Sink::for_none();
    let timer = T::start(sink)?;
    let mut local = timer.local();
    let handles: Vec<_> = (0..IDLE_TIMERS)
        .map(|_| T::schedule(&mut local, HOUR))
        .collect();
    // Scheduling settles in the first tenth.
    wait(time / 10);
    let before = wake_ups()?;
    wait(time);
    let after = wake_ups()?;
    let cancelled = handles
        .into_iter()
        .map(|one| usize::from(T::cancel(&mut local, one)));
    ensure!(
        cancelled.sum::<usize>() == IDLE_TIMERS && sink.count() == 0,
        "{}: fired",
        T::NAME
    );
    Ok(after.saturating_sub(before) as f64 / time.as_secs_f64())
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
    let before = wake_ups()?;
    wait(Duration::from_millis(20));
    let after = wake_ups()?;
    drop(stop);
    awake.join().ok().context("the control thread")?;
    ensure!(after > before, "a thread that wakes up is not seen");
    Ok(())
}

pub(super) fn idle(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let measure = format!("{id}-wake-ups");
    control()?;
    for _ in 0..run.sizes.rounds {
        run.each(&measure, "a second", &timers!(watch), run.sizes.window)?;
    }
    Ok(())
}

fn pending<T: Timer>(timers: usize) -> anyhow::Result<f64> {
    let timer = T::start(Sink::for_none())?;
    let mut local = timer.local();
    let mut random = Rng::with_seed(1);
    let mut handles = Vec::with_capacity(timers);
    let counted = allocation_counter::measure(|| {
        let far = |_| Duration::from_millis(random.u64(3_600_000..7_200_000));
        handles.extend(
            (0..timers)
                .map(far)
                .map(|delay| T::schedule(&mut local, delay)),
        );
    });
    let there = handles.len();
    let cancelled = handles
        .into_iter()
        .map(|one| usize::from(T::cancel(&mut local, one)));
    ensure!(
        cancelled.sum::<usize>() == there,
        "{}: a pending timer had gone",
        T::NAME
    );
    Ok(counted.bytes_current as f64 / timers as f64)
}

pub(super) fn bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    run.each(id, "bytes", &timers!(pending), run.sizes.one_m)
}

const TICKS: u64 = 1000;

/// Nanoseconds a timer.
fn turn<C: Core>((timers, seed): (usize, u64)) -> anyhow::Result<f64> {
    let mut core = C::default();
    let mut random = Rng::with_seed(seed);
    (0..timers as u64).for_each(|id| core.insert(random.u64(1..=TICKS), id));
    let (mut fired, mut sum) = (0, 0);
    let clock = SystemClock::new();
    let begin = clock.now_ns();
    for now in 0..=TICKS {
        core.advance(now, |id| {
            fired += 1;
            sum += id;
        });
    }
    let spent = clock.now_ns() - begin;
    let all = timers as u64;
    ensure!(
        (fired, black_box(sum)) == (all, all * (all - 1) / 2),
        "{}: {fired} fired",
        C::NAME
    );
    Ok(spent as f64 / timers as f64)
}

/// The longest of a million insertions, in microseconds.
fn longest<C: Core>((timers, seed): (usize, u64)) -> anyhow::Result<f64> {
    let (mut core, mut random, clock) = (C::default(), Rng::with_seed(seed), SystemClock::new());
    let insert_ns = |id| {
        let begin_ns = clock.now_ns();
        core.insert(random.u64(1..=60 * TICKS), id);
        clock.now_ns() - begin_ns
    };
    Ok((0..timers as u64).map(insert_ns).max().unwrap_or(0) as f64 / 1e3)
}

pub(super) fn core(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (unit, contenders) = match id {
        "advance-1m" => (
            "ns a timer",
            contenders!(turn, Core: OursWheel, DeadlineMap),
        ),
        _ => ("us", contenders!(longest, Core: OursWheel, DeadlineMap)),
    };
    for round in 0..run.sizes.rounds {
        run.each(id, unit, &contenders, (run.sizes.one_m, round as u64))?;
    }
    Ok(())
}

/// The self-checks checked: a timer that does none of what it should is found out by every row.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Cancels nothing, and fires twice, at once.
    pub(in crate::rows) struct Broken(&'static Sink);

    impl Timer for Broken {
        const NAME: &'static str = "broken";
        type Handle = ();
        type Local<'a> = &'static Sink;

        fn start(sink: &'static Sink) -> anyhow::Result<Self> {
            Ok(Broken(sink))
        }

        fn local(&self) -> &'static Sink {
            self.0
        }

        fn schedule(_: &mut &'static Sink, _: Duration) {}

        fn schedule_firing(sink: &mut &'static Sink, _: Duration, due_ns: u64) {
            sink.fired(due_ns);
            sink.fired(due_ns);
        }

        fn cancel(_: &mut &'static Sink, (): ()) -> bool {
            false
        }

        fn pending(&self) -> Option<usize> {
            None
        }
    }

    #[test]
    fn timer_that_is_not_cancelled_is_noticed() {
        for (pending, replace, operations) in [(0, false, 8), (1, true, 8), (1, false, 0)] {
            let of = Churn {
                threads: 1,
                pending,
                replace,
                operations,
            };
            assert!(churn::<Broken>(of).is_err());
        }
        assert!(pending::<Broken>(1).is_err());
        assert!(watch::<Broken>(Duration::from_millis(1)).is_err());
    }
}
